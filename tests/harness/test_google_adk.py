"""What is special to ADK: agents that work in turns, circles and side by side, and what cannot run in a session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from inspect import isawaitable
from typing import Any

import pytest

pytest.importorskip("google.adk")

from google.adk.agents import BaseAgent, LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.code_executors import UnsafeLocalCodeExecutor
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.exit_loop_tool import exit_loop
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.google_search_tool import google_search
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext as FrameworkContext
from google.genai import types
from google.genai.errors import ClientError
from pydantic import Field, JsonValue

from celeriac import (
    AgentDefinition,
    DefinitionError,
    FailureKind,
    ModelError,
    ToolContext,
    ToolEffect,
    ToolFailed,
    ToolPolicy,
    ToolResult,
    google_adk_session,
)
from celeriac.connectors.toolset import build_toolset
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.harness import CallResult, ModelStepContext, ModelStepResult
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.model import ModelRequest, TextDelta

# What is to replace them cannot be a sub-agent yet.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")

READ = ToolPolicy(effect=ToolEffect.READ)


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
) -> ModelStepResult:
    return asyncio.run(_step(definition, before, results))[0]


async def _step(
    definition: AgentDefinition,
    before: ModelStepResult | None = None,
    results: Sequence[CallResult] | None = None,
) -> tuple[ModelStepResult, str]:
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


# --- what cannot run durably


class Tools(BaseToolset):
    async def get_tools(self, readonly_context: Any = None) -> list[Any]:
        return []


def other(item: str) -> str:
    """Look another item up."""
    return item


other.__name__ = "look"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: "an agent", "str is no agent of ADK"),
        (lambda: SequentialAgent(name="s"), "no LlmAgent"),
        (lambda: LlmAgent(name="x", model="nonsense"), "its model"),
        (
            lambda: llm("x", says(), code_executor=UnsafeLocalCodeExecutor()),
            "UnsafeLocalCodeExecutor",
        ),
        (lambda: llm("x", says(), before_tool_callback=lambda *_: None), "before_tool_callback"),
        (lambda: llm("x", says(), tools=[google_search]), "GoogleSearchTool"),
        (lambda: llm("x", says(), tools=[Tools()]), "toolset"),
        (lambda: llm("x", says(), tools=[LongRunningFunctionTool(look)]), "long running"),
        (
            lambda: llm("x", says(), sub_agents=[llm("y", says(), tools=[other])]),
            "two tools are named 'look'",
        ),
    ],
    ids=[
        "no agent",
        "no model agent",
        "no model",
        "runs code",
        "tool callback",
        "hosted tool",
        "toolset",
        "long running",
        "equal names",
    ],
)
def test_what_would_not_be_durable_is_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        google_adk_session(name="a", agent=make())


def test_a_confirmation_that_the_tool_asks_for_stays() -> None:
    agent = llm("x", says(), tools=[FunctionTool(look, require_confirmation=True)])
    definition = google_adk_session(name="a", agent=agent, tool_policies={"look": READ})
    [found] = asyncio.run(build_toolset(definition)).definitions
    assert (found.effect, found.approval) == (ToolEffect.READ, True)


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
    assert ([one.name for one in steps[0].calls], steps[1].text) == (["look"], "done")
    assert steps[0].items == []
    told = dict(model.results())
    assert told["c0"] == {"result": "found c0"}
    assert "no tool with that name" in str(told["c1"])


def test_what_is_not_streamed_is_shown_once() -> None:
    _, streamed = asyncio.run(_step(session(llm("x", says([text("hello")])))))
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


# --- agents in turns, in circles, side by side


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


def test_what_agents_put_into_the_state_stays_over_turns() -> None:
    first = says([text("red")])
    agent = session(llm("a", first, output_key="colour"))
    before = step(agent)
    assert before.snapshot == {"speaker": "a", "state": {"colour": "red"}, "events": []}
    asked = says([text("so it is")])
    step(session(llm("a", asked, instruction="It is {colour}.")), before)


# --- tools in our steps


def test_a_tool_knows_its_call_id() -> None:
    def who(times: int, tool_context: FrameworkContext) -> dict[str, str]:
        """Say who."""
        return {"said": (tool_context.function_call_id or "") * times}

    definition = session(llm("x", says(), tools=[who]))
    assert call_tool(definition, "who", times=2) == {"said": "call_1call_1"}
    [declared] = asyncio.run(build_toolset(definition)).definitions
    assert list(declared.input_schema["properties"]) == ["times"]  # type: ignore[arg-type]


def test_a_failure_is_no_result() -> None:
    def fail(how: str) -> str:
        """Fail."""
        raise ToolFailed("certainly not") if how == "ours" else ValueError("perhaps")

    definition = session(llm("x", says(), tools=[fail]))
    with pytest.raises(ToolFailed, match="certainly"):
        call_tool(definition, "fail", how="ours")
    with pytest.raises(ValueError, match="perhaps"):
        call_tool(definition, "fail", how="broken")


@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated")
def test_an_agent_as_a_tool_runs_whole_in_its_step() -> None:
    helper = LlmAgent(name="helper", description="Helps.", model=says([text("42")]))
    definition = session(llm("x", says(), tools=[AgentTool(helper)]))
    assert call_tool(definition, "helper", request="what?") == "42"
