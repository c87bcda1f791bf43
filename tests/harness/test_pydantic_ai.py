"""What is special to Pydantic AI: typed output, rich returns, its hooks, and what it would run itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from inspect import isawaitable
from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from pydantic import BaseModel, JsonValue
from pydantic_ai import Agent, ModelRetry, RunContext, ToolFailed as FrameworkToolFailed, ToolReturn
from pydantic_ai.capabilities import WebSearch
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest as FrameworkRequest,
    SystemPromptPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import ExternalToolset, FunctionToolset

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
    pydantic_ai_session,
)
from celeriac.connectors.toolset import build_toolset
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.harness import CallResult, ModelStepContext, ModelStepResult
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.model import ModelRequest, TextDelta

READ = ToolPolicy(effect=ToolEffect.READ)
Piece = str | dict[int, DeltaToolCall] | Exception


class Bill(BaseModel):
    total: int


class Fake(FunctionModel):
    """Streams one list of pieces at each request, and remembers what it was asked."""

    def __init__(self, *steps: Sequence[Piece]) -> None:
        self.asked: list[list[ModelMessage]] = []
        self._steps = list(steps)
        super().__init__(stream_function=self._stream)

    async def _stream(
        self, messages: list[ModelMessage], _: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        self.asked.append(list(messages))
        for piece in self._steps.pop(0):
            if isinstance(piece, Exception):
                raise piece
            yield piece

    def parts(self) -> list[object]:
        """The parts of the last message of the last request."""
        return list(self.asked[-1][-1].parts)


def call(
    at: int, name: str, arguments: str, call_id: str | None = None
) -> dict[int, DeltaToolCall]:
    return {at: DeltaToolCall(name, arguments, tool_call_id=call_id or f"c{at}")}


def look(item: str) -> str:
    """Look an item up."""
    raise AssertionError("no tool runs within a run")


def step(
    definition: AgentDefinition,
    before: ModelStepResult | None = None,
    results: Sequence[CallResult] | None = None,
) -> tuple[ModelStepResult, str]:
    """One model step: the result, and the text that was streamed."""

    async def run() -> tuple[ModelStepResult, str]:
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
        snapshot = None if before is None else before.snapshot
        assert definition.harness is not None
        text = ""
        async for item in definition.harness.run_model(
            ModelStepContext(request, snapshot, results)
        ):
            if isinstance(item, TextDelta):
                text += item.text
            elif isinstance(item, ModelStepResult):
                return item, text
        raise AssertionError("no result")

    return asyncio.run(run())


def done(call_id: str, text: str, status: CallStatus = CallStatus.SUCCEEDED) -> CallResult:
    return CallResult(call_id, f"call_{call_id}", "look", status, text)


def call_tool(definition: AgentDefinition, name: str, **arguments: JsonValue) -> JsonValue:
    async def run() -> JsonValue:
        tool = (await build_toolset(definition)).get(name)
        assert tool is not None
        context = ToolContext(session_id="s", call_id="call_1", idempotency_key="call_1", attempt=1)
        value = tool.invoke(arguments, context)
        assert isawaitable(value)
        result = await value
        assert isinstance(result, ToolResult)
        return result.value

    return asyncio.run(run())


# --- what cannot run durably


@pytest.mark.parametrize(
    ("agent", "word"),
    [
        (Agent(), "its model"),
        (Agent(TestModel(), capabilities=[WebSearch()]), "web_search"),
        (Agent(TestModel(), toolsets=[ExternalToolset([])]), "ExternalToolset"),
        (Agent(TestModel(), toolsets=[FunctionToolset([look]).prefixed("x")]), "PrefixedToolset"),
        (Agent(TestModel(), tools=[look], toolsets=[FunctionToolset([look])]), "'look'"),
    ],
    ids=["no model", "native tool", "external toolset", "other toolset", "equal names"],
)
def test_what_would_run_inside_the_model_step_is_refused(agent: Agent[Any, Any], word: str) -> None:
    with pytest.raises(DefinitionError, match=word):
        pydantic_ai_session(name="a", agent=agent)


def test_an_approval_that_the_tool_asks_for_stays() -> None:
    agent = Agent(TestModel())
    agent.tool_plain(requires_approval=True)(look)
    definition = pydantic_ai_session(name="a", agent=agent, tool_policies={"look": READ})
    [found] = asyncio.run(build_toolset(definition)).definitions
    assert (found.effect, found.approval) == (ToolEffect.READ, True)


# --- results


@pytest.mark.parametrize(
    "first", [(CallStatus.SUCCEEDED, "found"), (CallStatus.FAILED, "Error: it broke")], ids=str
)
def test_dh_04_three_results_come_directly_after_their_response(
    first: tuple[CallStatus, str],
) -> None:
    model = Fake(
        ["Well. ", *(call(at, "look", '{"item": "x"}') for at in range(3))], ["all ", "done"]
    )
    definition = pydantic_ai_session(name="a", agent=Agent(model, tools=[look]))
    before, text = step(definition)
    assert (before.text, text, [one.provider_id for one in before.calls]) == ("Well. ", "Well. ", ["c0", "c1", "c2"])  # fmt: skip
    status, words = first
    results = [
        done("c0", words, status),
        done("c1", "sent"),
        done("c2", "A person rejected this call.", CallStatus.REJECTED),
    ]
    after, text = step(definition, before, results)
    assert (after.text, text, after.calls, after.snapshot) == ("all done", "all done", [], None)
    parts = [part for part in model.parts() if isinstance(part, ToolReturnPart)]
    assert [part.tool_call_id for part in parts] == ["c0", "c1", "c2"]
    assert [part.content for part in parts] == [words, "sent", "A person rejected this call."]
    assert len(parts) == len(model.parts())


def test_a_crash_repeats_the_step_alike() -> None:
    model = Fake([call(0, "look", "{}")], ["one"], ["two"])
    definition = pydantic_ai_session(name="a", agent=Agent(model, tools=[look]))
    before, _ = step(definition)
    for word in ("one", "two"):
        assert step(definition, before, [done("c0", "found")])[0].text == word
    assert [m.parts[-1].part_kind for m in model.asked[1]] == [
        m.parts[-1].part_kind for m in model.asked[2]
    ]


def test_two_calls_of_one_id_are_a_broken_response() -> None:
    model = Fake([call(0, "look", "{}", "c"), call(1, "look", "{}", "c")])
    definition = pydantic_ai_session(name="a", agent=Agent(model, tools=[look]))
    with pytest.raises(ModelError) as error:
        step(definition)
    assert error.value.retryable


def test_typed_output_is_the_answer_as_json() -> None:
    model = Fake([call(0, "final_result", '{"total": 3}')])
    definition = pydantic_ai_session(name="a", agent=Agent(model, output_type=Bill))
    last, _ = step(definition)
    assert (last.text, last.items, last.calls) == ('{"total":3}', [], [])


def test_several_output_types_stay_and_tools_still_stop_the_run() -> None:
    model = Fake([call(0, "look", "{}")])
    agent = Agent(model, output_type=[Bill, str], tools=[look])
    first, _ = step(pydantic_ai_session(name="a", agent=agent))
    assert [one.name for one in first.calls] == ["look"]


def test_the_system_prompt_is_there_though_it_is_in_no_conversation() -> None:
    model = Fake(["hello"])
    agent = Agent(model, system_prompt="Be kind.", instructions="Be brief.")
    step(pydantic_ai_session(name="a", agent=agent))
    [request] = model.asked[-1]
    assert isinstance(request, FrameworkRequest)
    kinds = [type(part) for part in request.parts]
    assert kinds == [SystemPromptPart, UserPromptPart]
    assert request.instructions == "Be brief."


def test_errors_of_the_model_are_sorted() -> None:
    model = Fake([ModelHTTPError(429, "m", None)], [ModelHTTPError(401, "m", None)])
    definition = pydantic_ai_session(name="a", agent=Agent(model))
    found = []
    for _ in range(2):
        with pytest.raises(ModelError) as error:
            step(definition)
        found.append((error.value.retryable, error.value.kind))
    assert found == [(True, FailureKind.BUSY), (False, FailureKind.AUTHENTICATION)]


# --- tools in our steps


def test_a_tool_knows_its_call_id_and_the_deps() -> None:
    agent = Agent(TestModel(), deps_type=str)

    @agent.tool
    async def who(ctx: RunContext[str], times: int = 1) -> str:
        """Say who."""
        return f"{ctx.deps} {ctx.tool_call_id}" * times

    definition = pydantic_ai_session(name="a", agent=agent, deps=lambda: "shop")
    assert call_tool(definition, "who") == "shop call_1"


def test_a_failure_is_no_result() -> None:
    def fail(how: str) -> str:
        """Fail."""
        raise {
            "retry": ModelRetry("ask again"),
            "theirs": FrameworkToolFailed("no such thing"),
            "ours": ToolFailed("certainly not"),
            "broken": ValueError("perhaps"),
        }[how]

    definition = pydantic_ai_session(name="a", agent=Agent(TestModel(), tools=[fail]))
    for how, words in (("retry", "ask again"), ("theirs", "no such"), ("ours", "certainly")):
        with pytest.raises(ToolFailed, match=words):
            call_tool(definition, "fail", how=how)
    with pytest.raises(ValueError, match="perhaps"):
        call_tool(definition, "fail", how="broken")


def test_dh_04_a_rich_return_keeps_what_it_says_beside_the_result() -> None:
    def rich() -> ToolReturn[int]:
        """Say more."""
        return ToolReturn(return_value=3, content="mind the gap", metadata={"a": 1})

    definition = pydantic_ai_session(name="a", agent=Agent(TestModel(), tools=[rich]))
    assert call_tool(definition, "rich") == {"result": 3, "content": ["mind the gap"]}
