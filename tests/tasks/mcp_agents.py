"""An agent with whatever MCP servers the worker's configuration has, and the demo model without its pauses."""

from __future__ import annotations

from celeriac import AgentDefinition, McpToolSource
from celeriac.connectors.demo_model import DemoModel

librarian = AgentDefinition(
    name="librarian",
    instructions="You use what there is.",
    models=["demo"],
    model_clients={"demo": DemoModel(seconds_per_word=0)},
    tool_sources=[McpToolSource()],
)
