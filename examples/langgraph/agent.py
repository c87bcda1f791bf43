"""The order desk with LangChain; ORDER_SUPPORT_MODEL names a real model, without it a demo model answers."""

import os
from dataclasses import asdict
from typing import Annotated

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain.tools import InjectedToolCallId, tool

from celeriac import DurableToolCalls, ToolEffect, ToolPolicy, langgraph_session
from celeriac.connectors.langgraph_demo import DemoChatModel
from celeriac.connectors.order_support import OrderDesk

wanted = os.environ.get("ORDER_SUPPORT_MODEL")
model = init_chat_model(wanted, max_retries=0) if wanted else DemoChatModel()

# The Call ID: the same on every attempt.
CallId = Annotated[str, InjectedToolCallId]


@tool
def look_up_order(order_id: str, call_id: CallId) -> dict[str, str]:
    """Look up an order: item, total, status and note."""
    return asdict(OrderDesk.of_environment().look_up(order_id, call_id=call_id))


@tool
def set_note(order_id: str, note: str, call_id: CallId) -> dict[str, str]:
    """Set the note of an order, replacing an earlier one."""
    desk = OrderDesk.of_environment()
    return asdict(desk.set_note(order_id, note, idempotency_key=call_id, call_id=call_id))


@tool
def cancel_order(order_id: str, call_id: CallId) -> dict[str, str]:
    """Cancel an order. This cannot be undone."""
    return asdict(OrderDesk.of_environment().cancel(order_id, call_id=call_id))


order_support = langgraph_session(
    name="order-support-langgraph",
    graph=create_agent(
        model,
        [look_up_order, set_note, cancel_order],
        system_prompt="You help at the order desk. Look an order up before you change it.",
        middleware=[DurableToolCalls()],
    ),
    model=model,
    tool_policies={
        "look_up_order": ToolPolicy(effect=ToolEffect.READ),
        "set_note": ToolPolicy(effect=ToolEffect.IDEMPOTENT_WRITE, requires_approval=False),
        # cancel_order has none: it is a write that never runs twice, and asks.
    },
    description="Orders 1001 to 1005, with LangChain.",
)
