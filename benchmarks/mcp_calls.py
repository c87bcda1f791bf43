"""Part 5: what a call of an MCP tool costs over a session that is open already."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from pathlib import Path

from mcp import Client, StdioServerParameters

from benchmarks.machinery import Row, ms, percentile, stop
from benchmarks.mcp_bare import Exchange, bare_http, bare_stdio
from celeriac.connectors.mcp_config import HttpServer, McpConfig, McpServer, StdioServer
from celeriac.connectors.mcp_source import McpToolSource
from celeriac.sessions.tools import ToolContext, ToolDefinition

__all__ = ["measure"]

_SCRIPT = str(Path(__file__).with_name("mcp_server.py"))
_TARGET_SECONDS = 0.005


def measure(*, scale: float) -> list[Row]:
    """Measure calls over stdio and Streamable HTTP.

    Args:
        scale: How much of the work to do.
    """
    count = max(50, round(1000 * scale))
    stdio = StdioServer(command=sys.executable, args=[_SCRIPT, "stdio"], trust_annotations=True)
    program = StdioServerParameters(command=sys.executable, args=[_SCRIPT, "stdio"])
    bare = bare_stdio([sys.executable, _SCRIPT, "stdio"])
    rows = asyncio.run(_rows("stdio", stdio, Client(program), bare, count))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, _SCRIPT, "http", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}/mcp"
        http = HttpServer(url=url, trust_annotations=True)
        return rows + asyncio.run(
            _rows("Streamable HTTP", http, Client(url), bare_http(port), count)
        )
    finally:
        stop(process)


async def _rows(
    name: str, server: McpServer, plain: Client, bare: AbstractContextManager[Exchange], count: int
) -> list[Row]:
    source = McpToolSource(config=McpConfig(path=None, servers={"bench": server}))
    try:
        began = time.monotonic()
        while not (tools := (await source.list_tools()).tools):
            await asyncio.sleep(0.05)  # it starts, or its port is not open yet
        started = time.monotonic() - began
        tool = next(tool for tool in tools if tool.original_name == "echo")
        ours, alone, answered = await _side_by_side(source, tool, plain, bare, count)
    finally:
        await source.aclose()
    return _told(name, started, ours, alone, answered)


async def _side_by_side(
    source: McpToolSource,
    tool: ToolDefinition,
    plain: Client,
    bare: AbstractContextManager[Exchange],
    count: int,
) -> tuple[list[float], list[float], list[float]]:
    """Make each call three times, so that all meet the same machine: ours, the SDK's own client, and a bare pipe."""
    ours: list[float] = []
    alone: list[float] = []
    answered: list[float] = []
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(plain)
        exchange = stack.enter_context(bare)
        for number in range(count):
            context = ToolContext("bench", f"call-{number}", f"call-{number}", 1)
            times = [time.perf_counter()]
            await source.call(tool, {"text": "hello"}, context)
            times.append(time.perf_counter())
            await client.call_tool("echo", {"text": "hello"})
            times.append(time.perf_counter())
            exchange()
            times.append(time.perf_counter())
            for taken, began, ended in zip((ours, alone, answered), times, times[1:], strict=False):
                taken.append(ended - began)
    return ours, alone, answered


def _told(
    name: str,
    started: float,
    taken: Sequence[float],
    plain: Sequence[float],
    answered: Sequence[float],
) -> list[Row]:
    p50, alone, server = (percentile(times, 0.5) for times in (taken, plain, answered))
    over = p50 - server
    return [
        Row(f"{name}: first use", f"{started:.2f} s", note="start, handshake, list; once"),
        Row(f"{name}: a call, p50", ms(p50)),
        Row(f"{name}: a call, p99", ms(percentile(taken, 0.99))),
        Row(f"{name}: the same with the SDK alone, p50", ms(alone)),
        Row(f"{name}: the server's part, p50", ms(server), note="the same over a bare pipe"),
        Row(
            f"{name}: what a call adds to it, p50",
            ms(over),
            f"≤ {ms(_TARGET_SECONDS)}",
            over <= _TARGET_SECONDS,
        ),
    ]
