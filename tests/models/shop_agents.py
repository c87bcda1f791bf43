"""An agent of a small shop, for real models at a server of the tests; its tools leave a line each on disk."""

from __future__ import annotations

import os
from pathlib import Path

from celeriac import AgentDefinition, ToolContext, ToolEffect, tool
from tests.models.dialects import CHAT_ONLY, DIALECTS


def _leave(tool_name: str, item: str) -> None:
    path = Path(os.environ["FAULT_DIR"], "effects")
    with path.open("ab", buffering=0) as file:
        file.write(f"{tool_name} {item}\n".encode())


@tool(effect=ToolEffect.READ)
def look_up(item: str) -> str:
    """Say how many of an item are in stock."""
    _leave("look_up", item)
    return f"{item}: 3 in stock"


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
def order(item: str, context: ToolContext) -> str:
    """Order more of an item."""
    _leave("order", item)
    return f"{item}: ordered"


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True)
def cancel(item: str, context: ToolContext) -> str:
    """Cancel the order of an item."""
    _leave("cancel", item)
    return f"{item}: cancelled"


shop = AgentDefinition(
    name="shop",
    instructions="You look after a small shop.",
    models=[*(dialect.model for dialect in DIALECTS), CHAT_ONLY],
    tools=[look_up, order, cancel],
)
