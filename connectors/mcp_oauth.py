"""How requests to an MCP server with `oauth` get their access token.

OAuth itself is the SDK's: discovery, registration, the exchange and the renewal of tokens. But its providers keep
a lock while a request is answered, know nothing of other processes, and forget when a stored token expires. So
here they only obtain tokens, between requests (`Grants`), and `ServerAuth` puts on each request the token that is
in the server's file just then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager

import httpx2
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    extract_scope_from_www_auth,
    union_scopes,
)

from celeriac.connectors.mcp_config import HttpServer
from celeriac.connectors.mcp_grants import GrantEnded, Grants
from celeriac.connectors.mcp_http import FaultKind, NotAuthorised
from celeriac.connectors.mcp_tokens import TokenFile, TokenRecord
from celeriac.connectors.redactor import Redactor
from celeriac.sessions.errors import ConfigurationError

__all__ = ["ServerAuth", "login_command"]


def login_command(name: str) -> str:
    """Return what to type to log in to a server.

    Args:
        name: The server's name.
    """
    return f"celeriac mcp login {name}"


class ServerAuth(httpx2.Auth):
    """Signs the requests of one session with the token of its server; never asks a person.

    Args:
        name: The server's name.
        server: The server; it has `oauth`.
        values: The values by variable of the worker.
        file: Where its tokens are.
        redact: Learns each token.
    """

    def __init__(
        self,
        name: str,
        server: HttpServer,
        values: Mapping[str, str],
        file: TokenFile,
        redact: Redactor,
    ) -> None:
        self._name = name
        self._server = server
        self._file = file
        self._redact = redact
        self._grants = Grants(server, values, redact)
        self._asks_a_person = server.oauth is not None and server.oauth.is_login
        self._renewals: set[asyncio.Task[TokenRecord]] = set()

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Sign a request; once more with another token if the server does not take the first.

        Raises:
            NotAuthorised: There is no token that the server takes.
        """
        used = await self._ready()
        response = yield _signed(request, used)
        if not _is_refusal(response):
            return
        used = await self._to_the_end(self._renewed(request, used, response))
        response = yield _signed(request, used)
        if response.status_code == 401 and self._asks_a_person:
            raise self._login_needed("it does not take the token of the last login")
        if response.status_code == 403 and _is_refusal(response):
            wanted = extract_scope_from_www_auth(response)
            raise NotAuthorised(
                f"its token does not allow this, even with the scope {wanted!r}", FaultKind.REFUSED
            )

    async def _ready(self) -> TokenRecord | None:
        """Return a token for the first try; None leaves it to the server to say what it wants."""
        record = self._load()
        if record is not None and not record.is_stale():
            return record
        if not self._asks_a_person:
            return None if record is None or record.is_expired() else record
        if record is None or record.access_token is None:
            raise self._login_needed("nobody has logged in to it")
        if record.refresh_token is not None:
            return await self._to_the_end(self._refreshed(record, was_refused=False))
        if record.is_expired():
            raise self._login_needed("its login has expired")
        return record

    async def _to_the_end(self, renewal: Coroutine[None, None, TokenRecord]) -> TokenRecord:
        # A renewal that began goes on though its request be given up: the old token may be used up already.
        task = asyncio.create_task(renewal, name=f"mcp-oauth-{self._name}")
        self._renewals.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[TokenRecord]) -> None:
        self._renewals.discard(task)
        if not task.cancelled():
            task.exception()  # whoever still waits has it

    async def _renewed(
        self, request: httpx2.Request, used: TokenRecord | None, response: httpx2.Response
    ) -> TokenRecord:
        if not self._asks_a_person:
            return await self._granted(request, used, response)
        if used is None:
            raise self._login_needed("nobody has logged in to it")
        if response.status_code == 401:
            return await self._refreshed(used, was_refused=True)
        return await self._asked_for_more(used, extract_scope_from_www_auth(response))

    async def _refreshed(self, old: TokenRecord, *, was_refused: bool) -> TokenRecord:
        async with self._locked():
            record = self._load()
            if record is None:
                raise self._login_needed("its tokens were deleted")
            if record.access_token != old.access_token and not record.is_expired():
                return record  # another worker was here
            if record.refresh_token is None:
                raise self._login_needed("its login has expired")
            try:
                new = await self._grants.refreshed(record)
            except GrantEnded as error:
                self._file.delete()
                raise self._login_needed(f"its login has ended ({error})") from None
            except NotAuthorised:
                if was_refused or record.is_expired():
                    raise
                return record
            return self._kept(new)

    async def _granted(
        self, request: httpx2.Request, used: TokenRecord | None, response: httpx2.Response
    ) -> TokenRecord:
        async with self._locked():
            record = self._load()
            if record is not None and not record.is_expired():
                is_new = used is None or record.access_token != used.access_token
                if is_new and _covers(record, response):
                    return record
            if response.status_code == 403 and used is not None and _covers(used, response):
                raise NotAuthorised(
                    f"its token does not allow this, even with the scope {used.scope!r}",
                    FaultKind.REFUSED,
                )
            return self._kept(await self._grants.granted(record, request, response))

    async def _asked_for_more(self, used: TokenRecord, wanted: str | None) -> TokenRecord:
        async with self._locked():
            record = self._load()
            if record is not None and record.access_token != used.access_token:
                return record
            if record is not None:
                more = union_scopes(record.wanted_scope, wanted)
                self._file.save(record.model_copy(update={"wanted_scope": more}))
        what = f" ({wanted})" if wanted else ""
        raise NotAuthorised(
            f"it wants more rights than the last login gave{what}; to give them, run `{login_command(self._name)}`",
            FaultKind.REFUSED,
        )

    def _load(self) -> TokenRecord | None:
        try:
            record = self._file.load()
        except ConfigurationError as error:
            raise NotAuthorised(str(error)) from None
        if record is not None:
            self._redact.learn(record.secrets())
        return record

    def _kept(self, record: TokenRecord) -> TokenRecord:
        self._redact.learn(record.secrets())
        self._file.save(record)
        return record

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        limit = self._server.connect_seconds
        try:
            # Twice: who holds it asks the authorisation server within the limit.
            async with self._file.locked(2 * limit):
                yield
        except TimeoutError:
            raise NotAuthorised(
                f"another worker is renewing its token for more than {2 * limit:g} s"
            ) from None
        except ConfigurationError as error:
            raise NotAuthorised(str(error)) from None

    def _login_needed(self, why: str) -> NotAuthorised:
        return NotAuthorised(f"{why}: run `{login_command(self._name)}` on this worker's machine")


def _signed(request: httpx2.Request, record: TokenRecord | None) -> httpx2.Request:
    if record is not None:
        request.headers["Authorization"] = f"Bearer {record.access_token}"
    return request


def _is_refusal(response: httpx2.Response) -> bool:
    """Whether another token might help."""
    return response.status_code == 401 or (
        response.status_code == 403
        and extract_field_from_www_auth(response, "error") == "insufficient_scope"
    )


def _covers(record: TokenRecord, response: httpx2.Response) -> bool:
    """Whether a token has the scopes that the server wants."""
    if response.status_code == 401:
        return True
    wanted = extract_scope_from_www_auth(response)
    return wanted is not None and set(wanted.split()) <= set((record.scope or "").split())
