"""What of LangGraph cannot run in a session, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph")

from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
)
from langchain.tools import InjectedState, ToolRuntime, tool
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableBinding, RunnableLambda
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from celeriac import (
    DefinitionError,
    DurableToolCalls,
    ModelError,
    durable_tool_node,
    langgraph_session,
)
from tests.harness.langgraph_steps import (
    custom,
    look,
    says,
    step,
)


@tool
def jump() -> Command[Any]:
    """Change the graph."""
    return Command(goto="ask")


@tool
def inner(state: Annotated[dict[str, Any], InjectedState]) -> str:
    """Read the state."""
    return str(state)


@tool
def runtime(runtime: ToolRuntime) -> str:
    """Read the runtime."""
    return str(runtime)


def _agent_of(*tools: Any, middleware: Sequence[Any] | None = None, **more: Any) -> Any:
    first = [DurableToolCalls()] if middleware is None else middleware
    return create_agent(says(), tools or [look], middleware=first, **more)


@tool
def ask_first() -> str:
    """Ask."""
    return str(interrupt("may I?"))


class OfAState(BaseTool):
    name: str = "based"
    description: str = "Read the runtime."

    def _run(self, runtime: ToolRuntime) -> str:
        return str(runtime)


class Inheriting(OfAState):
    pass


class Jumping(BaseTool):
    name: str = "jumping"
    description: str = "Change the graph, in a loop."

    def _run(self) -> str:
        return ""

    async def _arun(self) -> Command[Any]:
        return Command(goto="ask")


def _runs_them() -> Any:
    node = ToolNode([look])

    async def run(state: MessagesState) -> Any:
        return await node.ainvoke(state)

    return run


def _asks(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(interrupt("may I?"))]}


def _searches() -> Any:
    bound: RunnableBinding[Any, Any] = RunnableBinding(
        bound=says(), kwargs={"tools": [{"google_search": {}}]}
    )

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    return custom(says(), durable_tool_node([look]), ask)


class Counting(TypedDict):
    count: int


def _no_messages() -> Any:
    graph = StateGraph(Counting)
    graph.add_node("a", lambda state: state)
    graph.add_edge(START, "a")
    return graph.compile()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: _agent_of(middleware=[]), r"put DurableToolCalls\(\) first"),
        (lambda: custom(says(), ToolNode([look])), r"durable_tool_node\(tools\)"),
        (lambda: custom(says(), ToolNode([look]).with_config(tags=["a"])), r"durable_tool_node"),
        (lambda: custom(says(), RunnableLambda(dict) | ToolNode([look])), r"durable_tool_node"),
        (lambda: custom(says(), _runs_them()), r"durable_tool_node"),
        (lambda: _agent_of(look, {"type": "web_search"}), r"provider runs .*: web_search\. Give"),
        (_searches, r"'ask' has tools .*: google_search\. Give"),
        (lambda: custom(says(), durable_tool_node([look]), _asks), r"leave interrupt\(\) out"),
        (lambda: _agent_of(ask_first), r"'ask_first' asks by interrupt\(\)"),
        (lambda: _agent_of(Inheriting()), "ToolRuntime as 'runtime'"),
        (lambda: _agent_of(Jumping()), "'jumping' returns a Command"),
        (lambda: _agent_of(checkpointer=InMemorySaver()), "checkpointer"),
        (lambda: _agent_of(interrupt_before=["tools"]), "interrupt before or after"),
        (
            lambda: _agent_of(
                middleware=[DurableToolCalls(), HumanInTheLoopMiddleware({"look": True})]
            ),
            "HumanInTheLoopMiddleware",
        ),
        (lambda: _agent_of(jump), "'jump' returns a Command"),
        (lambda: _agent_of(inner), "InjectedState as 'state'"),
        (lambda: _agent_of(runtime), "ToolRuntime as 'runtime'"),
        (lambda: StateGraph(MessagesState), "no compiled graph"),
        (_no_messages, "no messages"),
    ],
    ids=[
        "no middleware",
        "a node that runs tools",
        "the same with a config",
        "the same in a sequence",
        "a function that runs tools",
        "a tool of the provider",
        "a tool of the provider in a node",
        "a node that asks",
        "a tool that asks",
        "the runtime in a class above",
        "a command in a loop",
        "checkpointer",
        "interrupt before",
        "asks by itself",
        "a command",
        "the state",
        "the runtime",
        "not compiled",
        "no messages",
    ],
)
def test_what_would_not_be_durable_is_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        langgraph_session(name="a", graph=make(), model=says())


def test_an_interrupt_that_the_definition_does_not_show_ends_the_turn() -> None:
    def ask(state: MessagesState) -> dict[str, Any]:
        return _asks(state)

    model = says()
    graph = custom(model, durable_tool_node([look]), ask)
    with pytest.raises(ModelError, match=r"leave interrupt\(\) out") as error:
        step(langgraph_session(name="a", graph=graph, model=model))
    assert not error.value.retryable
