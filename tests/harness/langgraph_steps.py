"""Graphs with a fake model, and single steps of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from inspect import isawaitable
from typing import Any

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition
from pydantic import Field, JsonValue

from celeriac import (
    AgentDefinition,
    DurableToolCalls,
    ToolContext,
    ToolResult,
    langgraph_session,
    session_tools,
)
from celeriac.connectors.toolset import build_toolset
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.harness import CallResult, ModelStepContext, ModelStepResult
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.model import ModelRequest, TextDelta


class Fake(BaseChatModel):
    """Says one message at each request, and remembers what it was asked."""

    model_name: str = "fake"
    says: list[Any]
    asked: list[list[BaseMessage]] = Field(default_factory=list)
    bound: list[str] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        self.bound[:] = [
            one["function"]["name"] if isinstance(one, dict) else one.name for one in tools
        ]
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.asked.append(list(messages))
        said = self.says.pop(0)
        if isinstance(said, Exception):
            raise said
        return ChatResult(generations=[ChatGeneration(message=said)])


class Cut(Fake):
    """Streams a call whose arguments end in the middle."""

    async def _astream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Any:
        self.asked.append(list(messages))
        for part in ('{"item": "x", ', '"amount": 10'):
            call = tool_call_chunk(name="look", args=part, id="c0", index=0)
            yield ChatGenerationChunk(
                message=AIMessageChunk(content="", tool_call_chunks=[call], id="run")
            )


def says(*messages: AIMessage | Exception) -> Fake:
    return Fake(says=list(messages))


def wants(*names: str, **arguments: object) -> AIMessage:
    calls = [tool_call(name=name, args=arguments, id=f"c{at}") for at, name in enumerate(names)]
    return AIMessage("Well. ", tool_calls=calls)


@tool
def look(item: str = "") -> str:
    """Look an item up."""
    raise AssertionError("no tool runs within a run")


def agent(model: Fake, *tools: Any, middleware: Sequence[Any] = (), **more: Any) -> AgentDefinition:
    graph = create_agent(
        model, tools or [look], middleware=[DurableToolCalls(), *middleware], **more
    )
    return langgraph_session(name="a", graph=graph, model=model)


def step(
    definition: AgentDefinition,
    before: ModelStepResult | None = None,
    results: Sequence[CallResult] | None = None,
) -> ModelStepResult:
    """One model step."""
    # As it comes back from the store.
    snapshot = None if before is None else json.loads(json.dumps(before.snapshot))
    return _run(definition, ["go"], snapshot, results)[1]


def streamed(definition: AgentDefinition, *words: str) -> tuple[str, ModelStepResult]:
    """The first model step after some messages: the text that was streamed, and the result."""
    return _run(definition, words, None, None)


def _run(
    definition: AgentDefinition,
    words: Sequence[str],
    snapshot: JsonValue,
    results: Sequence[CallResult] | None,
) -> tuple[str, ModelStepResult]:
    async def run() -> tuple[str, ModelStepResult]:
        toolset = await build_toolset(definition)
        request = ModelRequest(
            model=definition.models[0],
            instructions="",
            messages=[
                Message(seq=at, role=Role.USER, text=text, created_at=0)
                for at, text in enumerate(words)
            ],
            tools=toolset.definitions,
            session_id="s",
            turn_id="t1",
            attempt=1,
            timeout_seconds=60,
        )
        assert definition.harness is not None
        text = ""
        async for item in definition.harness.run_model(
            ModelStepContext(request, snapshot, results)
        ):
            if isinstance(item, TextDelta):
                text += item.text
            elif isinstance(item, ModelStepResult):
                return text, item
        raise AssertionError("no result")

    return asyncio.run(run())


def done(call_id: str, text: str, status: CallStatus = CallStatus.SUCCEEDED) -> CallResult:
    return CallResult(call_id, f"call_{call_id}", "look", status, text)


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


def custom(model: Fake, node: Any, ask: Any = None, state: Any = MessagesState, **how: Any) -> Any:
    """A graph of one's own: a model, and a node for the tools."""

    async def plain(state: Any) -> dict[str, Any]:
        return {"messages": [await model.bind_tools(session_tools()).ainvoke(state["messages"])]}

    graph = StateGraph(state)
    graph.add_node("ask", ask or plain)
    graph.add_node("tools", node)
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", tools_condition)
    graph.add_edge("tools", "ask")
    return graph.compile(**how)
