"""The agent ``order-support``: one tool of each effect, over a real order desk.

Every tool can be slowed down before and after its effect, so that a crash can be caused at either side of it.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

from pydantic import Field

from celeriac.connectors.mcp_source import McpToolSource
from celeriac.connectors.order_support.desk import OrderDesk
from celeriac.sessions.built_in import BuiltInTool
from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.definition import AgentDefinition
from celeriac.sessions.tools import ToolContext, tool

__all__ = ["cancel_order", "look_up_order", "order_support", "set_note"]

OrderId = Annotated[str, Field(min_length=1, max_length=40, description="e.g. 1001")]
Before = Annotated[float, Field(ge=0, le=3600, description="Wait before the effect.")]
After = Annotated[float, Field(ge=0, le=3600, description="Wait after the effect.")]


@tool(effect=ToolEffect.READ)
def look_up_order(
    order_id: OrderId,
    context: ToolContext,
    delay_seconds: Before = 0,
    delay_after_seconds: After = 0,
) -> dict[str, str]:
    """Look up an order: item, total, status and note."""
    # A look-up has nothing to finish properly, so a person's Stop may end its waits early.
    context.cancelled.wait(delay_seconds)
    order = OrderDesk.of_environment().look_up(order_id, call_id=context.call_id)
    context.cancelled.wait(delay_after_seconds)
    return asdict(order)


@tool(effect=ToolEffect.IDEMPOTENT_WRITE)
async def set_note(
    order_id: OrderId,
    note: Annotated[str, Field(max_length=2000)],
    context: ToolContext,
    delay_seconds: Before = 0,
    delay_after_seconds: After = 0,
) -> dict[str, str]:
    """Set the note of an order, replacing an earlier one."""
    await asyncio.sleep(delay_seconds)
    order = await asyncio.to_thread(
        OrderDesk.of_environment().set_note,
        order_id,
        note,
        idempotency_key=context.idempotency_key,
        call_id=context.call_id,
    )
    await asyncio.sleep(delay_after_seconds)
    return asdict(order)


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True)
async def cancel_order(
    order_id: OrderId,
    context: ToolContext,
    delay_seconds: Before = 0,
    delay_after_seconds: After = 0,
) -> dict[str, str]:
    """Cancel an order. This cannot be undone."""
    await asyncio.sleep(delay_seconds)
    order = await asyncio.to_thread(
        OrderDesk.of_environment().cancel, order_id, call_id=context.call_id
    )
    await asyncio.sleep(delay_after_seconds)
    return asdict(order)


# Whatever MCP servers the worker has, so that they can be tried at once.
_mcp = McpToolSource()

order_support = AgentDefinition(
    name="order-support",
    description="Looks up, annotates and cancels orders 1001 to 1005.",
    instructions=(
        "You help at the order desk. Look an order up before you change it, and cancel one only "
        "when the customer asks for it. If an outcome is unknown, say so; never try it again."
    ),
    models=["demo"],
    tools=[look_up_order, set_note, cancel_order],
    tool_sources=[_mcp] if _mcp.servers else [],
    built_in_tools=frozenset(BuiltInTool),
    plan_mode_enabled=True,
)
