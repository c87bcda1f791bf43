"""What is special to ADK in a model step: agents that work in turns, in circles and side by side."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace

import pytest

pytest.importorskip("google.adk")

from google.adk.agents import BaseAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.exit_loop_tool import exit_loop
from google.genai import types
from google.genai.errors import ClientError
from pydantic import BaseModel, JsonValue

from celeriac import (
    FailureKind,
    ModelError,
    ToolContext,
    ToolDefinition,
    ToolEffect,
    ToolResult,
    google_adk_session,
)
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.messages import CallReference, Message, Role
from tests.harness.adk_steps import (
    call,
    done,
    llm,
    look,
    says,
    session,
    step,
    step_and_stream,
    text,
    turn,
    wanted,
)

# What is to replace them cannot be a sub-agent yet.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")


# --- results


def test_dh_04_three_results_come_directly_after_their_response() -> None:
    calls = [call("look", f"c{at}", item="x") for at in range(3)]
    model = says([text("Well. "), *calls], [text("all done")])
    before = step(session(llm("x", model)))
    assert (before.text, [one.provider_id for one in before.calls]) == ("Well. ", ["c0", "c1", "c2"])  # fmt: skip
    results = [
        done("c0", "Error: it broke", CallStatus.FAILED),
        done("c1", "sent"),
        done("c2", "A person rejected this call.", CallStatus.REJECTED),
    ]
    after = step(session(llm("x", model)), before, results)
    assert (after.text, after.calls, after.snapshot) == ("all done", [], None)
    assert model.results() == [
        ("c0", {"error": "Error: it broke"}),
        ("c1", {"result": "sent"}),
        ("c2", {"error": "A person rejected this call."}),
    ]
    assert [content.role for content in model.asked[-1]] == ["user", "model", "user"]


def test_a_crash_repeats_the_step_alike() -> None:
    model = says([call("look")], [text("one")], [text("two")])
    before = step(session(llm("x", model)))
    for word in ("one", "two"):
        assert step(session(llm("x", model)), before, [done("c0", "found")]).text == word
    assert model.asked[1] == model.asked[2]


def test_results_of_other_calls_begin_with_the_conversation() -> None:
    model = says([call("look")], [text("anew")])
    before = step(session(llm("x", model)))
    assert step(session(llm("x", model)), before, [done("other", "found")]).text == "anew"
    assert len(model.asked[-1]) == 1


def test_a_signature_of_the_model_comes_back_as_it_was() -> None:
    signed = types.Part(
        function_call=types.FunctionCall(name="look", args={}, id="c0"),
        thought_signature=b"\x00\xff\xfe signed",
    )
    model = says([signed], [text("done")])
    before = step(session(llm("x", model)))
    step(session(llm("x", model)), before, [done("c0", "found")])
    [part] = model.asked[-1][1].parts or []
    assert part.thought_signature == b"\x00\xff\xfe signed"


def test_mh_06_an_id_that_comes_again_is_another_call() -> None:
    model = says([call("look", "c0")], [call("look", "c0")], [text("done")])
    steps = turn(lambda: llm("x", model))
    assert wanted(steps) == [1, 1, 0]
    first, second = (one.calls[0].provider_id for one in steps[:2])
    assert first == "c0" != second
    assert model.results() == [
        ("c0", {"result": "found c0"}),
        (second, {"result": f"found {second}"}),
    ]


def test_two_calls_of_one_id_are_a_broken_response() -> None:
    with pytest.raises(ModelError) as error:
        step(session(llm("x", says([call("look", "c"), call("look", "c")]))))
    assert error.value.retryable


def test_an_id_that_the_model_left_out_is_made() -> None:
    model = says([call("look", None), call("look", None)], [text("done")])
    steps = turn(lambda: llm("x", model))
    assert wanted(steps) == [2, 0]


def test_an_unknown_tool_beside_a_known_one() -> None:
    model = says([call("look", "c0"), call("nope", "c1")], [text("done")])
    steps = turn(lambda: llm("x", model))
    assert ([one.name for one in steps[0].calls], steps[1].text) == (["look", "nope"], "done")
    assert [one.usage.model_calls for one in steps] == [1, 1]
    assert dict(model.results())["c1"] == {"result": "found c1"}


def test_what_is_not_streamed_is_shown_once() -> None:
    _, streamed = asyncio.run(step_and_stream(session(llm("x", says([text("hello")])))))
    assert streamed == "hello"


def test_errors_of_the_model_are_sorted() -> None:
    blocked = LlmResponse(error_code="SAFETY", error_message="no")
    broken = LlmResponse(error_code="MALFORMED_FUNCTION_CALL")
    busy = ClientError(429, {"error": {"message": "slow down"}})
    agent = session(llm("x", says(busy, blocked, broken)))
    found = []
    for _ in range(3):
        with pytest.raises(ModelError) as error:
            step(agent)
        found.append((error.value.retryable, error.value.kind))
    assert found == [
        (True, FailureKind.BUSY),
        (False, FailureKind.CONTENT_POLICY),
        (True, FailureKind.BROKEN),
    ]


def test_an_answer_from_which_calls_were_left_out_is_broken() -> None:
    """As ADK's client for LiteLLM reports arguments that are no JSON, beside what else was said."""
    left_out = LlmResponse(
        content=types.Content(role="model", parts=[text("I cancel it."), call("look")]),
        error_code="MALFORMED_FUNCTION_CALL",
    )
    with pytest.raises(ModelError) as error:
        step(session(llm("x", says(left_out))))
    assert (error.value.retryable, error.value.kind) == (True, FailureKind.BROKEN)


