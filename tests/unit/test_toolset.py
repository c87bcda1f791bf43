"""Calls as models write them: nothing about them is trusted, and what cannot run never runs."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Mapping, Sequence

import pytest
from pydantic import BaseModel, JsonValue, field_validator

from celeriac.connectors import toolset as made_of
from celeriac.connectors.toolset import Toolset, build_toolset
from celeriac.sessions.approvals import approval_digest
from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.codec import write_record
from celeriac.sessions.definition import AgentDefinition
from celeriac.sessions.errors import DefinitionError
from celeriac.sessions.ids import CALL_ID_PATTERN
from celeriac.sessions.inputs import PlannedCall
from celeriac.sessions.model import ModelCall
from celeriac.sessions.tools import (
    FunctionTool,
    ToolContext,
    ToolDefinition,
    ToolListing,
    ToolPolicy,
    ToolResult,
    tool,
)
from tests.unit.world import NOON

CONTEXT = ToolContext("ses_1", "call_1", "call_1", 1)


class Order(BaseModel):
    id: int

    @field_validator("id")
    @classmethod
    def known(cls, value: int) -> int:
        return {1: 1, 2: 2}[value]


@tool(effect=ToolEffect.READ)
def look_up(order_id: int = 1) -> int:
    """Look an order up."""
    return order_id


@tool(effect=ToolEffect.IDEMPOTENT_WRITE, max_attempts=5, backoff_seconds=2, queue="slow")
def mark(note: str) -> str:
    return note


@tool(requires_approval=lambda arguments: bool(arguments["amount"]), result_shown_bytes=99)
def refund(amount: float) -> float:
    return amount


@tool
def ship(order: Order) -> int:
    return order.id


def toolset(
    *tools: FunctionTool, policies: Mapping[str, ToolPolicy] | None = None, **fields: object
) -> Toolset:
    agent = AgentDefinition(
        name="support",
        instructions="",
        tools=tools or (look_up, mark, refund, ship),
        tool_policies=policies or {},
        **fields,  # type: ignore[arg-type]
    )
    return asyncio.run(build_toolset(agent))


def plan(
    name: str,
    arguments: str = "{}",
    provider_id: str | None = "call_0",
    tools: Toolset | None = None,
) -> PlannedCall:
    made = (tools or toolset()).plan(ModelCall(name, arguments, provider_id), "t1", NOON)
    # Whatever the model wrote, the call can be stored.
    write_record(made.request)
    write_record(made.reference)
    assert made.reference.id == made.request.id
    return made


# --- what runs


def test_a_good_call_is_planned_as_its_tool_declares() -> None:
    made = plan("mark", '{"note": "hello"}')
    assert made.refused is None
    assert made.request.arguments == {"note": "hello"}
    assert made.request.effect is ToolEffect.IDEMPOTENT_WRITE
    assert (made.max_attempts, made.backoff_seconds, made.queue) == (5, 2, "slow")
    assert (made.request.turn_id, made.request.created_at) == ("t1", NOON)
    assert made.reference.arguments == '{"note": "hello"}', "the model's own text is kept"


def test_a_single_attempt_tool_declares_how_often_it_may_be_tried_without_having_run() -> None:
    assert plan("ship", '{"order": {"id": 1}}').max_attempts == 3


@pytest.mark.parametrize("arguments", ["", "  ", "{}", " {} "])
def test_no_arguments_are_an_empty_object(arguments: str) -> None:
    made = plan("look_up", arguments)
    assert made.refused is None
    assert made.request.arguments == {}


@pytest.mark.parametrize(("amount", "asks"), [("0", False), ("5", True)])
def test_approval_depends_on_the_arguments(amount: str, asks: bool) -> None:
    assert plan("refund", f'{{"amount": {amount}}}').requires_approval is asks


def test_a_predicate_cannot_change_what_is_shown_and_run() -> None:
    def sneaky(arguments: Mapping[str, JsonValue]) -> bool:
        items = arguments["items"]
        assert isinstance(items, list)
        items.clear()
        return False

    @tool(requires_approval=sneaky)
    def send(items: list[int]) -> None: ...

    assert plan("send", '{"items": [1]}', tools=toolset(send)).request.arguments == {"items": [1]}


def test_the_digest_is_of_the_definition_and_the_exact_arguments() -> None:
    tools = toolset()
    definition = tools.definitions[2]
    first = plan("refund", '{"amount": 1}', tools=tools)
    assert first.digest == approval_digest(definition, {"amount": 1})
    assert first.digest == plan("refund", '{ "amount" :1}', tools=tools).digest
    assert first.digest != plan("refund", '{"amount": 2}', tools=tools).digest
    stricter = toolset(policies={"refund": ToolPolicy(effect=ToolEffect.READ)})
    assert first.digest != plan("refund", '{"amount": 1}', tools=stricter).digest


def test_clean_text_reaches_the_tool() -> None:
    made = plan("mark", r'{"note": "a\ud83d\ude00 \ud83d b\u0000 \\u0000"}')
    assert made.request.arguments == {"note": "a😀 \ufffd b\ufffd \\u0000"}


# --- what never runs


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("{", "not JSON"),
        ('{"order_id": 1', "not JSON"),
        ("order_id=1", "not JSON"),
        ('{"order_id": NaN}', "NaN is no JSON"),
        ('{"order_id": Infinity}', "Infinity is no JSON"),
        ('{"order_id": -Infinity}', "no JSON"),
        ('{"order_id": 1e999}', "1e999 is too large"),
        ("[1]", "must be a JSON object"),
        ('"text"', "must be a JSON object"),
        ("null", "must be a JSON object"),
        ("1", "must be a JSON object"),
        ("{}{}", "not JSON"),
        ('{"order_id": "many"}', "order_id: "),
        ('{"other": 1}', "other: Extra inputs are not permitted"),
        ("[" * 100_000, "not JSON"),
        ('{"order_id": ' + "9" * 10_000 + "}", "not JSON"),
    ],
    ids=lambda value: value[:24],
)
def test_arguments_that_do_not_fit_are_refused_with_words_the_model_can_use(
    arguments: str, why: str
) -> None:
    made = plan("look_up", arguments)
    assert made.refused is not None
    assert made.refused.startswith("invalid arguments: ")
    assert why in made.refused
    assert len(made.refused) < 300
    assert not made.requires_approval


@pytest.mark.parametrize("arguments", ["{", "[1]", "a\x00b", "\ud83d"])
def test_the_text_of_refused_arguments_is_kept_for_people(arguments: str) -> None:
    assert isinstance(plan("look_up", arguments).request.arguments, str)


@pytest.mark.parametrize(
    "name", ["lookup", "", "LOOK_UP", "look up", "a\x00b", "\ud83d", "x" * 5000]
)
def test_a_tool_that_does_not_exist_is_refused_and_the_tools_are_listed(name: str) -> None:
    made = plan(name)
    assert made.refused is not None
    assert "the tools are: look_up, mark, refund, ship" in made.refused
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", made.reference.tool), (
        "a name that providers refuse would break every later request"
    )


def test_an_agent_without_tools_says_so() -> None:
    made = Toolset(()).plan(ModelCall("look_up", "{}"), "t1", NOON)
    assert made.refused == "there is no tool 'look_up'; the tools are: none"


def test_a_validator_that_breaks_refuses_the_call_and_not_the_whole_response() -> None:
    made = plan("ship", '{"order": {"id": 3}}')
    assert made.refused is not None
    assert "KeyError" in made.refused


# --- ids


@pytest.mark.parametrize("provider_ids", [["call_0", "call_0"], [None, None], ["", "x" * 500]])
def test_mh_06_every_call_has_our_own_unique_id_whatever_the_provider_sent(
    provider_ids: Sequence[str | None],
) -> None:
    planned = [plan("look_up", provider_id=one) for one in provider_ids]
    ids = {made.request.id for made in planned}
    assert len(ids) == len(planned)
    assert all(CALL_ID_PATTERN.fullmatch(one) for one in ids)
    assert [made.reference.provider_id for made in planned] == list(provider_ids)


def test_a_providers_id_that_cannot_be_stored_is_cleaned() -> None:
    assert plan("look_up", provider_id="a\ud83d\x00").reference.provider_id == "a\ufffd\ufffd"


# --- policies and sources


def test_a_policy_sets_effect_and_approval_and_leaves_the_rest() -> None:
    tools = toolset(
        policies={
            "look_up": ToolPolicy(requires_approval=True),
            "mark": ToolPolicy(effect=ToolEffect.NON_IDEMPOTENT_WRITE),
            "refund": ToolPolicy(requires_approval=False),
        }
    )
    looked = plan("look_up", tools=tools)
    assert (looked.requires_approval, looked.request.effect) == (True, ToolEffect.READ)
    marked = plan("mark", '{"note": "x"}', tools=tools)
    assert marked.request.effect is ToolEffect.NON_IDEMPOTENT_WRITE
    assert not plan("refund", '{"amount": 5}', tools=tools).requires_approval


class Source:
    """A source of two tools that records what it was asked."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.asked: list[tuple[str, Mapping[str, JsonValue]]] = []

    async def list_tools(self) -> Sequence[ToolDefinition]:
        schema: dict[str, JsonValue] = {
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "required": ["n"],
        }
        return [
            ToolDefinition(
                name=name,
                description="",
                input_schema=schema,
                source="desk",
                original_name=name.upper(),
                ordered=True,
            )
            for name in self.names
        ]

    async def call(
        self, definition: ToolDefinition, arguments: Mapping[str, JsonValue], context: ToolContext
    ) -> ToolResult:
        self.asked.append((definition.name, arguments))
        return ToolResult(context.call_id)


