"""One request to an MCP server: within its limits, with its progress, and with an honest end.

The ends, for a call that may run only once as for any other:

==========================================  ==================================================================
the server answered, also with an error     a result, or `ToolFailed`
it certainly ran nothing                    once more where a new session may help, then `ToolNotRun`
it is not known whether anything ran        `LostCall`: the step's rules decide, never this module
==========================================  ==================================================================
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar, cast

from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    RequestParamsMeta,
)
from pydantic import JsonValue, TypeAdapter, ValidationError

from celeriac.connectors.mcp_http import Fault, FaultKind, fault_of
from celeriac.connectors.mcp_pool import PooledServer
from celeriac.connectors.mcp_progress import Progress
from celeriac.connectors.mcp_results import tool_result
from celeriac.connectors.mcp_session import McpSession, ServerUnavailable
from celeriac.connectors.mcp_tap import IDEMPOTENCY_KEY, Handed
from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.errors import ToolFailed, ToolNotRun
from celeriac.sessions.tools import ToolContext, ToolDefinition, ToolResult

__all__ = ["LostCall", "call_tool", "meta_of", "request"]

_ANSWER: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(
    CallToolResult | InputRequiredResult
)

_LOOK_SECONDS = 0.25
_ONE_STREAM = "SSE stream"
"""How the SDK's error begins when the answer to one request was cut, and no other is touched."""

Answer = TypeVar("Answer")
Send = Callable[[McpSession, Progress], Awaitable[Answer]]


class LostCall(Exception):
    """The call was sent and its end is not known."""


class _Expired(Exception):
    """The server ran nothing because the session is no more; a new one may help."""


async def call_tool(
    server: PooledServer,
    tool: ToolDefinition,
    arguments: Mapping[str, JsonValue],
    context: ToolContext,
) -> ToolResult:
    """Make one attempt of a tool call.

    Args:
        server: The server.
        tool: The tool as it was found, and maybe approved.
        arguments: Its arguments.
        context: The call's context.

    Returns:
        What the tool returned, or said of its failure.

    Raises:
        ToolFailed: The server refused the call with an error of its own.
        ToolNotRun: It certainly did not run.
        LostCall: Whether it ran is not known.
    """
    name = tool.original_name or tool.name

    async def send(session: McpSession, progress: Progress) -> CallToolResult | InputRequiredResult:
        if not server.was_listed_by(session):
            await _check_unchanged(server, tool)
        params = CallToolRequestParams(name=name, arguments=dict(arguments), _meta=meta_of(context))
        return await session.client.session.send_request(
            CallToolRequest(params=params), _ANSWER, progress_callback=progress.came
        )

    reads = tool.effect is ToolEffect.READ
    answer = await request(server, send, context, may_stop=reads)
    if isinstance(answer, InputRequiredResult):
        raise ToolFailed("the tool asks for input while it runs, which is not supported here")
    return tool_result(answer, server.output_check(name))


def meta_of(context: ToolContext) -> RequestParamsMeta:
    """Return what is sent along with a request."""
    return cast("RequestParamsMeta", {IDEMPOTENCY_KEY: context.idempotency_key})


async def _check_unchanged(server: PooledServer, tool: ToolDefinition) -> None:
    """A server that was started anew may be another: what runs must still be what was shown."""
    try:
        catalogue = await server.catalogue()
    except ServerUnavailable as error:
        raise ToolNotRun(f"MCP server {server.name}: {error}") from None
    now = catalogue.tool(tool.original_name)
    if now is None or dataclasses.replace(now, name=tool.name).digest != tool.digest:
        raise ToolNotRun(f"MCP server {server.name} was started anew and its tool changed")


async def request(
    server: PooledServer, send: Send[Answer], context: ToolContext, *, may_stop: bool = True
) -> Answer:
    """Send one request within the server's limits, and once more if it certainly met an ended session.

    Args:
        server: The server.
        send: Sends it on a session.
        context: The call's context.
        may_stop: Whether it ends when a person stops the turn; a write goes on, so that its outcome is known.

    Raises:
        ToolFailed, ToolNotRun, LostCall: See `call_tool`.
    """
    deadline = asyncio.get_running_loop().time() + server.server.total_seconds
    async with _slot(server, deadline):
        try:
            return await _attempt(server, send, context, deadline, may_stop=may_stop)
        except _Expired:
            pass
        try:
            return await _attempt(server, send, context, deadline, may_stop=may_stop)
        except _Expired as error:
            raise ToolNotRun(f"MCP server {server.name}: {error}, nor a new one") from None