def test_an_answer_that_was_cut_is_one() -> None:
    cut = LlmResponse(
        content=types.Content(role="model", parts=[text("half")]), error_code="MAX_TOKENS"
    )
    assert step(session(llm("x", says(cut)))).text == "half"


@pytest.mark.parametrize(("total", "output"), [(18, 8), (15, 5), (None, 8)])
def test_thoughts_are_counted_once(total: int | None, output: int) -> None:
    used = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=10,
        candidates_token_count=5,
        thoughts_token_count=3,
        total_token_count=total,
    )
    said = LlmResponse(content=types.Content(role="model", parts=[text("x")]), usage_metadata=used)
    usage = step(session(llm("x", says(said)))).usage
    assert (usage.output_tokens, usage.reasoning_tokens) == (output, 3)


def test_a_placeholder_that_nothing_fills_is_not_tried_again() -> None:
    with pytest.raises(ModelError, match="colour") as error:
        step(session(llm("x", says(), instruction="It is {colour}.")))
    assert not error.value.retryable


def test_a_tool_of_a_server_with_the_name_of_adks_own_does_not_run_here() -> None:
    model = says([call("exit_loop", "c0")], [text("done")])
    definition = google_adk_session(name="a", agent=llm("x", model), tool_sources=[Server()])
    assert [one.name for one in step(definition).calls] == ["exit_loop"]


class Server:
    async def list_tools(self) -> Sequence[ToolDefinition]:
        return [
            ToolDefinition(
                name="exit_loop",
                description="Exit.",
                input_schema={"type": "object", "properties": {}},
                effect=ToolEffect.READ,
            )
        ]

    async def call(
        self, tool: ToolDefinition, arguments: Mapping[str, JsonValue], context: ToolContext
    ) -> ToolResult:
        raise AssertionError("no tool runs within a run")


# --- agents in turns, in circles, side by side


def test_those_that_come_after_work_though_the_snapshot_is_lost() -> None:
    first, second = says([call("look", "c0")], [text("a done. ")]), says([text("b done.")])

    def make() -> BaseAgent:
        return SequentialAgent(name="s", sub_agents=[llm("a", first), llm("b", second)])

    before = step(session(make()))
    asked = CallReference(id="call_c0", tool="look", arguments="{}", provider_id="c0")
    history = [
        Message(seq=1, role=Role.ASSISTANT, text="", calls=[asked], created_at=0),
        Message(
            seq=2,
            role=Role.TOOL,
            text="found",
            tool="look",
            call_id="call_c0",
            status=CallStatus.SUCCEEDED,
            created_at=0,
        ),
    ]
    assert isinstance(before.snapshot, dict)
    for kept in (None, replace(before, snapshot={**before.snapshot, "events": []})):
        first.says[:], second.says[:] = [[text("a done. ")]], [[text("b done.")]]
        last = step(session(make()), kept, history=history)
        assert last.text == "a done. b done."
        assert "found" in str(first.asked[-1])


def test_one_after_the_other() -> None:
    first = says([call("look", "c0")], [text("a done. ")])
    second = says([call("look", "c1")], [text("b done.")])
    steps = turn(lambda: SequentialAgent(name="s", sub_agents=[llm("a", first), llm("b", second)]))
    assert wanted(steps) == [1, 1, 0]
    assert [one.text for one in steps] == ["", "a done. ", "b done."]
    assert steps[1].usage.model_calls == 2


def test_in_a_circle_until_it_is_left() -> None:
    model = says(
        [call("look", "c0")],
        [text("once. ")],
        [call("look", "c1")],
        [text("twice."), call("exit_loop", "c2")],
    )
    steps = turn(
        lambda: LoopAgent(
            name="l", max_iterations=5, sub_agents=[llm("a", model, tools=[look, exit_loop])]
        )
    )
    assert wanted(steps) == [1, 1, 0]
    assert [one.text for one in steps] == ["", "once. ", "twice."]


def test_side_by_side_nothing_is_lost_and_what_follows_comes_last() -> None:
    one = says([call("look", "c0")], [call("look", "c2")], [text("one. ")])
    two = says([call("look", "c1")], [text("two. ")])
    last = says([text("last.")])

    def make() -> BaseAgent:
        both = ParallelAgent(name="p", sub_agents=[llm("a", one), llm("b", two)])
        return SequentialAgent(name="s", sub_agents=[both, llm("c", last)])

    steps = turn(make)
    assert wanted(steps) == [2, 1, 0]
    assert "".join(one.text for one in steps) == "two. one. last."
    assert [len(model.asked) for model in (one, two, last)] == [3, 2, 1]