def test_a_tool_of_a_source_is_planned_and_called_like_any_other() -> None:
    source = Source("open", "close")
    tools = toolset(tool_sources=[source])
    made = plan("open", '{"n": 1}', tools=tools)
    assert (made.request.source, made.request.original_name) == ("desk", "OPEN")
    assert made.ordered
    bound = tools.get("open")
    assert bound is not None
    assert bound.runs_async

    async def run() -> object:
        result = bound.invoke({"n": 1}, CONTEXT)
        return await result  # type: ignore[misc]

    assert asyncio.run(run()) == ToolResult("call_1")
    assert source.asked == [("open", {"n": 1})]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ('{"n": "x"}', "$.n: "),
        ("{}", "'n' is a required property"),
        (f'{{"n": "{"x" * 9999}"}}', ""),
    ],
    ids=["wrong", "missing", "huge"],
)
def test_arguments_of_a_sources_tool_are_checked_with_its_schema(arguments: str, why: str) -> None:
    made = plan("open", arguments, tools=toolset(tool_sources=[Source("open")]))
    assert made.refused is not None
    assert why in made.refused
    assert len(made.refused) < 600


class Away(Source):
    """A source that cannot list its tools before it is `back`."""

    back = False

    async def list_tools(self) -> Sequence[ToolDefinition]:
        if not self.back:
            raise ConnectionError("desk refused\x00 \ud83d")
        return await super().list_tools()


