"""An agent whose models are at a provider: the chat server of the test. Workers load this file by its path."""

from __future__ import annotations

from celeriac.sessions.definition import AgentDefinition

asker = AgentDefinition(
    name="asker",
    instructions="Be brief.",
    models=["openai/gpt-4o-mini", "openai/gpt-4o"],
)
