"""Agent definitions are checked when they are written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celeriac.sessions.built_in import BuiltInTool
from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.definition import AgentDefinition, CompactionPolicy
from celeriac.sessions.errors import ConfigurationError, DefinitionError
from celeriac.sessions.tools import FunctionTool, ToolPolicy, tool


def named(name: str) -> FunctionTool:
    return tool(name=name)(lambda: None)


def agent(**fields: object) -> AgentDefinition:
    values: dict[str, object] = {"name": "support", "instructions": "Be kind.", **fields}
    return AgentDefinition(**values)  # type: ignore[arg-type]


def test_a_name_and_instructions_are_enough() -> None:
    made = agent()
    assert list(made.models) == ["demo"]
    assert made.tools == ()


@pytest.mark.parametrize("name", ["support", "order-support.v2", "A_1", "9", "x" * 64])
def test_good_names(name: str) -> None:
    assert agent(name=name).name == name


@pytest.mark.parametrize("name", ["", "with space", "x" * 65, ".hidden", "é", "a\n", "a/b"])
def test_bad_names_are_refused_and_shown(name: str) -> None:
    with pytest.raises(DefinitionError, match="is no agent name"):
        agent(name=name)


def test_an_agent_needs_a_model() -> None:
    with pytest.raises(DefinitionError, match="`models` is empty"):
        agent(models=[])


def test_one_model_written_without_a_list_is_refused_not_spelled() -> None:
    with pytest.raises(DefinitionError, match=r"models.*'openai/gpt-5-mini'.*list"):
        agent(models="openai/gpt-5-mini")


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(DefinitionError, match="two tools are named 'cancel'"):
        agent(tools=[named("cancel"), named("look_up"), named("cancel")])


def test_a_tool_must_not_take_the_name_of_a_built_in_one() -> None:
    with pytest.raises(DefinitionError, match="two tools are named 'ask_user'"):
        agent(tools=[named("ask_user")], built_in_tools=frozenset({BuiltInTool.ASK_USER}))
    assert agent(tools=[named("ask_user")]).tools


@pytest.mark.parametrize("wrong", [print, "cancel", lambda: None, None])
def test_a_function_without_the_decorator_is_refused(wrong: Callable[..., object]) -> None:
    with pytest.raises(DefinitionError, match="decorate the function with @tool"):
        agent(tools=[wrong])


def test_a_policy_names_one_of_the_plain_tools() -> None:
    policy = ToolPolicy(effect=ToolEffect.READ)
    assert agent(tools=[named("look_up")], tool_policies={"look_up": policy}).tool_policies
    with pytest.raises(DefinitionError, match="tool_policies names 'lookup'"):
        agent(tools=[named("look_up")], tool_policies={"lookup": policy})


def test_a_compaction_policy_leaves_something_to_summarise() -> None:
    policy = CompactionPolicy(context_window_tokens=10_000, threshold=0.5, keep_recent_tokens=2_500)
    assert policy.limit_tokens == 5_000
    with pytest.raises(DefinitionError, match="starts at 5,000 tokens, so keep at most 2,500"):
        CompactionPolicy(context_window_tokens=10_000, threshold=0.5, keep_recent_tokens=2_501)


@pytest.mark.parametrize("threshold", [0, 1, -0.5, 80])
def test_a_threshold_is_a_share_of_the_window(threshold: float) -> None:
    with pytest.raises(DefinitionError, match="between 0 and 1"):
        CompactionPolicy(threshold=threshold)


def test_a_window_has_a_size() -> None:
    with pytest.raises(DefinitionError, match="context_window_tokens is 0"):
        CompactionPolicy(context_window_tokens=0)


def test_a_wrong_definition_is_a_wrong_configuration() -> None:
    assert issubclass(DefinitionError, ConfigurationError)


def test_a_definition_cannot_be_changed_afterwards() -> None:
    made = agent()
    with pytest.raises(AttributeError):
        made.name = "other"  # type: ignore[misc]
