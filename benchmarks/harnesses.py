"""What a framework's adapter costs over the framework's own run, with models that answer at once.

A turn of two model steps around one call: by the framework alone, which runs the tool itself, and through the
harness, which stops before the tool, writes its snapshot down, and goes on from it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import replace
from statistics import median
from typing import Any

from agents import Agent, Model, RunConfig, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner as AdkRunner
from google.adk.sessions import InMemorySessionService
from google.genai import types
from langchain.agents import create_agent
from langchain.tools import tool as langchain_tool
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from benchmarks.machinery import Row, ms
from celeriac import (
    AgentDefinition,
    DurableToolCalls,
    google_adk_session,
    langgraph_session,
    openai_agents_session,
    pydantic_ai_session,
)
from celeriac.connectors.toolset import build_toolset
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.harness import CallResult, ModelStepContext, ModelStepResult
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.model import ModelRequest

__all__ = ["measure"]


def look(item: str) -> str:
    """Look an item up."""
    return f"{item} is there"


class _Fake(Model):
    """Calls `look`, and answers when it has the result."""

    def _made(self, given: tuple[Any, ...], more: dict[str, Any]) -> ScriptedModel:
        items = more["input"] if "input" in more else given[1]
        if not isinstance(items, str) and items[-1].get("type") == "function_call_output":
            return ScriptedModel([[assistant_message("It is there.")]])
        return ScriptedModel([[function_call("look", {"item": "x"}, call_id="c")]])

    async def get_response(self, *given: Any, **more: Any) -> Any:
        return await self._made(given, more).get_response(*given, **more)

    async def stream_response(self, *given: Any, **more: Any) -> AsyncIterator[Any]:
        async for event in self._made(given, more).stream_response(*given, **more):
            yield event


class _Gemini(BaseLlm):
    """The same for ADK."""

    model: str = "fake"

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: ARG002, FBT001, FBT002 - the framework's
    ) -> AsyncGenerator[LlmResponse, None]:
        parts = llm_request.contents[-1].parts or []
        call = types.FunctionCall(name="look", args={"item": "x"}, id="c")
        answered = any(part.function_response for part in parts)
        said = types.Part(text="It is there.") if answered else types.Part(function_call=call)
        yield LlmResponse(content=types.Content(role="model", parts=[said]))


class _Chat(BaseChatModel):
    """The same for LangChain."""

    model_name: str = "fake"

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        call = tool_call(name="look", args={"item": "x"}, id="c")
        answered = isinstance(messages[-1], ToolMessage)
        said = AIMessage("It is there.") if answered else AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=said)])


async def _answer(
    messages: list[ModelMessage], _: AgentInfo
) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    if isinstance(messages[-1].parts[-1], ToolReturnPart):
        yield "It is there."
    else:
        yield {0: DeltaToolCall("look", '{"item": "x"}', tool_call_id="c")}


def measure(*, scale: float) -> list[Row]:
    """Measure each framework that has an adapter.

    Args:
        scale: How much of the work to do.
    """
    turns = max(20, round(100 * scale))
    return asyncio.run(_measure(turns))


async def _measure(turns: int) -> list[Row]:
    openai = Agent[Any](name="a", model=_Fake(), tools=[function_tool(look)])
    pydantic = PydanticAgent(FunctionModel(stream_function=_answer), tools=[look])

    gemini = LlmAgent(name="g", model=_Gemini(), tools=[look])
    service = InMemorySessionService()
    runner = AdkRunner(app=App(name="bench", root_agent=gemini), session_service=service)

    async def adk_alone() -> None:
        session = await service.create_session(app_name="bench", user_id="u")
        message = types.Content(role="user", parts=[types.Part(text="go")])
        async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=message):
            pass

    chat, tool = _Chat(), langchain_tool(look)
    plain = create_agent(chat, [tool])
    durable = create_agent(chat, [tool], middleware=[DurableToolCalls()])

    async def langchain_alone() -> None:
        given: Any = {"messages": [("user", "go")]}
        async for _ in plain.astream(given, stream_mode="messages"):
            pass

    async def openai_alone() -> None:
        run = Runner.run_streamed(openai, "go", run_config=RunConfig(tracing_disabled=True))
        async for _ in run.stream_events():
            pass

    async def pydantic_alone() -> None:
        async with pydantic.run_stream_events("go") as events:
            async for _ in events:
                pass

    rows = []
    for name, alone, definition in (
        ("Google ADK", adk_alone, google_adk_session(name="g", agent=gemini)),
        ("LangChain", langchain_alone, langgraph_session(name="l", graph=durable, model=chat)),
        ("OpenAI Agents SDK", openai_alone, openai_agents_session(name="o", agent=openai)),
        ("Pydantic AI", pydantic_alone, pydantic_ai_session(name="p", agent=pydantic)),
    ):
        turn = await _turn(definition)
        own, ours = await _times(alone, turns), await _times(turn, turns)
        rows += [
            Row(f"{name}: a turn of its own", ms(own), note="two model calls, one tool"),
            Row(f"{name}: two steps of its harness", ms(ours)),
            Row(f"{name}: overhead of a step", ms((ours - own) / 2)),
        ]
    return rows


async def _times(work: Callable[[], Awaitable[None]], turns: int) -> float:
    """Return the median of so many turns, after a few to warm up."""
    taken = []
    for at in range(turns + 5):
        began = time.perf_counter()
        await work()
        if at >= 5:
            taken.append(time.perf_counter() - began)
    return median(taken)


async def _turn(definition: AgentDefinition) -> Callable[[], Awaitable[None]]:
    harness = definition.harness
    if harness is None:
        raise AssertionError(f"{definition.name} has no harness")
    request = ModelRequest(
        model=definition.models[0],
        instructions="",
        messages=[Message(seq=0, role=Role.USER, text="go", created_at=0)],
        tools=(await build_toolset(definition)).definitions,
        session_id="s",
        turn_id="t1",
        attempt=1,
        timeout_seconds=60,
    )

    async def step(context: ModelStepContext) -> ModelStepResult:
        async for item in harness.run_model(context):
            if isinstance(item, ModelStepResult):
                return item
        raise AssertionError("no result")

    async def turn() -> None:
        first = await step(ModelStepContext(request))
        snapshot = json.loads(json.dumps(first.snapshot))
        result = CallResult("c", "call_c", "look", CallStatus.SUCCEEDED, "x is there")
        last = await step(replace(ModelStepContext(request), snapshot=snapshot, results=[result]))
        if last.calls:
            raise AssertionError("it asked again")

    return turn
