"""MC-10: whatever the tools of several servers are called, a call reaches the one that the model meant."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from celeriac.sessions.tools import TOOL_NAME_PATTERN, ToolDefinition
from tests.connectors.mcp_talk import Odd, odd_server, opened

ORIGINALS = [
    "search",
    "admin.tools.list",
    "a/b",
    "a.b",
    "two words",
    "Über",
    "x" * 80 + "y" * 10,
    "x" * 80 + "z" * 10,
]


def listed(name: str) -> dict[str, JsonValue]:
    return {"name": name, "inputSchema": {"type": "object"}}


def called_one_by_one(servers: Mapping[str, Odd]) -> dict[str, tuple[str | None, str | None]]:
    """Call each tool once, with its name for models as the key; return where each belongs."""

    async def main() -> dict[str, ToolDefinition]:
        configured = {name: odd.server for name, odd in servers.items()}
        async with opened(configured, resources=False) as here:
            tools = {tool.name: tool for tool in (await here.source.list_tools()).tools}
            for name, tool in tools.items():
                await here.source.call(tool, {}, here.context(name))
            return tools

    return {name: (one.source, one.original_name) for name, one in asyncio.run(main()).items()}


def test_mc_10_calls_reach_the_right_server_and_tool_and_names_stay_at_every_start(
    tmp_path: Path,
) -> None:
    servers = {name: odd_server(tmp_path / name) for name in ("tracker", "wiki")}
    for odd in servers.values():
        odd.set_tools([listed(name) for name in ORIGINALS])
    first = called_one_by_one(servers)
    assert len(first) == 2 * len(ORIGINALS)
    assert all(TOOL_NAME_PATTERN.fullmatch(name) for name in first)
    for server, odd in servers.items():
        for entry in odd.journal("effect"):
            assert first[str(entry["key"])] == (server, entry["tool"])
        assert len(odd.journal("effect")) == len(ORIGINALS)
        odd.set_tools([listed(name) for name in reversed(ORIGINALS)])
    assert called_one_by_one(dict(reversed(servers.items()))) == first
