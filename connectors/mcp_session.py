"""One session with an MCP server: from its handshake to its end, owned by one asyncio task."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

from mcp import Client
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import SubscriptionLost, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import Implementation, ServerCapabilities, ToolListChangedNotification
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from celeriac.connectors.mcp_config import McpServer, StdioServer, values_of
from celeriac.connectors.mcp_http import HttpTransport
from celeriac.connectors.mcp_oauth import ServerAuth
from celeriac.connectors.mcp_processes import Reaper
from celeriac.connectors.mcp_stdio import StdioTransport
from celeriac.connectors.mcp_tap import Tap, TappedTransport
from celeriac.connectors.mcp_tokens import token_file, token_folder
from celeriac.connectors.redactor import Redactor
from celeriac.sessions.settings import load_settings

__all__ = ["McpSession", "ServerUnavailable"]

_log = logging.getLogger(__name__)

# At INFO they log each request with its address, which may hold a key, and the ids of sessions.
for _name in ("httpx2", "mcp"):
    logging.getLogger(_name).setLevel(logging.WARNING)

_CLOSE_SECONDS = 8.0
_SHOWN_TAIL = 400


class ServerUnavailable(Exception):
    """A server cannot be used just now; nothing was asked of it."""


class McpSession:
    """A session that is open, opening or over.

    Its transport and client are entered and left in one task of its own, as they must be. Calls may come from
    any task of the loop.

    Args:
        name: The server's name.
        server: The server.
        reaper: Ends its process should this one die.

    Raises:
        ConfigurationError: A variable of the worker that it needs is not set any more.
    """

    def __init__(self, name: str, server: McpServer, reaper: Reaper) -> None:
        self.name = name
        self.server = server
        self.changes = 0
        """Counts the server's notices that its list of tools changed."""
        self.capabilities = ServerCapabilities()
        """What the server said that it has; known, and kept, from the handshake on."""
        self.is_modern = False
        """Whether it speaks 2026-07-28 or newer; known from the handshake on."""
        values = values_of(name, server)
        self.redact = Redactor(values.values())
        self._transport = _transport(name, server, values, self.redact, reaper)
        self.tap = Tap(name, self._ended)
        self.client = Client(
            TappedTransport(self._transport.run(), self.tap),
            mode="legacy" if server.protocol == "legacy" else "auto",
            cache=None,
            message_handler=self._came,
            client_info=Implementation(name="celeriac", version=version("celeriac")),
        )
        self._users = 0
        self._retired = False
        self._lost = False
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def usable(self) -> bool:
        """Whether a new call may use it."""
        return not (self._retired or self._over.is_set())

    @property
    def over(self) -> bool:
        """Whether it has ended, or is about to."""
        return self._over.is_set()

    @property
    def lost(self) -> bool:
        """Whether nothing more can come from the server."""
        return self._lost

    async def open(self) -> None:
        """Start or reach the server and shake hands.

        Raises:
            ServerUnavailable: It could not be done in time, or not at all; the message says why.
        """
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._own(ready), name=f"mcp-{self.name}")
        limit = self.server.connect_seconds
        try:
            async with asyncio.timeout(limit):
                await asyncio.shield(ready)
        except TimeoutError:
            await self._abandon(ready)
            raise ServerUnavailable(self.told(f"it was not ready within {limit:g} s")) from None
        except asyncio.CancelledError:
            await self._abandon(ready)
            raise

    async def _abandon(self, ready: asyncio.Future[None]) -> None:
        ready.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=_CLOSE_SECONDS)

    def told(self, what: str) -> str:
        """Return a message without secrets, and with the end of what the server wrote to its stderr."""
        tail = self._transport.tail()
        said = f"; the end of its stderr: {tail[-_SHOWN_TAIL:]}" if tail else ""
        return f"{self.redact(what)}{said}"

    async def _own(self, ready: asyncio.Future[None]) -> None:
        try:
            async with self.client:
                self.capabilities = self.client.server_capabilities
                self.is_modern = self.client.protocol_version in MODERN_PROTOCOL_VERSIONS
                if not ready.done():
                    ready.set_result(None)
                await self._stay()
        except Exception as error:  # noqa: BLE001 - a program, a network, a stranger's code: whatever it is
            if ready.done():
                told = self.told(f"its session ended: {_words(error)}")
                _log.warning("MCP server %s: %s", self.name, told)
            else:
                ready.set_exception(ServerUnavailable(self.told(_words(error))))
        finally:
            if not ready.done():
                ready.cancel()
            self._over.set()

    async def _stay(self) -> None:
        if not (self.is_modern and self.announces_changes):
            await self._over.wait()
            return
        listener = asyncio.create_task(self._listen())
        try:
            await self._over.wait()
        finally:
            listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listener

    async def _listen(self) -> None:
        """From 2026-07-28 on a server tells of changes only whom subscribed."""
        while True:
            try:
                async with self.client.listen(tools_list_changed=True) as changes:
                    # Whatever changed before it was heard is read anew.
                    self.changes += 1
                    async for change in changes:
                        self.changes += isinstance(change, ToolsListChanged)
            except (MCPError, SubscriptionLost, TimeoutError) as error:
                _log.info("MCP server %s: its changes are not heard: %s", self.name, error)
            await asyncio.sleep(self.server.list_seconds)

    @property
    def announces_changes(self) -> bool:
        """Whether the server says that it tells of changes of its tools."""
        tools = self.capabilities.tools
        return tools is not None and bool(tools.list_changed)

    async def _came(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self.changes += 1

    def _ended(self) -> None:
        self._lost = True
        self._over.set()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Keep the session open for a call, though it be retired meanwhile."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._settle()

    def retire(self) -> None:
        """Take no new call; the session ends with the last of those that it has."""
        self._retired = True
        self._settle()

    def _settle(self) -> None:
        if self._retired and self._users == 0:
            self._over.set()

    async def close(self) -> None:
        """End the session at once, the server's process included."""
        self._over.set()
        task = self._task
        if task is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await asyncio.shield(task)
        except TimeoutError:
            task.cancel()
            await asyncio.wait([task], timeout=_CLOSE_SECONDS)


def _transport(
    name: str,
    server: McpServer,
    values: dict[str, str],
    redact: Redactor,
    reaper: Reaper,
) -> StdioTransport | HttpTransport:
    if isinstance(server, StdioServer):
        environment = {name: values[variable] for name, variable in server.env.items()}
        return StdioTransport(name, server, environment, redact, reaper)
    headers = {name: values[variable] for name, variable in server.headers.items()}
    if server.oauth is None:
        return HttpTransport(server, headers, redact)
    file = token_file(token_folder(load_settings()), name, server, values)
    return HttpTransport(server, headers, redact, ServerAuth(name, server, values, file, redact))


def _words(error: BaseException) -> str:
    """Say what went wrong; the SDK wraps it in groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
