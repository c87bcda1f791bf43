"""The smallest useful agent: one tool that reads, one that changes something and asks first."""

from celeriac import AgentDefinition, ToolContext, ToolEffect, tool

STOCK = {"trowel": 3, "seeds": 40}


@tool(effect=ToolEffect.READ)
def count_stock(item: str) -> int:
    """Say how many of an item are in stock."""
    return STOCK.get(item, 0)


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True)
async def order_stock(item: str, amount: int, context: ToolContext) -> str:
    """Order more of an item from the supplier."""
    return f"ordered {amount} of {item}, reference {context.call_id}"


shop = AgentDefinition(
    name="shop",
    instructions="You look after the stock of a small garden shop.",
    tools=[count_stock, order_stock],
)
