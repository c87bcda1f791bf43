"""Connector tools: what an agent may name, what an attempt's end means, and what never leaves the worker."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import pickle
from collections.abc import Awaitable, Callable

import pytest
from pydantic import JsonValue

from celeriac import AgentDefinition, ToolPolicy, tool
from celeriac.connectors.sdk.connections import Connections
from celeriac.connectors.sdk.connector import Call, Connector
from celeriac.connectors.sdk.outcomes import Outcome
from celeriac.connectors.sdk.secrets import Secret
from celeriac.connectors.sdk.source import ConnectorToolSource
from celeriac.connectors.sdk.tools import connector_tool
from celeriac.connectors.toolset import build_toolset
from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.errors import (
    ConfigurationError,
    DefinitionError,
    ToolFailed,
    ToolNotRun,
    ToolOutcomeUnknown,
)
from celeriac.sessions.jsonsafe import to_json_value
from tests.connectors.sdk.calls import call, definition_of, reconcile
from tests.connectors.sdk.things import KEY, SECRET, Things

ENVIRONMENT = {f"{KEY}CONNECTOR": "things", f"{KEY}API_KEY": SECRET}


def ends(outcome: Outcome) -> None:
    async def handle(_call: Call) -> Outcome:
        return outcome

    Things.handle = staticmethod(handle)


def does(handle: Callable[[Call], Awaitable[Outcome]]) -> None:
    Things.handle = staticmethod(handle)


def make(**arguments: JsonValue) -> JsonValue:
    return call(ENVIRONMENT, "things.make", arguments)


def read(**arguments: JsonValue) -> JsonValue:
    return call(ENVIRONMENT, "things.read", arguments)


# --- what an agent may name


@pytest.mark.parametrize(
    ("operation", "told"),
    [
        ("things", "write connector and operation"),
        ("nothing.make", "there is no connector 'nothing'; installed are:"),
        ("things.unmake", "does not exist; agents may have: make, read"),
        ("things.hidden", "is not exposed to agents by its manifest"),
        ("things.findMade", "is not exposed to agents by its manifest"),
    ],
)
def test_what_agents_may_not_have_is_refused_when_it_is_named(operation: str, told: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        connector_tool(operation)
    assert told in str(caught.value)


@pytest.mark.parametrize("name", ["", "Main", "a b", "1a", "a" * 41, "a-b"])
def test_a_connections_name_is_checked(name: str) -> None:
    with pytest.raises(DefinitionError, match="is no name of a connection"):
        connector_tool("things.make", name)


def test_a_tool_is_what_its_manifest_says() -> None:
    made = connector_tool("things.make").definition
    assert (made.name, made.effect) == ("things_make", ToolEffect.NON_IDEMPOTENT_WRITE)
    assert (made.approval, made.ordered, made.reconcile_after_seconds) == (True, True, 1)
    assert (made.source, made.original_name) == ("Things", "make")
    got = connector_tool("things.read", "other").definition
    assert (got.effect, got.approval, got.ordered) == (ToolEffect.READ, False, False)
    assert got.source == "Things (other)"
    assert connector_tool("things.make", requires_approval=False).definition.approval is False


@pytest.mark.parametrize(
    ("fixed", "told"),
    [({"colour": "red"}, "fixed names 'colour'"), ({"name": 3}, "fixed.name: 3 is not of type")],
)
def test_fixed_arguments_are_checked(fixed: dict[str, JsonValue], told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        connector_tool("things.make", fixed=fixed)


def test_a_fixed_argument_is_hidden_from_the_model_and_given_to_the_operation() -> None:
    seen: list[JsonValue] = []

    async def handle(made: Call) -> Outcome:
        seen.append(dict(made.arguments))
        return Outcome("done")

    does(handle)
    definition = definition_of(ENVIRONMENT, "things.make", {"name": "always"})
    assert definition.input_schema["properties"] == {}
    call(ENVIRONMENT, "things.make", {}, fixed={"name": "always"})
    assert seen == [{"name": "always"}]
    plain = definition_of(ENVIRONMENT, "things.make")
    assert definition.digest != plain.digest, "who approves relies on it"


def test_two_tools_of_one_name_are_refused() -> None:
    tools = [connector_tool("things.make", "one"), connector_tool("things.make", "two")]
    with pytest.raises(DefinitionError, match="two tools are named 'things_make'"):
        ConnectorToolSource(tools)
    ConnectorToolSource([tools[0], connector_tool("things.make", "two", name="make_there")])


def test_names_are_unique_over_the_agent() -> None:
    @tool
    def things_make() -> None:
        """Make."""

    source = ConnectorToolSource([connector_tool("things.make")])
    with pytest.raises(DefinitionError, match="two tools are named 'things_make'"):
        AgentDefinition(name="a", instructions="", tools=[things_make], tool_sources=[source])


def test_a_policy_sets_the_approval_and_never_the_effect() -> None:
    source = ConnectorToolSource(
        [connector_tool("things.make", "main")], connections=Connections(None, ENVIRONMENT)
    )
    agent = AgentDefinition(
        name="a",
        instructions="",
        tool_sources=[source],
        tool_policies={"things_make": ToolPolicy(requires_approval=False)},
    )
    bound = asyncio.run(build_toolset(agent)).get("things_make")
    assert bound is not None
    assert bound.definition.approval is False
    policies = {"things_make": ToolPolicy(effect=ToolEffect.READ)}
    with pytest.raises(DefinitionError, match="a connector's manifest alone does that"):
        AgentDefinition(name="a", instructions="", tool_sources=[source], tool_policies=policies)


def test_what_is_no_connector_tool_is_refused() -> None:
    with pytest.raises(DefinitionError, match="use connector_tool"):
        ConnectorToolSource(["things.make"])  # type: ignore[list-item]


def test_an_operation_without_code_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"needs `async def make\(self, call\)`"):
        type("Half", (Connector,), {"manifest": Things.manifest})


# --- how an attempt ends


def test_a_branch_that_succeeded_is_the_result() -> None:
    ends(Outcome("done", {"id": 1}))
    assert make() == {"branch": "done", "id": 1}
    ends(Outcome("done", [1, 2]))
    assert make() == {"branch": "done", "value": [1, 2]}


@pytest.mark.parametrize(
    ("outcome", "write", "reading"),
    [
        (Outcome("rejected", message="no"), ToolFailed, ToolFailed),
        (Outcome("defect"), ToolFailed, ToolFailed),
        (Outcome("uncertain"), ToolOutcomeUnknown, ToolFailed),
        (Outcome("elsewhere"), ToolOutcomeUnknown, ToolFailed),
    ],
)
def test_a_branch_is_recorded_as_the_manifest_says(
    outcome: Outcome, write: type[Exception], reading: type[Exception]
) -> None:
    ends(outcome)
    with pytest.raises(write):
        make()
    with pytest.raises(reading):
        read()


def test_an_outcome_that_the_connector_calls_uncertain_is_final() -> None:
    ends(Outcome("uncertain", message="nobody knows"))
    with pytest.raises(ToolOutcomeUnknown, match="uncertain: nobody knows") as caught:
        make()
    assert not caught.value.repeatable


def test_a_defect_before_anything_was_sent_did_nothing() -> None:
    async def handle(_call: Call) -> Outcome:
        raise KeyError("surprise")

    does(handle)
    with pytest.raises(ToolNotRun, match="a defect of the connector: KeyError"):
        make()


def test_a_defect_of_a_connector_that_has_other_ways_out_is_uncertain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def handle(_call: Call) -> Outcome:
        raise KeyError("surprise")

    does(handle)
    monkeypatch.setattr(Things, "sends_only_by_http", False)
    with pytest.raises(ToolOutcomeUnknown, match="KeyError"):
        make()


def test_waits_that_a_provider_asks_for_are_passed_on() -> None:
    async def handle(_call: Call) -> Outcome:
        raise ToolNotRun("wait", retry_after_seconds=9)

    does(handle)
    with pytest.raises(ToolNotRun) as caught:
        make()
    assert caught.value.retry_after_seconds == 9


# --- looking up


@pytest.mark.parametrize(
    ("outcome", "happened"), [(Outcome("done", {"id": 1}), True), (Outcome("rejected"), None)]
)
def test_a_look_up_gets_the_writes_arguments_and_says_what_it_found(
    outcome: Outcome, happened: bool | None
) -> None:
    seen: list[Call] = []

    async def handle(made: Call) -> Outcome:
        seen.append(made)
        return outcome

    does(handle)
    found = reconcile(ENVIRONMENT, "things.make", {"name": "x"})
    assert found.happened is happened
    assert seen[0].arguments == {"name": "x"}
    assert seen[0].idempotency_key == "things.make/call_0123456789abcdef"
    assert seen[0].created_at is not None


def test_a_look_up_with_a_defect_is_made_again() -> None:
    ends(Outcome("defect", message="oh"))
    with pytest.raises(RuntimeError, match="oh"):
        reconcile(ENVIRONMENT, "things.make", {})


# --- credentials


def test_a_secret_shows_itself_to_nobody() -> None:
    secret = Secret(SECRET)
    shown = f"{secret} {secret!r} {secret:>40} {[secret]} {vars} {{}}".format(secret)
    assert SECRET not in shown
    assert SECRET not in json.dumps(to_json_value({"key": secret}))
    for serialise in (pickle.dumps, json.dumps):
        with pytest.raises(TypeError):
            serialise(secret)
    assert copy.deepcopy(secret) is secret
    assert secret.reveal() == SECRET


def test_credentials_are_taken_out_of_whatever_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    ends(Outcome("done", {"you": [f"sent {SECRET}"], SECRET: 1}))
    assert SECRET not in json.dumps(make())
    ends(Outcome("rejected", message=f"bad key {SECRET}"))
    with pytest.raises(ToolFailed) as failed:
        make()
    assert SECRET not in str(failed.value)

    async def handle(made: Call) -> Outcome:
        raise ValueError(f"with {made.credentials['apiKey'].reveal()}")

    does(handle)
    with pytest.raises(ToolNotRun) as caught:
        make()
    assert SECRET not in str(caught.value)
    assert SECRET not in caplog.text


def test_no_connection_leaves_the_tool_out_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = ConnectorToolSource([connector_tool("things.make")], connections=Connections(None, {}))
    for _ in range(3):
        assert asyncio.run(_listed(source)) == 0
    assert caplog.text.count("There is no connection 'things'") == 1


async def _listed(source: ConnectorToolSource) -> int:
    return len(await source.list_tools())


def test_one_connection_of_two_connectors_is_refused() -> None:
    tools = [connector_tool("things.make", "main"), connector_tool("stripe.getCharge", "main")]
    with pytest.raises(DefinitionError, match="is used for two connectors"):
        ConnectorToolSource(tools)


def test_a_connection_of_another_connector_is_refused() -> None:
    source = ConnectorToolSource(
        [connector_tool("stripe.getCharge", "main")], connections=Connections(None, ENVIRONMENT)
    )
    with pytest.raises(ConfigurationError, match="is of the connector 'things'"):
        source.start()
