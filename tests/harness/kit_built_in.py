"""Celeriac's own loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from celeriac.connectors.history import validate_request
from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.definition import AgentDefinition, CompactionPolicy
from celeriac.sessions.messages import Role, Usage
from celeriac.sessions.model import (
    ModelCall,
    ModelReply,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
)
from celeriac.sessions.tools import tool
from tests.harness.script import Heard, hold, respond
from tests.harness.tools import broke, look, missing, pay, sources

NAME = "built-in"


class Model:
    """The script as a model client."""

    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        validate_request(request)
        said = respond(NAME, list(_heard(request)))
        yield ReasoningDelta(said.reasoning)
        half = len(said.text) // 2
        yield TextDelta(said.text[:half])
        await hold(said.gate)
        yield TextDelta(said.text[half:])
        yield ModelReply(
            text=said.text,
            reasoning=said.reasoning,
            calls=[ModelCall(name, raw, f"p{at}") for at, (name, raw) in enumerate(said.calls)],
            usage=Usage(input_tokens=10, output_tokens=5),
        )


def _heard(request: ModelRequest) -> Iterator[Heard]:
    for message in request.messages:
        match message.role:
            case Role.ASSISTANT:
                yield Heard("assistant", message.text)
            case Role.TOOL:
                yield Heard("tool", message.text)
            case _:
                yield Heard("user", message.text)


def _agent(name: str, compaction: CompactionPolicy | None = None) -> AgentDefinition:
    return AgentDefinition(
        name=name,
        instructions="Do as you are told.",
        models=["m"],
        model_clients={"m": Model()},
        tools=[
            tool(effect=ToolEffect.READ)(look),
            tool(requires_approval=True)(pay),
            tool(effect=ToolEffect.READ)(missing),
            tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)(broke),
        ],
        tool_sources=sources(),
        compaction=compaction,
    )


agent = _agent(NAME)
small = _agent(f"{NAME}-small", CompactionPolicy(context_window_tokens=600, keep_recent_tokens=20))
