"""Model steps of ADK agents, with models that say what they are told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from inspect import isawaitable
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from pydantic import Field, JsonValue

from celeriac import (
    AgentDefinition,
    ToolContext,
    ToolResult,
    google_adk_session,
)
from celeriac.connectors.toolset import build_toolset
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.harness import CallResult, ModelStepContext, ModelStepResult
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.model import ModelRequest, TextDelta


class Fake(BaseLlm):
    """Says a list of parts at each request, and remembers what it was asked."""

    model: str = "fake"
    says: list[Any]
    asked: list[list[types.Content]] = Field(default_factory=list)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.asked.append([one.model_copy(deep=True) for one in llm_request.contents])
        said = self.says.pop(0)
        await asyncio.sleep(0)
        if isinstance(said, Exception):
            raise said
        if isinstance(said, LlmResponse):
            yield said
            return
        # Its calls are told apart from those of another request by nobody but the adapter.
        parts = [part.model_copy(deep=True) for part in said]
        yield LlmResponse(content=types.Content(role="model", parts=parts))

    def results(self) -> list[tuple[str | None, dict[str, Any] | None]]:
        """The results that it read in the last request."""
        parts = [part for content in self.asked[-1] for part in content.parts or ()]
        return [
            (part.function_response.id, part.function_response.response)
            for part in parts
            if part.function_response
        ]


def says(*responses: Any) -> Fake:
    return Fake(says=list(responses))


def text(words: str) -> types.Part:
    return types.Part(text=words)


def call(name: str, call_id: str | None = "c0", **args: Any) -> types.Part:
    return types.Part(function_call=types.FunctionCall(name=name, args=args, id=call_id))


def look(item: str = "") -> str:
    """Look an item up."""
    raise AssertionError("no tool runs within a run")


def llm(name: str, model: Fake, **more: Any) -> LlmAgent:
    return LlmAgent(name=name, model=model, **{"tools": [look], **more})


def session(agent: BaseAgent) -> AgentDefinition:
    return google_adk_session(name="a", agent=agent)


def step(
    definition: AgentDefinition,
    before: ModelStepResult | None = None,
    results: Sequence[CallResult] | None = None,
    history: Sequence[Message] = (),
) -> ModelStepResult:
    return asyncio.run(step_and_stream(definition, before, results, history))[0]


async def step_and_stream(
    definition: AgentDefinition,
    before: ModelStepResult | None = None,
    results: Sequence[CallResult] | None = None,
    history: Sequence[Message] = (),
) -> tuple[ModelStepResult, str]:
    toolset = await build_toolset(definition)
    request = ModelRequest(
        model=definition.models[0],
        instructions="",
        messages=[Message(seq=0, role=Role.USER, text="go", created_at=0), *history],
        tools=toolset.definitions,
        session_id="s",
        turn_id="t1",
        attempt=1,
        timeout_seconds=60,
    )
    # As it comes back from the store.
    snapshot = None if before is None else json.loads(json.dumps(before.snapshot))
    assert definition.harness is not None
    streamed = ""
    async for item in definition.harness.run_model(ModelStepContext(request, snapshot, results)):
        if isinstance(item, TextDelta):
            streamed += item.text
        elif isinstance(item, ModelStepResult):
            return item, streamed
    raise AssertionError("no result")


def done(call_id: str | None, words: str, status: CallStatus = CallStatus.SUCCEEDED) -> CallResult:
    return CallResult(call_id or "", f"call_{call_id}", "look", status, words)


def turn(make: Callable[[], BaseAgent]) -> list[ModelStepResult]:
    """Run a whole turn, with agents made anew for each step; every call is found."""
    steps: list[ModelStepResult] = [step(session(make()))]
    while steps[-1].calls:
        assert len(steps) < 10
        results = [done(one.provider_id, f"found {one.provider_id}") for one in steps[-1].calls]
        steps.append(step(session(make()), steps[-1], results))
    return steps


def wanted(steps: Sequence[ModelStepResult]) -> list[int]:
    """How many calls each step ended with."""
    return [len(one.calls) for one in steps]


def call_tool(definition: AgentDefinition, name: str, **arguments: JsonValue) -> JsonValue:
    async def run() -> JsonValue:
        found = (await build_toolset(definition)).get(name)
        assert found is not None
        context = ToolContext(session_id="s", call_id="call_1", idempotency_key="call_1", attempt=1)
        value = found.invoke(arguments, context)
        assert isawaitable(value)
        result = await value
        assert isinstance(result, ToolResult)
        return result.value

    return asyncio.run(run())
