"""The stdio transport: a program of its own process group, one JSON-RPC message on each line.

The SDK's own is not used because it does not say which process it started, does not read the program's
stderr, and logs each line that is no message with a traceback.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from celeriac.connectors.mcp_config import StdioServer
from celeriac.connectors.mcp_processes import Reaper, end_process, find_program
from celeriac.connectors.redactor import Redactor

__all__ = ["MAX_MESSAGE_BYTES", "StdioTransport"]

_log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
"""Longest single message that is taken from a server."""
_CHUNK_BYTES = 256 * 1024
_TAIL_BYTES = 4096
_WARNINGS = 5

FromServer = MemoryObjectReceiveStream[SessionMessage | Exception]
ToServer = MemoryObjectSendStream[SessionMessage]
Streams = tuple[FromServer, ToServer]


class StdioTransport:
    """One run of a server's program.

    Args:
        name: The server's name, for messages.
        server: What to start.
        environment: The variables that it gets on top of the few that are safe to inherit.
        redact: Takes secrets out of what is logged or shown.
        reaper: Ends it should this process die.
    """

    def __init__(
        self,
        name: str,
        server: StdioServer,
        environment: dict[str, str],
        redact: Redactor,
        reaper: Reaper,
    ) -> None:
        self._name = name
        self._server = server
        self._environment = get_default_environment() | environment
        self._redact = redact
        self._reaper = reaper
        self._tail = bytearray()
        self._warnings = 0

    def tail(self) -> str:
        """Return the end of what the program wrote to its stderr."""
        return self._redact(bytes(self._tail).decode(errors="replace")).strip()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Streams]:
        """Start the program and talk to it; leaving ends it with all that it started.

        Yields:
            The messages from it, and where to put those for it.

        Raises:
            OSError: It cannot be started.
        """
        process = await self._start()
        # Nothing is awaited before `try`: a cancellation there would leave the process behind.
        self._reaper.watch(process.pid)
        read_in, read_out = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write_in, write_out = anyio.create_memory_object_stream[SessionMessage](0)
        stdin, stdout, stderr = _pipes(process)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, stdout, read_in)
            tasks.start_soon(self._write, stdin, write_out, read_in)
            tasks.start_soon(self._drain, stderr)
            try:
                yield read_out, write_in
            finally:
                with anyio.CancelScope(shield=True):
                    # The reader goes on without a taker: a program that is stuck in writing cannot end.
                    read_out.close()
                    write_in.close()
                    stdin.close()
                    await end_process(process)
                self._reaper.forget(process.pid)
                tasks.cancel_scope.cancel()
                _close(process)
                for stream in (read_in, write_out):
                    stream.close()

    async def _start(self) -> asyncio.subprocess.Process:
        server = self._server
        program = find_program(server.command, self._environment.get("PATH", os.defpath))
        try:
            return await asyncio.create_subprocess_exec(
                program,
                *server.args,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environment,
                cwd=server.cwd,
                start_new_session=True,
                limit=_CHUNK_BYTES,
            )
        except OSError as error:
            what = error.filename or server.command
            raise OSError(f"it cannot be started: {what}: {error.strerror}") from error

    async def _read(
        self,
        stdout: asyncio.StreamReader,
        taker: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        async with taker:
            try:
                async for line in _lines(stdout):
                    message = self._parsed(line)
                    if message is not None:
                        await taker.send(message)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # the session has ended
            except (OSError, ValueError) as error:
                _log.warning("MCP server %s: its output cannot be read: %s", self._name, error)
        while await stdout.read(_CHUNK_BYTES):
            pass

    def _parsed(self, line: bytes) -> SessionMessage | None:
        if not line.strip():
            return None
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            self._warnings += 1
            if self._warnings <= _WARNINGS:
                shown = self._redact(line[:120].decode(errors="replace"))
                _log.warning(
                    "MCP server %s: a line of %d bytes on its stdout is no message and is skipped: %r",
                    self._name,
                    len(line),
                    shown,
                )
            return None

    async def _write(
        self,
        stdin: asyncio.StreamWriter,
        messages: MemoryObjectReceiveStream[SessionMessage],
        reader: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        try:
            async with messages:
                async for message in messages:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    stdin.write(text.encode() + b"\n")
                    await stdin.drain()
        except OSError:
            # It takes nothing more: the session sees the end, though the program may live.
            reader.close()

    async def _drain(self, stderr: asyncio.StreamReader) -> None:
        while chunk := await stderr.read(_CHUNK_BYTES):
            self._tail = (self._tail + chunk[-_TAIL_BYTES:])[-_TAIL_BYTES:]


async def _lines(stdout: asyncio.StreamReader) -> AsyncIterator[bytes]:
    parts: list[bytes] = []
    size = 0
    while chunk := await stdout.read(_CHUNK_BYTES):
        *ended, rest = chunk.split(b"\n")
        for end in ended:
            yield b"".join([*parts, end])
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > MAX_MESSAGE_BYTES:
            raise ValueError(f"a line is longer than {MAX_MESSAGE_BYTES:,} bytes")


def _pipes(
    process: asyncio.subprocess.Process,
) -> tuple[asyncio.StreamWriter, asyncio.StreamReader, asyncio.StreamReader]:
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise AssertionError("it is started with three pipes")
    return process.stdin, process.stdout, process.stderr


def _close(process: asyncio.subprocess.Process) -> None:
    """Close the pipes even where something that left the process group holds their other ends."""
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio has no public way
