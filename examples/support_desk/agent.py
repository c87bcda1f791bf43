"""A support agent: it looks up orders in a database, refunds charges at Stripe, and replies in Slack."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from celeriac import AgentDefinition, ConnectorToolSource, connector_tool

REFUND_LIMIT = 50_00
"""Cents. Larger refunds, and those of a whole charge, ask a person."""


def is_large(arguments: Mapping[str, JsonValue]) -> bool:
    """Say whether a refund asks first."""
    amount = arguments.get("amount")
    return not isinstance(amount, int) or amount > REFUND_LIMIT


support = AgentDefinition(
    name="support",
    instructions=(
        "You are the support desk of a shop. Look an order up before you say anything about it. Refund only what "
        "the order says was charged, note the refund on the order, and then reply in the customer's thread."
    ),
    tool_sources=[
        ConnectorToolSource(
            [
                connector_tool("sql.query", "orders"),
                connector_tool(
                    "sql.execute",
                    "orders",
                    fixed={"statement": "noteRefund"},
                    requires_approval=False,
                ),
                connector_tool("stripe.getCharge", "shop"),
                connector_tool("stripe.createRefund", "shop", requires_approval=is_large),
                connector_tool("slack.readThread", "office"),
                connector_tool("slack.postThreadReply", "office"),
            ]
        )
    ],
)
