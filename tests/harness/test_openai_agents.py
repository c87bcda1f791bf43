"""What is special to OpenAI's Agents SDK: guardrails, graphs of agents, what it would run itself, its words for errors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from inspect import isawaitable
from itertools import count
from typing import Any

import pytest

pytest.importorskip("agents")

from agents import (
    Agent,
    CodeInterpreterTool,
    FunctionTool,
    GuardrailFunctionOutput,
    InputGuardrail,
    RunContextWrapper,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailData,
    WebSearchTool,
    function_tool,
    tool_input_guardrail,
)
from agents.mcp import MCPServerStdio
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from agents.tool_context import ToolContext as SdkToolContext
from pydantic import BaseModel, JsonValue

from celeriac import (
    AgentDefinition,
    DefinitionError,
    ModelError,
    ToolContext,
    ToolEffect,
    ToolFailed,
    ToolPolicy,
    ToolResult,
    openai_agents_session,
)
from celeriac.connectors.toolset import Toolset, build_toolset
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.harness import (
    CallResult,
    Harness,
    ModelStepContext,
    ModelStepResult,
)
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.model import ModelRequest, TextDelta

READ = ToolPolicy(effect=ToolEffect.READ)


class Bill(BaseModel):
    total: int


@function_tool
def look(item: str) -> str:
    """Look an item up."""
    return f"{item} is there"


def agent_of(*steps: object, **fields: Any) -> Agent[Any]:
    return Agent(name="front", model=ScriptedModel(list(steps)), **fields)  # type: ignore[arg-type]


def request_of(text: str, definition: AgentDefinition) -> ModelRequest:
    toolset = asyncio.run(build_toolset(definition))
    return ModelRequest(
        model=definition.models[0],
        instructions="",
        messages=[Message(seq=0, role=Role.USER, text=text, created_at=0)],
        tools=toolset.definitions,
        session_id="s",
        turn_id="t1",
        attempt=1,
        timeout_seconds=60,
    )


def harness_of(definition: AgentDefinition) -> Harness:
    assert definition.harness is not None
    return definition.harness


def step(
    definition: AgentDefinition,
    before: ModelStepResult | None = None,
    results: Sequence[CallResult] | None = None,
) -> tuple[ModelStepResult, str]:
    """One model step: the result, and the text that was streamed."""
    snapshot = None if before is None else before.snapshot
    context = ModelStepContext(request_of("go", definition), snapshot, results)

    async def run() -> tuple[ModelStepResult, str]:
        text = ""
        async for item in harness_of(definition).run_model(context):
            if isinstance(item, TextDelta):
                text += item.text
            elif isinstance(item, ModelStepResult):
                return item, text
        raise AssertionError("no result")

    return asyncio.run(run())


def done(call_id: str, text: str, status: CallStatus = CallStatus.SUCCEEDED) -> CallResult:
    return CallResult(call_id, f"call_{call_id}", "look", status, text)


def tools_of(definition: AgentDefinition) -> Toolset:
    return asyncio.run(build_toolset(definition))


def call_tool(definition: AgentDefinition, name: str, **arguments: Any) -> JsonValue:
    tool = tools_of(definition).get(name)
    assert tool is not None
    context = ToolContext(session_id="s", call_id="call_1", idempotency_key="call_1", attempt=1)

    async def run() -> JsonValue:
        value = tool.invoke(arguments, context)
        assert isawaitable(value)
        result = await value
        assert isinstance(result, ToolResult)
        return result.value

    return asyncio.run(run())


# --- what cannot run durably


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"tools": [WebSearchTool()]}, "WebSearchTool"),
        ({"tools": [CodeInterpreterTool(tool_config={"type": "code_interpreter", "container": "x"})]}, "CodeInter"),
        ({"mcp_servers": [MCPServerStdio(params={"command": "x"})]}, "tool_sources"),
        ({"handoffs": [Agent(name="front")]}, "named 'front'"),
        ({"handoffs": [Agent(name="b", tools=[WebSearchTool()])]}, "agent 'b'"),
    ],
    ids=["hosted tool", "code interpreter", "MCP servers", "equal names", "in another agent"],
)  # fmt: skip
def test_what_would_run_inside_the_model_step_is_refused(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(DefinitionError, match=word):
        openai_agents_session(name="a", agent=agent_of(**fields))


def test_a_policy_of_no_tool_is_refused() -> None:
    with pytest.raises(DefinitionError, match="nonesuch"):
        openai_agents_session(
            name="a", agent=agent_of(tools=[look]), tool_policies={"nonesuch": READ}
        )


def test_two_tools_of_one_name_are_refused() -> None:
    other = function_tool(lambda: "x", name_override="look", description_override="Else.")
    with pytest.raises(DefinitionError, match="two tools are named 'look'"):
        openai_agents_session(name="a", agent=agent_of(tools=[look, other]))


# --- effect and approval


def test_nobody_guesses_what_a_tool_does() -> None:
    asking = function_tool(lambda: "x", name_override="asking", needs_approval=True)
    agent = agent_of(tools=[look, asking, function_tool(lambda: "y", name_override="plain")])
    definition = openai_agents_session(
        name="a", agent=agent, tool_policies={"look": READ, "asking": READ}
    )
    found = {one.name: (one.effect, one.approval) for one in tools_of(definition).definitions}
    assert found == {
        "look": (ToolEffect.READ, False),
        "asking": (ToolEffect.READ, True),
        "plain": (ToolEffect.NON_IDEMPOTENT_WRITE, True),
    }


# --- guardrails


def test_a_tool_guardrail_looks_before_the_call_and_not_at_its_result() -> None:
    seen: list[str] = []

    @tool_input_guardrail
    def no_gold(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        seen.append(data.context.tool_call_id)
        if "gold" in data.context.tool_arguments:
            return ToolGuardrailFunctionOutput.reject_content("no gold")
        # Once it has said yes, nothing it says later may hide what has happened.
        if seen.count(data.context.tool_call_id) > 1:
            return ToolGuardrailFunctionOutput.reject_content("too late")
        return ToolGuardrailFunctionOutput.allow()

    guarded = function_tool(lambda item: f"{item} bought", name_override="buy", strict_mode=False)
    guarded.tool_input_guardrails = [no_gold]
    model = ScriptedModel([
        [function_call("buy", {"item": "gold"}, call_id="1"), function_call("buy", {"item": "tin"}, call_id="2")],
        [assistant_message("bought")],
    ])  # fmt: skip
    definition = openai_agents_session(
        name="a", agent=Agent(name="front", model=model, tools=[guarded])
    )
    first, _ = step(definition)
    assert [(call.provider_id, call.arguments) for call in first.calls] == [("2", '{"item":"tin"}')]
    last, _ = step(definition, first, [done("2", "tin bought")])
    assert last.text == "bought"
    given = model.calls[-1].input
    outputs = {i["call_id"]: i["output"] for i in given if i.get("type") == "function_call_output"}
    assert outputs == {"1": "no gold", "2": "tin bought"}


def test_a_tripwire_ends_the_turn_and_is_not_tried_again() -> None:
    async def trip(*_: object) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    agent = agent_of([assistant_message("x")], input_guardrails=[InputGuardrail(trip)])
    with pytest.raises(ModelError, match="Guardrail") as error:
        step(openai_agents_session(name="a", agent=agent))
    assert not error.value.retryable


# --- results


def test_a_result_is_replayed_and_the_tool_is_never_entered() -> None:
    entered: list[str] = []
    tool = function_tool(lambda: entered.append("x"), name_override="look", strict_mode=False)
    model = ScriptedModel([[function_call("look", {}, call_id="1")], [assistant_message("ok")]])
    definition = openai_agents_session(name="a", agent=Agent(name="f", model=model, tools=[tool]))
    first, _ = step(definition)
    for _ in range(2):
        model.enqueue([assistant_message("ok")])
        last, text = step(
            definition, first, [done("1", "It may or may not.", CallStatus.OUTCOME_UNKNOWN)]
        )
        assert (last.text, text, last.snapshot) == ("ok", "ok", None)
        assert model.calls[-1].input[-1]["output"] == "It may or may not."
    assert entered == []


def test_the_context_is_made_anew_and_never_kept() -> None:
    seen: list[object] = []

    def told(context: RunContextWrapper[Any], _: Agent[Any]) -> str:
        seen.append(context.context)
        return "Be brief."

    calling = [function_call("look", {"item": "x"}, call_id="1")]
    agent = agent_of(calling, [assistant_message("ok")], tools=[look], instructions=told)
    numbers = count()
    definition = openai_agents_session(
        name="a", agent=agent, context=lambda: {"password": f"pa55-{next(numbers)}"}
    )
    first, _ = step(definition)
    assert "pa55" not in str(first.snapshot)
    step(definition, first, [done("1", "x is there")])
    assert seen == [{"password": "pa55-0"}, {"password": "pa55-1"}]


def test_two_calls_of_one_id_are_a_broken_response() -> None:
    same = [function_call("look", {"item": "a"}, call_id="1") for _ in range(2)]
    with pytest.raises(ModelError) as error:
        step(openai_agents_session(name="a", agent=agent_of(same, tools=[look])))
    assert error.value.retryable


def test_a_changed_graph_goes_on_from_the_messages(caplog: pytest.LogCaptureFixture) -> None:
    other = Agent[Any](name="other", model=ScriptedModel([[function_call("look", {"item": "x"}, call_id="1")]]), tools=[look])  # fmt: skip
    first, _ = step(openai_agents_session(name="a", agent=other))
    now = openai_agents_session(name="a", agent=agent_of([assistant_message("new")], tools=[look]))
    last, _ = step(now, first, [done("1", "x")])
    assert last.text == "new"
    assert "begins anew" in caplog.text


def test_typed_output_is_the_answer_as_json() -> None:
    agent = agent_of([assistant_message('{"total": 3}')], output_type=Bill)
    last, _ = step(openai_agents_session(name="a", agent=agent))
    assert last.text == '{"total": 3}'


def test_a_result_may_be_the_answer() -> None:
    agent = agent_of(
        [function_call("look", {"item": "x"}, call_id="1")],
        tools=[look],
        tool_use_behavior="stop_on_first_tool",
    )
    definition = openai_agents_session(name="a", agent=agent)
    first, _ = step(definition)
    last, _ = step(definition, first, [done("1", "x is there")])
    assert (last.text, last.calls) == ("x is there", [])


def test_errors_of_the_model_are_sorted() -> None:
    agent = agent_of(ModelStep.raise_error(TimeoutError()))
    with pytest.raises(ModelError) as error:
        step(openai_agents_session(name="a", agent=agent))
    assert error.value.retryable


# --- tools in our steps


def test_a_tool_knows_its_call_id_and_the_context() -> None:
    @function_tool
    def who(context: SdkToolContext[str]) -> str:
        """Say who."""
        return f"{context.context} {context.tool_call_id}"

    definition = openai_agents_session(
        name="a", agent=agent_of(tools=[who]), context=lambda: "shop"
    )
    assert call_tool(definition, "who") == "shop call_1"


def test_a_failure_is_no_result() -> None:
    @function_tool
    def fail(why: str) -> str:
        """Fail."""
        raise (ToolFailed if why == "sure" else ValueError)(why)

    def soothe(_: RunContextWrapper[Any], error: Exception) -> str:
        return f"all is well: {error}"

    @function_tool(failure_error_function=soothe)
    def soothed() -> str:
        """Fail with other words."""
        raise ValueError("no")

    definition = openai_agents_session(name="a", agent=agent_of(tools=[fail, soothed]))
    with pytest.raises(ToolFailed, match="sure"):
        call_tool(definition, "fail", why="sure")
    with pytest.raises(ValueError, match="perhaps"):
        call_tool(definition, "fail", why="perhaps")
    with pytest.raises(ValueError, match="no"):
        call_tool(definition, "soothed")


def test_an_agent_as_a_tool_runs_in_the_tools_step() -> None:
    inner = Agent[Any](name="inner", model=ScriptedModel([[assistant_message("I translated.")]]))
    tool = inner.as_tool("translate", "Translate it.")
    assert isinstance(tool, FunctionTool)
    definition = openai_agents_session(name="a", agent=agent_of(tools=[tool]))
    assert call_tool(definition, "translate", input="x") == "I translated."
