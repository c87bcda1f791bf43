"""An agent whose models think, and whose conversations are summarised early. Workers load this file by its path."""

from __future__ import annotations

from celeriac import AgentDefinition, CompactionPolicy, ModelSettings, ToolEffect, tool
from tests.models.dialects import ANTHROPIC, RESPONSES


@tool(effect=ToolEffect.READ)
def look_up(item: str) -> str:
    """Say how many of an item are in stock."""
    return f"{item}: 3 in stock"


thinker = AgentDefinition(
    name="thinker",
    instructions="You look after a small shop.",
    models=[RESPONSES.model, ANTHROPIC.model],
    model_settings=ModelSettings(reasoning_effort="low"),
    tools=[look_up],
    compaction=CompactionPolicy(context_window_tokens=20_000, keep_recent_tokens=200),
)
