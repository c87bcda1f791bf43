"""Talk to the odd MCP server of ``tests.mcp_servers`` in a folder of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from celeriac.connectors.mcp_config import HttpServer, McpConfig, McpServer, StdioServer
from celeriac.connectors.mcp_source import McpToolSource, _pools
from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.tools import ToolContext, ToolDefinition, ToolResult
from tests import mcp_servers

__all__ = ["Odd", "OpenSource", "alive", "odd_server", "opened", "until"]

_SCRIPT = Path(mcp_servers.__file__).with_name("odd_stdio.py")
PATIENCE = 30.0

TOOLS: list[JsonValue] = [
    {
        "name": "act",
        "description": "Act.",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": False},
    },
    {
        "name": "look",
        "description": "Look.",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    },
]


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and waits for its parent does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


async def until(holds: Callable[[], object], what: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.01)


@dataclass
class Odd:
    """One odd server: its folder, and what it did."""

    folder: Path
    server: StdioServer
    environment: dict[str, str] = field(default_factory=dict)

    def set_tools(self, tools: list[JsonValue]) -> None:
        # Whole at every moment: the server reads it when it likes.
        new = self.folder / "tools.new"
        new.write_text(json.dumps(tools))
        new.replace(self.folder / "tools.json")

    def open_gate(self, gate: str) -> None:
        (self.folder / f"gate-{gate}").touch()

    def journal(self, what: str) -> list[dict[str, JsonValue]]:
        path = self.folder / "journal"
        lines = path.read_text().splitlines() if path.exists() else []
        return [entry for entry in map(json.loads, lines) if entry["what"] == what]

    def pids(self) -> list[int]:
        return [int(str(entry["pid"])) for entry in self.journal("start")]


def odd_server(folder: Path, *, env: Mapping[str, str] | None = None, **more: object) -> Odd:
    """Make one; `env` holds its variables, which this process gets under names of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {}
    for name, value in (env or {}).items():
        variable = f"TEST_{folder.name.upper().replace('-', '_')}_{name}"
        os.environ[variable] = value
        names[name] = variable
    settings: dict[str, object] = {"trust_annotations": True, "protocol": "legacy", **more}
    server = StdioServer.model_validate(
        {
            "command": sys.executable,
            "args": ["-S", str(_SCRIPT), str(folder)],
            "env": names,
            **settings,
        }
    )
    odd = Odd(folder, server)
    odd.set_tools(TOOLS)
    return odd


class OpenSource:
    """A source in use, its tools by original name."""

    def __init__(self, source: McpToolSource) -> None:
        self.source = source
        self.progress: list[str] = []

    async def tools(self) -> dict[str, ToolDefinition]:
        listing = await self.source.list_tools()
        return {tool.original_name or tool.name: tool for tool in listing.tools}

    async def unlisted(self) -> tuple[str, ...]:
        return tuple((await self.source.list_tools()).unlisted)

    def context(self, key: str) -> ToolContext:
        return ToolContext("s", key, key, 1, report_progress=self.progress.append)

    async def call(self, tool: str, key: str = "call-1", **arguments: JsonValue) -> ToolResult:
        definition = (await self.tools())[tool]
        return await self.source.call(definition, arguments, self.context(key))


@asynccontextmanager
async def opened(
    servers: Mapping[str, McpServer], *, resources: bool = True
) -> AsyncIterator[OpenSource]:
    """Use a source of these servers; at the end its processes are gone."""
    source = McpToolSource(
        config=McpConfig(path=None, servers=servers), resource_and_prompt_tools_enabled=resources
    )
    try:
        yield OpenSource(source)
    finally:
        await source.aclose()
        assert asyncio.get_running_loop() not in _pools


def http_server(url: str, **more: object) -> HttpServer:
    return HttpServer.model_validate({"url": url, "trust_annotations": True, **more})


async def outcome(call: Awaitable[ToolResult]) -> ToolResult | Exception:
    """Wait for a call; return what it returned or raised."""
    try:
        return await call
    except Exception as error:  # noqa: BLE001 - that is what is looked at
        return error


READ, IDEMPOTENT, ONCE = ToolEffect
