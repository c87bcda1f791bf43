"""The order desk with Google's ADK; ORDER_SUPPORT_MODEL names a real model, without it a demo model answers."""

import os
from dataclasses import asdict

from google.adk.agents import LlmAgent
from google.adk.tools.tool_context import ToolContext

from celeriac import ToolEffect, ToolPolicy, google_adk_session
from celeriac.connectors.google_adk_demo import DemoLlm
from celeriac.connectors.order_support import OrderDesk


def look_up_order(order_id: str, tool_context: ToolContext) -> dict[str, str]:
    """Look up an order: item, total, status and note."""
    desk = OrderDesk.of_environment()
    return asdict(desk.look_up(order_id, call_id=tool_context.function_call_id or ""))


def set_note(order_id: str, note: str, tool_context: ToolContext) -> dict[str, str]:
    """Set the note of an order, replacing an earlier one."""
    key = tool_context.function_call_id or ""  # the Call ID: the same on every attempt
    desk = OrderDesk.of_environment()
    return asdict(desk.set_note(order_id, note, idempotency_key=key, call_id=key))


def cancel_order(order_id: str, tool_context: ToolContext) -> dict[str, str]:
    """Cancel an order. This cannot be undone."""
    desk = OrderDesk.of_environment()
    return asdict(desk.cancel(order_id, call_id=tool_context.function_call_id or ""))


order_support = google_adk_session(
    name="order-support-google-adk",
    agent=LlmAgent(
        name="clerk",
        model=os.environ.get("ORDER_SUPPORT_MODEL") or DemoLlm(),
        instruction="You help at the order desk. Look an order up before you change it.",
        tools=[look_up_order, set_note, cancel_order],
    ),
    tool_policies={
        "look_up_order": ToolPolicy(effect=ToolEffect.READ),
        "set_note": ToolPolicy(effect=ToolEffect.IDEMPOTENT_WRITE, requires_approval=False),
        # cancel_order has none: it is a write that never runs twice, and asks.
    },
    description="Orders 1001 to 1005, with Google's ADK.",
)