def test_an_agent_hands_over_in_the_middle_of_a_turn() -> None:
    root = says([call("transfer_to_agent", "t0", agent_name="b")])
    helper = says([call("look", "c0")], [text("b done")])

    def make() -> BaseAgent:
        return llm("a", root, sub_agents=[llm("b", helper, description="helps")])

    steps = turn(make)
    assert (wanted(steps), steps[0].usage.model_calls) == ([1, 0], 2)
    assert steps[1].text == "b done"
    assert isinstance(steps[1].snapshot, dict)
    assert steps[1].snapshot["speaker"] == "b"


def test_a_hand_over_beside_a_call_loses_neither() -> None:
    root = says([call("look", "c0"), call("transfer_to_agent", "t0", agent_name="b")])
    helper = says([text("b done")])

    def make() -> BaseAgent:
        return llm("a", root, sub_agents=[llm("b", helper, description="helps")])

    steps = turn(make)
    assert (wanted(steps), steps[1].text) == ([1, 0], "b done")
    heard = str(helper.asked[0])
    assert "found c0" in heard


def test_a_workflow_that_an_agent_hands_over_to_goes_on_to_its_end() -> None:
    root = says([call("transfer_to_agent", "t0", agent_name="w")])
    first = says([call("look", "c0")], [text("a done")])
    second = says([call("look", "c0")], [text("b done")])

    def make() -> BaseAgent:
        inner = [llm("a", first), llm("b", second)]
        workflow = SequentialAgent(name="w", description="works", sub_agents=inner)
        return llm("r", root, sub_agents=[workflow])

    steps = turn(make)
    assert wanted(steps) == [1, 1, 0]
    assert [one.text for one in steps] == ["", "a done", "b done"]
    assert [len(model.asked) for model in (root, first, second)] == [1, 2, 2]


class Own(BaseAgent):
    """An agent of the author's, as ADK wants one that is resumed."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        for agent in self.sub_agents:
            if ctx.end_of_agents.get(agent.name):
                continue
            async for event in agent.run_async(ctx):
                yield event
                if ctx.should_pause_invocation(event):
                    return


def test_an_agent_of_ones_own_goes_on_with_what_comes_next() -> None:
    first = says([call("look", "c0")], [text("a done.")])
    second = says([call("look", "c0")], [text("b done.")])
    steps = turn(lambda: Own(name="o", sub_agents=[llm("a", first), llm("b", second)]))
    assert wanted(steps) == [1, 1, 0]
    assert [one.text for one in steps] == ["", "a done.", "b done."]
    assert (len(first.asked), len(second.asked)) == (2, 2)


def test_side_by_side_in_a_workflow_within_a_workflow_with_equal_ids() -> None:
    one = says([call("look", "c0")], [call("look", "c0")], [text("a")])
    two, three = says([text("b")]), says([call("look", "c0")], [text("c")])
    last = says([text("d")])

    def make() -> BaseAgent:
        in_turns = SequentialAgent(name="q", sub_agents=[llm("b", two), llm("c", three)])
        both = ParallelAgent(name="p", sub_agents=[llm("a", one), in_turns])
        return SequentialAgent(name="s", sub_agents=[both, llm("d", last)])

    steps = turn(make)
    assert wanted(steps) == [2, 1, 0]
    assert [sorted(one.text) for one in steps] == [["b"], ["c"], ["a", "d"]]
    assert [len(model.asked) for model in (one, two, three, last)] == [3, 1, 2, 1]


def test_an_agent_that_would_leave_the_circle_beside_a_call_says_so_again() -> None:
    model = says([call("look", "c0"), call("exit_loop", "c1")], [call("exit_loop", "c2")])
    steps = turn(
        lambda: LoopAgent(
            name="l", max_iterations=5, sub_agents=[llm("a", model, tools=[look, exit_loop])]
        )
    )
    assert wanted(steps) == [1, 0]
    assert model.results() == [("c0", {"result": "found c0"})]


def test_typed_output_comes_after_the_results() -> None:
    model = says(
        [call("look", "c0"), call("set_model_response", "c1", total=1)],
        [call("set_model_response", "c2", total=3)],
    )
    steps = turn(lambda: llm("a", model, output_schema=Bill))
    assert (wanted(steps), json.loads(steps[1].text)) == ([1, 0], {"total": 3})


class Bill(BaseModel):
    total: int


def test_what_agents_put_into_the_state_stays_over_turns() -> None:
    first = says([text("red")])
    agent = session(llm("a", first, output_key="colour"))
    before = step(agent)
    assert before.snapshot == {"speaker": "a", "state": {"colour": "red"}, "events": []}
    asked = says([text("so it is")])
    step(session(llm("a", asked, instruction="It is {colour}.")), before)
