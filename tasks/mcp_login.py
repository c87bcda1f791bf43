"""``celeriac mcp login | logout``: a person's part of OAuth, on the machine of a worker.

The login is done in any browser. It comes back to an address of this machine, on which the command listens; a
browser elsewhere cannot load that address, but shows it, and it can be pasted here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import click

from celeriac.connectors.mcp_config import HttpServer, McpConfig, load_mcp_config, values_of
from celeriac.connectors.mcp_tokens import TokenFile, token_file, token_files_of, token_folder
from celeriac.connectors.redactor import Redactor
from celeriac.sessions.errors import CeleriacError, ConfigurationError
from celeriac.sessions.settings import Settings

if TYPE_CHECKING:
    from mcp.shared.auth import AuthorizationCodeResult

__all__ = ["log_in", "log_out"]

_PERSON_SECONDS = 900.0
_REQUEST_SECONDS = 10.0
_MAX_ADDRESS_BYTES = 32 * 1024
_PATH = "/callback"


def log_in(settings: Settings, name: str) -> int:
    """Let a person log in to a server, and keep the tokens.

    Args:
        settings: The settings.
        name: The server's name.

    Returns:
        0.

    Raises:
        CeleriacError: There is no such server, it needs no login, or the login failed.
    """
    server = _server(load_mcp_config(settings.mcp_config), name)
    if server.oauth is None or not server.oauth.is_login:
        raise ConfigurationError(
            f"MCP server {name} needs no login: it has no `oauth` with the grant authorization_code."
        )
    values = values_of(name, server)
    file = token_file(token_folder(settings), name, server, values)
    asyncio.run(_log_in(name, server, values, file))
    click.echo(f"Logged in to {name}. The tokens are in {file.path}")
    return 0


def log_out(settings: Settings, name: str) -> int:
    """Delete the tokens of a server.

    Args:
        settings: The settings.
        name: The server's name; it need not be in the configuration any more.

    Returns:
        0.

    Raises:
        CeleriacError: They cannot be deleted.
    """
    folder = token_folder(settings)
    deleted = [asyncio.run(_delete(file)) for file in token_files_of(folder, name)]
    if not any(deleted):
        click.echo(f"There were no tokens for {name} in {folder}")
        return 0
    click.echo(
        f"Deleted the tokens for {name}. Where they were given, the access of this program can be ended for good."
    )
    return 0


def _server(config: McpConfig, name: str) -> HttpServer:
    server = config.chosen((name,))[name]
    if not isinstance(server, HttpServer):
        raise ConfigurationError(f"MCP server {name} needs no login: it is a program.")
    return server


async def _delete(file: TokenFile) -> bool:
    async with _locked(file):
        return file.delete()


@asynccontextmanager
async def _locked(file: TokenFile) -> AsyncIterator[None]:
    try:
        async with file.locked(_PERSON_SECONDS):
            yield
    except TimeoutError:
        raise CeleriacError(f"{file.path} is in use by a worker; try again.") from None


async def _log_in(name: str, server: HttpServer, values: dict[str, str], file: TokenFile) -> None:
    # The SDK is loaded here and nowhere else in the process of the CLI.
    from celeriac.connectors.mcp_grants import Browser, Grants  # noqa: PLC0415
    from celeriac.connectors.mcp_http import NotAuthorised  # noqa: PLC0415

    back = _WayBack(server.oauth.redirect_uri if server.oauth else None)
    async with back.listening() as redirect_uri:
        browser = Browser(redirect_uri, back.show, back.result)
        try:
            record = await Grants(server, values, Redactor(values.values())).logged_in(
                file.load(), browser
            )
        except NotAuthorised as error:
            raise CeleriacError(f"MCP server {name}: {error}") from None
    async with _locked(file):
        file.save(record)


class _WayBack:
    """What the browser brings back: over the loopback address, or pasted.

    Args:
        redirect_uri: Where it comes back to; None is any free port.
    """

    def __init__(self, redirect_uri: str | None) -> None:
        self._uri = redirect_uri or f"http://127.0.0.1:0{_PATH}"
        self._path = urlsplit(self._uri).path
        self._state: str | None = None
        self._brought: asyncio.Future[dict[str, str]]
        self._typed = b""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Listen; yields the address that the browser is to come back to."""
        parts = urlsplit(self._uri)
        self._brought = asyncio.get_running_loop().create_future()
        try:
            server = await asyncio.start_server(
                self._serve, parts.hostname, parts.port, limit=_MAX_ADDRESS_BYTES
            )
        except OSError as error:
            raise CeleriacError(
                f"Nothing can listen on {parts.netloc}, where the login comes back to: {error}"
            ) from None
        port = server.sockets[0].getsockname()[1]
        async with server:
            with self._reading():
                yield f"http://{parts.hostname}:{port}{self._path}"

    async def show(self, address: str) -> None:
        """Tell the person what to do."""
        self._state = parse_qs(urlsplit(address).query).get("state", [""])[0]
        click.echo(f"Open this address in a browser, and log in:\n\n  {address}\n")
        click.echo(
            "If the browser runs on another machine, it ends with a page that cannot be loaded:\n"
            "copy the address of that page, and paste it here."
        )

    async def result(self) -> AuthorizationCodeResult:
        """Wait for what the browser brings back.

        Raises:
            CeleriacError: The login was refused, or nobody came back.
        """
        from mcp.shared.auth import AuthorizationCodeResult  # noqa: PLC0415

        try:
            brought = await asyncio.wait_for(self._brought, _PERSON_SECONDS)
        except TimeoutError:
            raise CeleriacError(
                f"Nobody logged in within {_PERSON_SECONDS / 60:g} minutes."
            ) from None
        if "error" in brought:
            why = ": ".join(
                brought[key] for key in ("error", "error_description") if key in brought
            )
            raise CeleriacError(f"The login was refused ({why}).")
        return AuthorizationCodeResult(
            code=brought.get("code", ""), state=brought.get("state"), iss=brought.get("iss")
        )

    def _take(self, query: str) -> bool:
        """Take what came back; whether it belongs to this login, which its state says."""
        brought = {key: values[0] for key, values in parse_qs(query).items()}
        if not self._state or brought.get("state") != self._state:
            return False
        if not self._brought.done():
            self._brought.set_result(brought)
        return True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                method, target, _ = head.split(b"\r\n", 1)[0].decode("ascii").split(" ", 2)
                address = urlsplit(target)
                if method != "GET" or address.path != self._path:
                    writer.write(_page("404 Not Found", "There is nothing here."))
                elif self._take(address.query):
                    writer.write(_page("200 OK", "Go back to the terminal: it goes on there."))
                else:
                    writer.write(
                        _page("400 Bad Request", "This does not belong to the present login.")
                    )
                await writer.drain()
        writer.close()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Read pasted addresses, if there is somebody who can type."""
        loop = asyncio.get_running_loop()
        try:
            descriptor = sys.stdin.fileno()
            loop.add_reader(descriptor, self._read, descriptor)
        except (OSError, ValueError):
            yield  # no terminal and no pipe
            return
        try:
            yield
        finally:
            loop.remove_reader(descriptor)

    def _read(self, descriptor: int) -> None:
        typed = os.read(descriptor, _MAX_ADDRESS_BYTES)
        if not typed:
            asyncio.get_running_loop().remove_reader(descriptor)
            return
        *lines, self._typed = (self._typed + typed).split(b"\n")
        for line in filter(None, map(bytes.strip, lines)):
            if not self._take(urlsplit(line.decode(errors="replace")).query):
                click.echo("That is not where this login came back to. Paste the whole address.")


def _page(status: str, words: str) -> bytes:
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(words)}\r\n"
        f"Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n{words}"
    ).encode()
