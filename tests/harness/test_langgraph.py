"""What is special to LangGraph: graphs of one's own, what middleware adds, and what cannot run in a session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph")

from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    TodoListMiddleware,
    ToolRetryMiddleware,
)
from langchain.agents.structured_output import ToolStrategy
from langchain.tools import InjectedState, InjectedToolCallId, ToolRuntime, tool
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.messages.tool import tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import BaseTool, ToolException
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt
from pydantic import BaseModel, Field, JsonValue

from celeriac import (
    AgentDefinition,
    DefinitionError,
    DurableToolCalls,
    FailureKind,
    ModelError,
    ToolContext,
    ToolEffect,
    ToolFailed,
    ToolPolicy,
    ToolResult,
    durable_tool_node,
    langgraph_session,
    session_tools,
)
from celeriac.connectors.toolset import build_toolset
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.harness import CallResult, ModelStepContext, ModelStepResult
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.model import ModelRequest
from celeriac.sessions.tools import ToolSource
from tests.harness.tools import Shelf

READ = ToolPolicy(effect=ToolEffect.READ)


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
    async def run() -> ModelStepResult:
        toolset = await build_toolset(definition)
        request = ModelRequest(
            model=definition.models[0],
            instructions="",
            messages=[Message(seq=0, role=Role.USER, text="go", created_at=0)],
            tools=toolset.definitions,
            session_id="s",
            turn_id="t1",
            attempt=1,
            timeout_seconds=60,
        )
        # As it comes back from the store.
        snapshot = None if before is None else json.loads(json.dumps(before.snapshot))
        assert definition.harness is not None
        async for item in definition.harness.run_model(
            ModelStepContext(request, snapshot, results)
        ):
            if isinstance(item, ModelStepResult):
                return item
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


# --- what cannot run durably


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


class Total(BaseModel):
    total: int


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


def test_a_graph_that_interrupts_itself_says_what_to_do() -> None:
    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(interrupt("may I?"))]}

    model = says()
    graph = custom(model, durable_tool_node([look]), ask)
    with pytest.raises(ModelError, match=r"leave interrupt\(\) out") as error:
        step(langgraph_session(name="a", graph=graph, model=model))
    assert not error.value.retryable


# --- results


@pytest.mark.parametrize("kind", ["create_agent", "custom graph"])
def test_dh_04_three_results_come_directly_after_their_response(kind: str) -> None:
    model = says(wants("look", "look", "look", item="x"), AIMessage("all done"))
    if kind == "custom graph":
        graph = custom(model, durable_tool_node([look]))
        definition = langgraph_session(name="a", graph=graph, model=model)
    else:
        definition = agent(model)
    before = step(definition)
    assert (before.text, [one.provider_id for one in before.calls]) == ("Well. ", ["c0", "c1", "c2"])  # fmt: skip
    results = [
        done("c0", "Error: it broke", CallStatus.FAILED),
        done("c1", "sent"),
        done("c2", "A person rejected this call.", CallStatus.REJECTED),
    ]
    after = step(definition, before, results)
    assert (after.text, after.calls, after.snapshot) == ("all done", [], None)
    parts = model.asked[-1][-3:]
    assert [(one.tool_call_id, one.content) for one in parts if isinstance(one, ToolMessage)] == [
        ("c0", "Error: it broke"),
        ("c1", "sent"),
        ("c2", "A person rejected this call."),
    ]
    assert isinstance(model.asked[-1][-4], AIMessage)


def test_a_crash_repeats_the_step_alike() -> None:
    model = says(wants("look"), AIMessage("one"), AIMessage("two"))
    definition = agent(model)
    before = step(definition)
    for word in ("one", "two"):
        assert step(definition, before, [done("c0", "found")]).text == word
    assert [m.content for m in model.asked[1]] == [m.content for m in model.asked[2]]


def test_results_of_other_calls_begin_with_the_conversation() -> None:
    model = says(wants("look"), AIMessage("anew"))
    definition = agent(model)
    before = step(definition)
    assert step(definition, before, [done("other", "found")]).text == "anew"
    assert [m.content for m in model.asked[-1]] == ["go"]


@pytest.mark.parametrize("ids", [("c", "c"), (None, "c")], ids=["the same", "none"])
def test_calls_that_cannot_be_told_apart_are_a_broken_response(ids: Sequence[str | None]) -> None:
    calls = [tool_call(name="look", args={}, id=one) for one in ids]
    with pytest.raises(ModelError) as error:
        step(agent(says(AIMessage("", tool_calls=calls))))
    assert error.value.retryable


def test_arguments_that_were_cut_are_not_mended() -> None:
    [call] = step(agent(Cut(says=[]))).calls
    assert call.arguments == '{"item": "x", "amount": 10'


def test_what_is_no_json_at_all_is_a_call_too() -> None:
    broken = {"name": "look", "args": "{oh", "id": "c1", "error": None, "type": "invalid_tool_call"}
    response = AIMessage(
        "", tool_calls=[tool_call(name="look", args={}, id="c0")], invalid_tool_calls=[broken]
    )
    result = step(agent(says(response)))
    assert [(one.provider_id, one.arguments) for one in result.calls] == [("c0", "{}"), ("c1", "{oh")]  # fmt: skip
    assert (result.snapshot, result.items) == (None, [])


def test_typed_output_is_the_answer_as_json() -> None:
    model = says(
        AIMessage("", tool_calls=[tool_call(name="Total", args={"total": 3}, id="c0")]),
    )
    last = step(agent(model, response_format=ToolStrategy(Total)))
    assert (last.text, last.items, last.calls) == ('{"total":3}', [], [])


def test_a_result_may_be_the_answer() -> None:
    @tool(return_direct=True)
    def direct() -> str:
        """Answer."""
        return "no"

    definition = agent(says(wants("direct")), direct)
    before = step(definition)
    assert step(definition, before, [done("c0", "so it is")]).text == "so it is"


def test_errors_of_the_model_are_sorted() -> None:
    class BusyError(Exception):
        status_code = 429

    model = says(BusyError("slow down"), ContextOverflowError("too long"))
    found = []
    for _ in range(2):
        with pytest.raises(ModelError) as error:
            step(agent(model))
        found.append((error.value.retryable, error.value.kind, error.value.context_full))
    assert found[0] == (True, FailureKind.BUSY, False)
    assert found[1][::2] == (False, True)


# --- middleware, state and graphs within


def test_a_list_of_things_to_do_is_kept_by_the_run_itself() -> None:
    todos = {"todos": [{"content": "look", "status": "pending"}]}
    first = AIMessage(
        "",
        tool_calls=[
            tool_call(name="write_todos", args=todos, id="c0"),
            tool_call(name="look", args={}, id="c1"),
        ],
    )
    model = says(first, AIMessage("done"))
    definition = agent(model, middleware=[TodoListMiddleware()])
    before = step(definition)
    assert [one.name for one in before.calls] == ["look"]
    assert step(definition, before, [done("c1", "found")]).text == "done"
    kinds = [m.tool_call_id for m in model.asked[-1] if isinstance(m, ToolMessage)]
    assert kinds == ["c0", "c1"]


def test_middleware_that_runs_tools_again_never_does() -> None:
    model = says(wants("look"), AIMessage("done"))
    definition = agent(model, middleware=[ToolRetryMiddleware(max_retries=3)])
    before = step(definition)
    failed = done("c0", "Error: it broke", CallStatus.FAILED)
    assert step(definition, before, [failed]).text == "done"


def test_the_model_hears_of_the_tools_of_sources() -> None:
    model = says(wants("shelf_put", item="pot"))
    sources: list[ToolSource] = [Shelf()]
    graph = create_agent(model, [look], middleware=[DurableToolCalls()])
    definition = langgraph_session(name="a", graph=graph, model=model, tool_sources=sources)
    assert [one.name for one in step(definition).calls] == ["shelf_put"]
    assert model.bound == ["look", "shelf_put"]
    assert session_tools() == []


@dataclass
class Basket:
    items: list[str]


class Shopping(MessagesState):
    basket: Basket


class Filling(AgentMiddleware[Any, Any, Any]):
    class State(AgentState[Any]):
        basket: Basket

    state_schema = State

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return None if "basket" in state else {"basket": Basket(["pear"])}


def test_a_class_in_the_state_must_be_named_to_be_read_back() -> None:
    def shop(*types: type) -> ModelStepResult:
        model = says(wants("look"), AIMessage("done"))
        graph = create_agent(model, [look], middleware=[DurableToolCalls(), Filling()])
        definition = langgraph_session(name="a", graph=graph, model=model, state_types=types)
        return step(definition, step(definition), [done("c0", "found")])

    assert shop(Basket).text == "done"
    with pytest.raises(ModelError, match=r"Basket: name such classes in state_types") as error:
        shop()
    assert not error.value.retryable


def test_a_graph_within_the_graph_stops_and_goes_on() -> None:
    model = says(wants("look"), AIMessage("inside"), AIMessage("outside"))
    within = create_agent(model, [look], middleware=[DurableToolCalls()])

    async def last(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("helper", within)
    graph.add_node("last", last)
    graph.add_edge(START, "helper")
    graph.add_edge("helper", "last")
    definition = langgraph_session(name="a", graph=graph.compile(), model=model)
    before = step(definition)
    assert (before.text, [one.name for one in before.calls]) == ("Well. ", ["look"])
    after = step(definition, before, [done("c0", "found")])
    assert (after.text, after.usage.model_calls) == ("insideoutside", 2)


def test_the_snapshot_holds_nothing_of_the_context() -> None:
    @dataclass
    class Secrets:
        key: str

    model = says(wants("look"))
    graph = create_agent(model, [look], middleware=[DurableToolCalls()], context_schema=Secrets)
    definition = langgraph_session(
        name="a", graph=graph, model=model, context=lambda: Secrets("hunter2")
    )
    kept = json.dumps(step(definition).snapshot)
    assert "hunter2" not in kept
    assert len(kept) < 8_000


# --- tools in our steps


def test_a_tool_knows_its_call_id() -> None:
    @tool
    def who(times: int, call_id: Annotated[str, InjectedToolCallId]) -> dict[str, str]:
        """Say who."""
        return {"said": call_id * times}

    definition = agent(says(), who)
    assert call_tool(definition, "who", times=2) == {"said": "call_1call_1"}
    [declared] = asyncio.run(build_toolset(definition)).definitions
    assert list(declared.input_schema["properties"]) == ["times"]  # type: ignore[arg-type]


def test_a_failure_is_no_result() -> None:
    @tool
    def fail(how: str) -> str:
        """Fail."""
        raise {
            "theirs": ToolException("no such thing"),
            "ours": ToolFailed("certainly not"),
            "broken": ValueError("perhaps"),
        }[how]

    handled: BaseTool = tool("handled")(fail.func)  # type: ignore[attr-defined]
    handled.handle_tool_error = True
    definition = agent(says(), fail, handled)
    for name, how, words in (
        ("fail", "theirs", "no such"),
        ("fail", "ours", "certainly"),
        ("handled", "theirs", "no such"),
    ):
        with pytest.raises(ToolFailed, match=words):
            call_tool(definition, name, how=how)
    with pytest.raises(ValueError, match="perhaps"):
        call_tool(definition, "fail", how="broken")
