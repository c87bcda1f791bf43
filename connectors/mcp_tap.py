"""What passes between a session and its transport is seen here.

Three things need it: whether a call was handed over, so that one which was not is safe to make again; the end of
the connection; and lists of tools, of which the SDK drops all when it does not understand one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from types import TracebackType
from typing import Self

import anyio
from mcp.client._transport import TransportStreams
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, JSONRPCResponse, RequestId
from pydantic import JsonValue

__all__ = ["IDEMPOTENCY_KEY", "Handed", "Tap", "TappedTransport", "usable_tools"]

_log = logging.getLogger(__name__)

IDEMPOTENCY_KEY = "celeriac/idempotencyKey"
"""Key in a call's ``_meta``; its value is equal on every attempt of the call."""


class Handed:
    """Whether a call was given to the transport."""

    def __init__(self) -> None:
        self.over = False


class Tap:
    """Watches one session's messages.

    Args:
        name: The server's name, for messages.
        on_end: Called when nothing more can come from the server.
    """

    def __init__(self, name: str, on_end: Callable[[], None]) -> None:
        self._name = name
        self._on_end = on_end
        self._calls: dict[str, Handed] = {}
        self._listings: set[RequestId] = set()

    @contextmanager
    def watched(self, key: str) -> Iterator[Handed]:
        """Watch for the call with this idempotency key."""
        handed = self._calls[key] = Handed()
        try:
            yield handed
        finally:
            del self._calls[key]

    def leaving(self, message: SessionMessage) -> Handed | None:
        """A message is about to be given to the transport; return the call that it is."""
        request = message.message
        if not isinstance(request, JSONRPCRequest):
            return None
        if request.method == "tools/list":
            self._listings.add(request.id)
        if request.params is None:
            return None
        meta = request.params.get("_meta")
        return self._calls.get(str(meta.get(IDEMPOTENCY_KEY))) if isinstance(meta, dict) else None

    def came(self, message: SessionMessage | Exception) -> None:
        """A message came from the server."""
        if isinstance(message, Exception):
            _log.debug("MCP server %s: its transport says %r", self._name, message)
            return
        reply = message.message
        if isinstance(reply, JSONRPCResponse) and reply.id in self._listings:
            self._listings.discard(reply.id)
            tools = reply.result.get("tools")
            if isinstance(tools, list):
                reply.result["tools"] = usable_tools(self._name, tools)

    def ended(self) -> None:
        """Nothing more comes."""
        self._on_end()


def usable_tools(server: str, tools: list[JsonValue]) -> list[dict[str, JsonValue]]:
    """Leave out what is no tool, and of each tool what is not as it should be.

    Args:
        server: The server's name, for warnings.
        tools: A page of its list, as it came.

    Returns:
        The tools, each of a form that the SDK takes.
    """
    kept = []
    for tool in tools:
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(tool, dict) or not isinstance(name, str) or not name:
            _log.warning("MCP server %s lists a tool without a name; it is left out", server)
            continue
        cleaned, faults = _cleaned(tool)
        for fault in faults:
            _log.warning("MCP server %s, tool %r: %s", server, name[:100], fault)
        if cleaned is not None:
            kept.append(cleaned)
    return kept


def _cleaned(
    tool: dict[str, JsonValue],
) -> tuple[dict[str, JsonValue] | None, list[str]]:
    faults = []
    cleaned: dict[str, JsonValue] = {"name": tool["name"]}
    for key in ("title", "description"):
        if isinstance(tool.get(key), str):
            cleaned[key] = tool[key]
    schema = tool.get("inputSchema")
    if not isinstance(schema, dict):
        if schema is not None:
            return None, ["its input schema is no object, so it is left out"]
        faults.append("it has no input schema; it is taken to need no arguments")
        schema = {}
    if schema.get("type", "object") != "object":
        return None, [f"its arguments are of type {schema['type']!r}, so it is left out"]
    cleaned["inputSchema"] = {**schema, "type": "object"}
    output = tool.get("outputSchema")
    if isinstance(output, dict):
        cleaned["outputSchema"] = output
    elif output is not None:
        faults.append("its output schema is no object and is ignored")
    hints = tool.get("annotations")
    if isinstance(hints, dict):
        # A hint is true or false; the SDK would also take "yes" for true.
        known = {"title": str}
        kept = {key: hint for key, hint in hints.items() if isinstance(hint, known.get(key, bool))}
        if len(kept) < len(hints):
            faults.append("some of its annotations are neither true nor false and are ignored")
        cleaned["annotations"] = kept
    return cleaned, faults


class TappedTransport:
    """A transport whose messages a `Tap` sees."""

    def __init__(self, inner: AbstractAsyncContextManager[TransportStreams], tap: Tap) -> None:
        self._inner = inner
        self._tap = tap

    async def __aenter__(self) -> TransportStreams:
        read, write = await self._inner.__aenter__()
        return _Read(read, self._tap), _Write(write, self._tap)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(exc_type, exc_value, traceback)


class _Stream:
    def __init__(self, inner: ReadStream[SessionMessage | Exception] | WriteStream[SessionMessage]):
        self._stream = inner

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_value, traceback)


class _Read(_Stream):
    def __init__(self, inner: ReadStream[SessionMessage | Exception], tap: Tap) -> None:
        super().__init__(inner)
        self._inner = inner
        self._tap = tap

    @property
    def last_context(self) -> object:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return await self.__anext__()

    def __aiter__(self) -> _Read:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            message = await self._inner.receive()
        except anyio.EndOfStream:
            self._tap.ended()
            raise StopAsyncIteration from None
        except anyio.ClosedResourceError:
            self._tap.ended()
            raise
        self._tap.came(message)
        return message


class _Write(_Stream):
    def __init__(self, inner: WriteStream[SessionMessage], tap: Tap) -> None:
        super().__init__(inner)
        self._inner = inner
        self._tap = tap

    async def send(self, item: SessionMessage, /) -> None:
        call = self._tap.leaving(item)
        if call is not None:
            # Before: it may be taken although the sender is cancelled meanwhile.
            call.over = True
        try:
            await self._inner.send(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            if call is not None:
                call.over = False
            raise
