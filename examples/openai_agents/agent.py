"""The order desk with OpenAI's Agents SDK; ORDER_SUPPORT_MODEL names a real model, without it a demo model answers."""

import os
from dataclasses import asdict
from typing import Any

from agents import Agent, function_tool
from agents.tool_context import ToolContext

from celeriac import ToolEffect, ToolPolicy, openai_agents_session
from celeriac.connectors.openai_agents_demo import DemoAgentsModel
from celeriac.connectors.order_support import OrderDesk


@function_tool
def look_up_order(context: ToolContext[Any], order_id: str) -> dict[str, str]:
    """Look up an order: item, total, status and note."""
    return asdict(OrderDesk.of_environment().look_up(order_id, call_id=context.tool_call_id))


@function_tool
def set_note(context: ToolContext[Any], order_id: str, note: str) -> dict[str, str]:
    """Set the note of an order, replacing an earlier one."""
    key = context.tool_call_id  # the Call ID: the same on every attempt
    desk = OrderDesk.of_environment()
    return asdict(desk.set_note(order_id, note, idempotency_key=key, call_id=key))


@function_tool
def cancel_order(context: ToolContext[Any], order_id: str) -> dict[str, str]:
    """Cancel an order. This cannot be undone."""
    return asdict(OrderDesk.of_environment().cancel(order_id, call_id=context.tool_call_id))


clerk = Agent[Any](
    name="clerk",
    instructions="You help at the order desk. Look an order up before you change it.",
    model=os.environ.get("ORDER_SUPPORT_MODEL") or DemoAgentsModel(),
    tools=[look_up_order, set_note, cancel_order],
)

order_support = openai_agents_session(
    name="order-support-openai",
    agent=clerk,
    tool_policies={
        "look_up_order": ToolPolicy(effect=ToolEffect.READ),
        "set_note": ToolPolicy(effect=ToolEffect.IDEMPOTENT_WRITE, requires_approval=False),
        # cancel_order has none: it is a write that never runs twice, and asks.
    },
    description="Orders 1001 to 1005, with OpenAI's Agents SDK.",
)
