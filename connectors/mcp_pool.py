"""The MCP servers of one worker process: at most one session with each, opened at first use, shared by all."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine
from typing import Generic, TypeVar

from jsonschema.protocols import Validator
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from celeriac.connectors.mcp_catalogue import Catalogue, list_all_tools
from celeriac.connectors.mcp_config import McpServer
from celeriac.connectors.mcp_processes import Reaper
from celeriac.connectors.mcp_session import McpSession, ServerUnavailable
from celeriac.sessions.errors import CeleriacError

__all__ = ["McpPool", "PooledServer"]

_log = logging.getLogger(__name__)

_SHARE = 4
_LONGEST_PAUSE_SECONDS = 10.0
_HEALTH_SECONDS = 5.0

Result = TypeVar("Result")


class _Shared(Generic[Result]):
    """One attempt at something that all who want it wait for; after a failure there is a pause.

    The pause is four times what the attempt took, so that servers that are down cost no more than a fifth of a
    worker's time, whatever way they fail; and ten seconds at most.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[Result] | None = None
        self._began = 0.0
        self._not_before = 0.0
        self._error = ""

    async def get(
        self, attempt: Coroutine[object, object, Result], patience: float | None
    ) -> Result:
        """Wait for the attempt in progress, or begin this one.

        Args:
            attempt: Begun only if none is in progress.
            patience: Seconds from the beginning of the attempt after which the wait ends; None waits.

        Raises:
            ServerUnavailable: It failed, lately or now, or takes too long.
        """
        task = self._task
        if task is not None:
            attempt.close()
        elif time.monotonic() < self._not_before:
            attempt.close()
            raise ServerUnavailable(self._error)
        else:
            self._began = time.monotonic()
            task = self._task = asyncio.create_task(self._run(attempt))
            # Somebody may have waited in vain and gone.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        left = None if patience is None else max(0.0, self._began + patience - time.monotonic())
        done, _ = await asyncio.wait([task], timeout=left)
        if not done:
            raise ServerUnavailable(f"not ready after {patience:g} s; it is waited for meanwhile")
        return task.result()

    async def _run(self, attempt: Coroutine[object, object, Result]) -> Result:
        try:
            return await attempt
        except (ServerUnavailable, CeleriacError) as error:
            self._error = str(error)
            took = time.monotonic() - self._began
            self._not_before = time.monotonic() + min(_SHARE * took, _LONGEST_PAUSE_SECONDS)
            raise ServerUnavailable(self._error) from None
        finally:
            self._task = None

    async def stop(self) -> None:
        """End an attempt that is in progress."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


class PooledServer:
    """One server, as this process knows it.

    Args:
        name: Its name.
        server: What the configuration says of it.
        reaper: Ends its process should this one die.
    """

    def __init__(self, name: str, server: McpServer, reaper: Reaper) -> None:
        self.name = name
        self.server = server
        self.slots = asyncio.Semaphore(server.max_concurrent_calls)
        self._reaper = reaper
        self._session: McpSession | None = None
        self._sessions: set[McpSession] = set()
        self._opening: _Shared[McpSession] = _Shared()
        self._listing: _Shared[Catalogue] = _Shared()
        self._catalogue: Catalogue | None = None
        self._listed_by: tuple[McpSession, int, int] | None = None
        self._forgotten = 0
        self._fresh_until = 0.0
        self._checks: set[asyncio.Task[None]] = set()

    async def session(self) -> McpSession:
        """Return the current session; open one if there is none. Those who ask meanwhile share it.

        Raises:
            ServerUnavailable: There cannot be one just now.
        """
        if self._session is not None and self._session.usable:
            return self._session
        return await self._opening.get(self._open(), None)

    async def _open(self) -> McpSession:
        session = McpSession(self.name, self.server, self._reaper)
        await session.open()
        self._session = session
        self._sessions = {one for one in self._sessions if not one.over} | {session}
        return session

    async def catalogue(self, patience_seconds: float | None = None) -> Catalogue:
        """Return the server's tools: those known, or a new list where they may have changed.

        Args:
            patience_seconds: How long to wait for a list; None is as long as it takes.

        Raises:
            ServerUnavailable: They cannot be listed just now.
        """
        if self._catalogue is not None and self._is_fresh():
            return self._catalogue
        catalogue = await self._listing.get(self._list(), patience_seconds)
        if self._is_fresh():
            return catalogue
        # Something changed while it was listed, perhaps before the server looked.
        return await self._listing.get(self._list(), patience_seconds)

    def _is_fresh(self) -> bool:
        session = self._session
        return (
            session is not None
            and session.usable
            and self._listed_by == (session, session.changes, self._forgotten)
            and time.monotonic() < self._fresh_until
        )

    async def _list(self) -> Catalogue:
        session = await self.session()
        listed_by = (session, session.changes, self._forgotten)
        limit = self.server.connect_seconds
        try:
            with session.used():
                async with asyncio.timeout(limit):
                    catalogue = await list_all_tools(session)
        except TimeoutError:
            session.retire()
            raise ServerUnavailable(f"no list of its tools within {limit:g} s") from None
        except MCPError as error:
            session.retire()
            why = session.redact(error.message)
            raise ServerUnavailable(f"its tools cannot be listed: {why}") from None
        except ValidationError as error:
            why = error.errors(include_url=False, include_input=False)[0]["msg"]
            raise ServerUnavailable(f"its list of tools cannot be read: {why}") from None
        seconds = self.server.list_seconds
        if catalogue.seconds is not None:
            seconds = min(seconds, max(catalogue.seconds, 1.0))
        self._catalogue, self._listed_by = catalogue, listed_by
        self._fresh_until = time.monotonic() + seconds
        return catalogue

    @property
    def has_resources(self) -> bool:
        """Whether it is connected and said that it has resources or prompts."""
        session = self._session
        if session is None or session.over:
            return False
        capabilities = session.capabilities
        return capabilities.resources is not None or capabilities.prompts is not None

    def was_listed_by(self, session: McpSession) -> bool:
        """Whether the known tools come from this session."""
        return self._listed_by is not None and self._listed_by[0] is session

    def output_check(self, tool: str) -> Validator | None:
        """Return the check of a tool's structured content, if it declares a schema of it."""
        return None if self._catalogue is None else self._catalogue.outputs.get(tool)

    def forget_catalogue(self) -> None:
        """List the tools anew when they are next wanted."""
        self._forgotten += 1

    def check_health(self, session: McpSession) -> None:
        """Look, meanwhile, whether a server that let a call run out of time still answers.

        If not, its session takes no new calls, and the next one starts the server again.
        """
        check = asyncio.create_task(self._check_health(session))
        self._checks.add(check)
        check.add_done_callback(self._checks.discard)

    async def _check_health(self, session: McpSession) -> None:
        try:
            async with asyncio.timeout(_HEALTH_SECONDS):
                await session.client.list_tools()
        except TimeoutError:
            _log.warning("MCP server %s answers nothing any more; it is connected anew", self.name)
            session.retire()
        except (MCPError, ValidationError):
            pass  # that is an answer, or its connection is known to have ended

    async def close(self) -> None:
        """End its sessions."""
        await self._listing.stop()
        await self._opening.stop()
        for check in self._checks:
            check.cancel()
        for session in self._sessions:
            with contextlib.suppress(Exception):  # each is to be ended
                await session.close()
        self._sessions.clear()
        self._session = None


class McpPool:
    """The servers of one event loop."""

    def __init__(self) -> None:
        self._servers: dict[str, PooledServer] = {}
        self._reaper = Reaper()

    def server(self, name: str, server: McpServer) -> PooledServer:
        """Return the server of that name."""
        known = self._servers.get(name)
        if known is None:
            known = self._servers[name] = PooledServer(name, server, self._reaper)
        return known

    async def close(self) -> None:
        """End all sessions and processes."""
        await asyncio.gather(*(server.close() for server in self._servers.values()))
        self._servers.clear()
        self._reaper.close()
