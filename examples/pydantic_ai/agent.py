"""The order desk with Pydantic AI; ORDER_SUPPORT_MODEL names a real model, without it a demo model answers."""

import os
from dataclasses import asdict

from pydantic_ai import Agent, RunContext

from celeriac import ToolEffect, ToolPolicy, pydantic_ai_session
from celeriac.connectors.order_support import OrderDesk
from celeriac.connectors.pydantic_ai_demo import demo_model

clerk = Agent(
    os.environ.get("ORDER_SUPPORT_MODEL") or demo_model(),
    deps_type=OrderDesk,
    instructions="You help at the order desk. Look an order up before you change it.",
)


@clerk.tool
def look_up_order(ctx: RunContext[OrderDesk], order_id: str) -> dict[str, str]:
    """Look up an order: item, total, status and note."""
    return asdict(ctx.deps.look_up(order_id, call_id=ctx.tool_call_id or ""))


@clerk.tool
def set_note(ctx: RunContext[OrderDesk], order_id: str, note: str) -> dict[str, str]:
    """Set the note of an order, replacing an earlier one."""
    key = ctx.tool_call_id or ""  # the Call ID: the same on every attempt
    return asdict(ctx.deps.set_note(order_id, note, idempotency_key=key, call_id=key))


@clerk.tool
def cancel_order(ctx: RunContext[OrderDesk], order_id: str) -> dict[str, str]:
    """Cancel an order. This cannot be undone."""
    return asdict(ctx.deps.cancel(order_id, call_id=ctx.tool_call_id or ""))


order_support = pydantic_ai_session(
    name="order-support-pydantic-ai",
    agent=clerk,
    deps=OrderDesk.of_environment,
    tool_policies={
        "look_up_order": ToolPolicy(effect=ToolEffect.READ),
        "set_note": ToolPolicy(effect=ToolEffect.IDEMPOTENT_WRITE, requires_approval=False),
        # cancel_order has none: it is a write that never runs twice, and asks.
    },
    description="Orders 1001 to 1005, with Pydantic AI.",
)
