"""The tools that every kit's agent has: functions to wrap, and a source of tools beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from celeriac.connectors.mcp_source import McpToolSource
from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.errors import ToolFailed
from celeriac.sessions.tools import ToolContext, ToolDefinition, ToolPolicy, ToolResult, ToolSource
from tests.harness.script import hold, note

__all__ = ["POLICIES", "Shelf", "broke", "look", "missing", "pay", "sources"]


async def look(item: str, gate: str = "") -> str:
    """Look an item up."""
    note("look", item)
    await hold(gate)
    return f"{item} is there"


async def pay(item: str, gate: str = "", after: str = "") -> str:
    """Pay for an item; that cannot be undone."""
    await hold(gate)
    note("pay", item)
    await hold(after)
    return f"{item} is paid"


async def missing(item: str) -> str:
    """Look for what is not there."""
    note("missing", item)
    raise ToolFailed(f"there is no {item}")


async def broke(item: str) -> str:
    """Begin a write and break."""
    note("broke", item)
    raise RuntimeError("the line is dead")


POLICIES = {
    "look": ToolPolicy(effect=ToolEffect.READ),
    "missing": ToolPolicy(effect=ToolEffect.READ),
    "broke": ToolPolicy(effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=False),
}
"""`pay` has none: it asks, for nobody said that it need not."""


def sources() -> list[ToolSource]:
    """Return what every agent has beside its own tools: a connector, and the worker's MCP servers if any."""
    mcp = McpToolSource()
    return [Shelf(), *([mcp] if mcp.servers else [])]


class Shelf:
    """A source like a connector: its writes of one response run one after the other."""

    async def list_tools(self) -> Sequence[ToolDefinition]:
        return [_PUT]

    async def call(
        self, tool: ToolDefinition, arguments: Mapping[str, JsonValue], context: ToolContext
    ) -> ToolResult:
        note("shelf begins", arguments["item"])
        await asyncio.sleep(0.02)
        note("shelf ends", arguments["item"])
        if arguments["item"] == "anvil":
            raise ToolFailed("the shelf does not bear it")
        return ToolResult(f"{arguments['item']} is on the shelf")


_PUT = ToolDefinition(
    name="shelf_put",
    description="Put an item on the shelf.",
    input_schema={
        "type": "object",
        "properties": {"item": {"type": "string"}},
        "required": ["item"],
        "additionalProperties": False,
    },
    effect=ToolEffect.IDEMPOTENT_WRITE,
    ordered=True,
    source="shelf/test",
)