def test_a_source_that_cannot_list_is_left_out_until_it_can() -> None:
    away = Away("shut")
    sources = [Source("open"), away, Source("close")]
    tools = toolset(tool_sources=sources)
    assert [one.name for one in tools.definitions][-2:] == ["open", "close"]
    assert tools.unlisted == ("Away: desk refused\ufffd \ufffd",)
    assert "some cannot be listed" in (plan("shut", '{"n": 1}', tools=tools).refused or "")
    away.back = True
    again = toolset(tool_sources=sources)
    assert again.unlisted == ()
    assert plan("shut", '{"n": 1}', tools=again).refused is None


class Silent(Source):
    """A source that never answers."""

    async def list_tools(self) -> Sequence[ToolDefinition]:
        await asyncio.Event().wait()
        return ()


def test_a_source_that_never_answers_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_of, "_LISTING_SECONDS", 0.05)
    tools = toolset(tool_sources=[Silent(), Source("open"), Silent()])
    assert tools.get("open") is not None
    assert tools.unlisted == ("Silent: it did not list its tools within 0.05 s",) * 2


@pytest.mark.parametrize("names", [("open", "open"), ("look_up",)])
def test_tools_of_one_name_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(DefinitionError, match="several tools are named"):
        toolset(tool_sources=[Source(*names)])


class Partial:
    """A source that lists some tools and says what is missing."""

    def __init__(self) -> None:
        self.tools = [ToolDefinition("open", "Open.", {"type": "object"}, ToolEffect.READ)]
        self.unlisted: tuple[str, ...] = ()

    async def list_tools(self) -> ToolListing:
        return ToolListing(list(self.tools), self.unlisted)

    async def call(
        self, tool: ToolDefinition, arguments: Mapping[str, JsonValue], context: ToolContext
    ) -> ToolResult:
        return ToolResult(tool.name)


def test_tools_are_collected_anew_only_where_a_source_lists_others() -> None:
    source = Partial()
    agent = AgentDefinition(name="a", instructions="", tool_sources=[source])
    first = asyncio.run(build_toolset(agent))
    assert asyncio.run(build_toolset(agent, previous=first)) is first
    source.tools[0] = dataclasses.replace(source.tools[0], description="Open it.")
    second = asyncio.run(build_toolset(agent, previous=first))
    assert [one.description for one in second.definitions] == ["Open it."]
    source.unlisted = ("server x: down",)
    third = asyncio.run(build_toolset(agent, previous=second))
    assert third is not second
    assert third.unlisted == ("server x: down",)
    source.tools.clear()
    assert asyncio.run(build_toolset(agent, previous=third)).definitions == ()


def test_what_is_missing_is_logged_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    source = Partial()
    agent = AgentDefinition(name="missing-some", instructions="", tool_sources=[source])
    with caplog.at_level("INFO"):
        for unlisted in ((), ("x: down",), ("x: down",), (), ()):
            source.unlisted = unlisted
            asyncio.run(build_toolset(agent))
    assert [record.getMessage() for record in caplog.records] == [
        "Agent missing-some goes without some tools: x: down",
        "Agent missing-some has all its tools again",
    ]
