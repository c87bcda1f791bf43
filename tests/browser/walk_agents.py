"""An agent whose tools repeat what they are told, in every way in which a page shows it."""

from __future__ import annotations

from celeriac.connectors.demo_model import DemoModel
from celeriac.sessions.built_in import BuiltInTool
from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.definition import AgentDefinition
from celeriac.sessions.errors import ToolFailed
from celeriac.sessions.tools import tool


@tool(effect=ToolEffect.READ)
def repeat(text: str) -> str:
    """Give back what it got."""
    return text


@tool(effect=ToolEffect.READ, max_attempts=1)
def refuse(text: str) -> str:
    """Fail with what it got."""
    raise ToolFailed(text)


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True)
def keep(text: str) -> str:
    """Keep what it got."""
    return f"kept {len(text)} characters"


walks = AgentDefinition(
    name="walks",
    description="Repeats.",
    instructions="Repeat.",
    models=["demo"],
    model_clients={"demo": DemoModel(seconds_per_word=0)},
    tools=[repeat, refuse, keep],
    built_in_tools=frozenset(BuiltInTool),
    plan_mode_enabled=True,
)
