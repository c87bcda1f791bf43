"""How a step touches the outside."""
