"""Part 5: what a call of an MCP tool costs over a session that is open already."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from mcp import Client, StdioServerParameters

from benchmarks.machinery import Row, ms, percentile, stop
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
    rows = asyncio.run(_rows("stdio", stdio, Client(program), count))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, _SCRIPT, "http", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}/mcp"
        http = HttpServer(url=url, trust_annotations=True)
        return rows + asyncio.run(_rows("Streamable HTTP", http, Client(url), count))
    finally:
        stop(process)


async def _rows(name: str, server: McpServer, plain: Client, count: int) -> list[Row]:
    source = McpToolSource(config=McpConfig(path=None, servers={"bench": server}))
    try:
        began = time.monotonic()
        while not (tools := (await source.list_tools()).tools):
            await asyncio.sleep(0.05)  # it starts, or its port is not open yet
        started = time.monotonic() - began
        tool = next(tool for tool in tools if tool.original_name == "echo")
        ours, alone = await _side_by_side(source, tool, plain, count)
    finally:
        await source.aclose()
    return _told(name, started, ours, alone)


async def _side_by_side(
    source: McpToolSource, tool: ToolDefinition, plain: Client, count: int
) -> tuple[list[float], list[float]]:
    """Make each call twice, the second time with the SDK's own client, so that both meet the same machine."""
    ours: list[float] = []
    alone: list[float] = []
    async with plain as client:
        for number in range(count):
            context = ToolContext("bench", f"call-{number}", f"call-{number}", 1)
            began = time.perf_counter()
            await source.call(tool, {"text": "hello"}, context)
            between = time.perf_counter()
            await client.call_tool("echo", {"text": "hello"})
            ours.append(between - began)
            alone.append(time.perf_counter() - between)
    return ours, alone


def _told(name: str, started: float, taken: Sequence[float], plain: Sequence[float]) -> list[Row]:
    p50, alone = percentile(taken, 0.5), percentile(plain, 0.5)
    return [
        Row(f"{name}: first use", f"{started:.2f} s", note="start, handshake, list; once"),
        Row(f"{name}: a call, p50", ms(p50), f"≤ {ms(_TARGET_SECONDS)}", p50 <= _TARGET_SECONDS),
        Row(f"{name}: a call, p99", ms(percentile(taken, 0.99))),
        Row(f"{name}: the same with the SDK alone, p50", ms(alone)),
        Row(f"{name}: what ours adds, p50", ms(p50 - alone)),
    ]
