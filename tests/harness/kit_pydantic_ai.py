"""Pydantic AI, with the fake model that comes with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage

from celeriac import AgentDefinition, CompactionPolicy, pydantic_ai_session
from tests.harness.script import Heard, hold, respond
from tests.harness.tools import POLICIES, broke, look, missing, pay, sources

NAME = "pydantic-ai"
USED = RequestUsage(input_tokens=10, output_tokens=5)


async def _answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    said = respond(NAME, list(_heard(messages)))
    parts = [ToolCallPart(name, raw, f"call_{at}") for at, (name, raw) in enumerate(said.calls)]
    return ModelResponse(parts=[TextPart(said.text), *parts], usage=USED)


async def _stream(
    messages: list[ModelMessage], _: AgentInfo
) -> AsyncIterator[str | dict[int, DeltaToolCall] | dict[int, DeltaThinkingPart]]:
    said = respond(NAME, list(_heard(messages)))
    yield {0: DeltaThinkingPart(content=said.reasoning, signature="sig")}
    half = len(said.text) // 2
    yield said.text[:half]
    await hold(said.gate)
    yield said.text[half:]
    for at, (name, raw) in enumerate(said.calls):
        # Ids come again in other requests, as some providers' do.
        yield {at + 1: DeltaToolCall(name=name, json_args=raw, tool_call_id=f"call_{at}")}


def _heard(messages: Sequence[ModelMessage]) -> Iterator[Heard]:
    for message in messages:
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                yield Heard("user", str(part.content))
            elif isinstance(part, ToolReturnPart):
                yield Heard("tool", part.model_response_str())
            elif isinstance(part, TextPart):
                yield Heard("assistant", part.content)


def _agent(name: str, compaction: CompactionPolicy | None = None) -> AgentDefinition:
    agent = Agent(
        FunctionModel(_answer, stream_function=_stream),
        instructions="Do as you are told.",
        system_prompt="You are a clerk.",
        tools=[look, pay, missing, broke],
    )
    return pydantic_ai_session(
        name=name,
        agent=agent,
        tool_policies=POLICIES,
        tool_sources=sources(),
        compaction=compaction,
    )


agent = _agent(NAME)
small = _agent(f"{NAME}-small", CompactionPolicy(context_window_tokens=600, keep_recent_tokens=20))