@asynccontextmanager
async def _ended_by(stop: threading.Event | None) -> AsyncIterator[None]:
    """Cancel what runs in the block when the event is set."""
    task = asyncio.current_task()
    if stop is None or task is None:
        yield
        return
    stopped = False

    async def watch(event: threading.Event) -> None:
        nonlocal stopped
        while not event.is_set():
            await asyncio.sleep(_LOOK_SECONDS)
        stopped = True
        task.cancel()

    watcher = asyncio.create_task(watch(stop))
    try:
        yield
    except asyncio.CancelledError:
        if not stopped:
            raise
        task.uncancel()
        raise LostCall("it was stopped") from None
    finally:
        watcher.cancel()


@asynccontextmanager
async def _slot(server: PooledServer, deadline: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout_at(deadline):
            await server.slots.acquire()
    except TimeoutError:
        most = server.server.max_concurrent_calls
        raise ToolNotRun(f"MCP server {server.name} is busy with {most} other calls") from None
    try:
        yield
    finally:
        server.slots.release()


async def _attempt(
    server: PooledServer,
    send: Send[Answer],
    context: ToolContext,
    deadline: float,
    *,
    may_stop: bool,
) -> Answer:
    session = await _session(server, deadline)
    with session.used(), session.tap.watched(context.idempotency_key) as handed:
        try:
            stop = context.cancelled if may_stop else None
            attempt = _Attempt(server, session, handed, deadline, stop)
            return await _within_limits(attempt, send, context.report_progress)
        except MCPError as error:
            raise _sorted(server, session, handed, error) from error
        except ValidationError as error:
            what = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in what["loc"])
            raise LostCall(
                f"MCP server {server.name} answered what the protocol does not allow: {where}: {what['msg']}"
            ) from None


async def _session(server: PooledServer, deadline: float) -> McpSession:
    try:
        async with asyncio.timeout_at(deadline):
            return await server.session()
    except TimeoutError:
        why = "it was not ready in time"
    except ServerUnavailable as error:
        why = str(error)
    raise ToolNotRun(f"MCP server {server.name}: {why}")


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt, on one session."""

    server: PooledServer
    session: McpSession
    handed: Handed
    deadline: float
    """By the loop's clock."""
    stop: threading.Event | None
    """Ends it when it is set."""


async def _within_limits(
    attempt: _Attempt, send: Send[Answer], show: Callable[[str], None]
) -> Answer:
    server, deadline = attempt.server, attempt.deadline
    idle, total = server.server.idle_seconds, server.server.total_seconds
    now = asyncio.get_running_loop().time
    limit = asyncio.timeout_at(min(deadline, now() + idle))

    def alive() -> None:
        if not limit.expired():
            limit.reschedule(min(deadline, now() + idle))

    progress = Progress(show, alive)
    try:
        # The end of its time cancels the request, and the SDK then tells the server so.
        async with limit, _ended_by(attempt.stop):
            return await send(attempt.session, progress)
    except TimeoutError:
        if not limit.expired():
            raise
        server.check_health(attempt.session)
        why = (
            f"no end within {total:g} s" if now() >= deadline else f"no sign of life for {idle:g} s"
        )
        told = f"MCP server {server.name}: {why}"
        raise (LostCall(told) if attempt.handed.over else ToolNotRun(told)) from None
    finally:
        await progress.close()


def _sorted(
    server: PooledServer, session: McpSession, handed: Handed, error: MCPError
) -> Exception:
    """Say what an error means for the call."""
    fault = fault_of(error)
    if fault is not None:
        return _of_fault(server, session, fault)
    told = f"MCP server {server.name}: {session.redact(error.message)}"
    if error.code == HEADER_MISMATCH and session.is_modern:
        # The server compares the request with the tool's present schema before it runs anything.
        server.forget_catalogue()
        return ToolNotRun(told)
    if not _is_ours(session, error):
        return ToolFailed(session.redact(error.message) or f"error {error.code} without a message")
    if not error.message.startswith(_ONE_STREAM):
        session.retire()
        told = f"MCP server {server.name}: {session.told(error.message)}"
    return LostCall(told) if handed.over else _Expired(told)


def _of_fault(server: PooledServer, session: McpSession, fault: Fault) -> Exception:
    told = f"MCP server {server.name}: {fault.message}"
    if fault.kind is FaultKind.LOST:
        return LostCall(told)
    if fault.kind in (FaultKind.NOT_SENT, FaultKind.UNAUTHORISED):
        # If it is down, or somebody has to log in, the next model call goes without its tools.
        server.forget_catalogue()
    if fault.kind is FaultKind.EXPIRED:
        session.retire()
        return _Expired(fault.message)
    return ToolNotRun(told, retry_after_seconds=fault.retry_after_seconds)


def _is_ours(session: McpSession, error: MCPError) -> bool:
    """Whether the SDK made the error because the connection ended; servers use its number for their own."""
    return error.code == CONNECTION_CLOSED and (
        session.lost
        or error.message == "Connection closed"
        or error.message.startswith(_ONE_STREAM)
    )
