"""What is special to LangGraph: graphs of one's own, what middleware adds, and tools in our steps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

pytest.importorskip("langgraph")

from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
    ToolRetryMiddleware,
)
from langchain.agents.structured_output import ToolStrategy
from langchain.tools import InjectedToolCallId, tool
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from langchain_core.tools import BaseTool, ToolException
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command
from pydantic import BaseModel

from celeriac import (
    AgentDefinition,
    DurableToolCalls,
    FailureKind,
    ModelError,
    ToolFailed,
    durable_tool_node,
    langgraph_session,
    session_tools,
)
from celeriac.connectors.toolset import build_toolset
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.harness import ModelStepResult
from celeriac.sessions.tools import ToolSource
from tests.harness.langgraph_steps import (
    Cut,
    Fake,
    agent,
    call_tool,
    custom,
    done,
    look,
    says,
    step,
    streamed,
    wants,
)
from tests.harness.tools import Shelf

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


@pytest.mark.parametrize("kind", ["create_agent", "custom graph"])
def test_mh_06_an_id_that_comes_again_gets_its_own_result(kind: str) -> None:
    model = says(wants("look", item="1"), wants("look", item="2"), AIMessage("done"))
    if kind == "custom graph":
        graph = custom(model, durable_tool_node([look]).with_config(tags=["wrapped"]))
        definition = langgraph_session(name="a", graph=graph, model=model)
    else:
        definition = agent(model)
    first = step(definition)
    second = step(definition, first, [done("c0", "one")])
    assert [one.arguments for one in second.calls] == ['{"item":"2"}']
    assert step(definition, second, [done("c0", "two")]).text == "done"
    results = [one.content for one in model.asked[-1] if isinstance(one, ToolMessage)]
    assert results == ["one", "two"]


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


class Total(BaseModel):
    total: int


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


def _used(response: AIMessage, tokens: int) -> AIMessage:
    response.usage_metadata = {
        "input_tokens": tokens,
        "output_tokens": tokens,
        "total_tokens": 2 * tokens,
    }
    return response


def _planning(model: Fake) -> AgentDefinition:
    async def ask(state: MessagesState) -> dict[str, Any]:
        await model.ainvoke("plan", {"tags": ["nostream"]})
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = custom(model, durable_tool_node([look]), ask)
    return langgraph_session(name="a", graph=graph, model=model)


def test_ll_03_model_calls_that_leave_no_message_are_counted() -> None:
    definition = _planning(says(_used(AIMessage("look first"), 7), _used(AIMessage("done"), 3)))
    result = step(definition)
    assert (result.text, result.usage.input_tokens, result.usage.model_calls) == ("done", 10, 2)


def test_ll_03_what_a_failed_step_used_is_counted() -> None:
    definition = _planning(says(_used(AIMessage("look first"), 7), ValueError("oh")))
    with pytest.raises(ModelError) as error:
        step(definition)
    assert error.value.usage is not None
    assert (error.value.usage.input_tokens, error.value.usage.model_calls) == (7, 1)


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


def _side_by_side(*models: Fake) -> AgentDefinition:
    graph = StateGraph(MessagesState)
    for at, model in enumerate(models):
        graph.add_node(str(at), create_agent(model, [look], middleware=[DurableToolCalls()]))
        graph.add_edge(START, str(at))
    return langgraph_session(name="a", graph=graph.compile(), model=models[0])


def _wants_as(call_id: str) -> AIMessage:
    return AIMessage("", tool_calls=[tool_call(name="look", args={}, id=call_id)])


def test_graphs_side_by_side_each_get_their_results() -> None:
    models = [says(_wants_as(one), AIMessage(f"{one} ended")) for one in ("left", "right")]
    definition = _side_by_side(*models)
    before = step(definition)
    assert [one.provider_id for one in before.calls] == ["left", "right"]
    after = step(definition, before, [done("left", "l"), done("right", "r")])
    assert (after.text, after.calls) == ("left endedright ended", [])
    assert [model.asked[-1][-1].content for model in models] == ["l", "r"]


def test_a_graph_that_ended_beside_one_that_waits_is_not_run_again() -> None:
    waits, ends = says(_wants_as("left"), AIMessage("left ended")), says(AIMessage("at once"))
    definition = _side_by_side(waits, ends)
    before = step(definition)
    assert ([one.provider_id for one in before.calls], before.text) == (["left"], "at once")
    after = step(definition, before, [done("left", "l")])
    assert (after.text, len(ends.asked), after.usage.model_calls) == ("left ended", 1, 1)


class Swallowing(AgentMiddleware[Any, Any, Any]):
    """Takes whatever comes for a failure of the tool."""

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        try:
            return await handler(request)
        except Exception as error:  # noqa: BLE001 - that is what it is about
            return ToolMessage(str(error), tool_call_id=request.tool_call["id"])


def test_a_call_whose_stop_was_caught_is_not_lost() -> None:
    model = says(wants("look"), AIMessage("it failed"))
    graph = create_agent(model, [look], middleware=[Swallowing(), DurableToolCalls()])
    with pytest.raises(ModelError, match=r"calls c0, .* put DurableToolCalls\(\) first") as error:
        step(langgraph_session(name="a", graph=graph, model=model))
    assert not error.value.retryable


def test_what_middleware_asks_for_itself_is_streamed_to_nobody() -> None:
    model = says(AIMessage("a summary"), AIMessage("the answer"))
    summing = SummarizationMiddleware(model, trigger=("messages", 3), keep=("messages", 1))
    said, result = streamed(agent(model, middleware=[summing]), "one", "two", "three")
    assert (said, result.text, result.usage.model_calls) == ("the answer", "the answer", 2)
    assert "a summary" in str(model.asked[-1][0].content)


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


def test_a_command_that_no_annotation_announces_is_no_result() -> None:
    @tool
    def surprise() -> Any:
        """Change the graph."""
        return Command(goto="ask")

    definition = agent(says(), surprise)
    with pytest.raises(TypeError, match="let it return a value"):
        call_tool(definition, "surprise")
