"""`@tool`: a typed function becomes a schema, checked arguments and a call; a wrong one is refused early."""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections.abc import Callable, Mapping
from datetime import date
from functools import partial
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, JsonValue, field_validator

from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.errors import DefinitionError
from celeriac.sessions.tools import (
    FunctionTool,
    InvalidArguments,
    ToolContext,
    ToolDefinition,
    needs_approval,
    tool,
)

CONTEXT = ToolContext("ses_1", "call_1", "call_1", 1)


class Address(BaseModel):
    street: str
    number: int = 1

    @field_validator("street")
    @classmethod
    def known(cls, value: str) -> str:
        if value == "Nowhere":
            raise ValueError("there is no such street")
        return value


def schema_of(function: Callable[..., object]) -> Mapping[str, JsonValue]:
    return tool(function).definition.input_schema


def properties_of(function: Callable[..., object]) -> dict[str, JsonValue]:
    properties = schema_of(function).get("properties")
    assert isinstance(properties, dict)
    return properties


# --- what becomes of a function


def test_a_function_gives_its_name_its_docstring_and_its_schema() -> None:
    @tool
    def look_up(order_id: str, limit: int = 5) -> str:
        """Look an order up.

        And more.
        """
        return f"{order_id} {limit}"

    assert isinstance(look_up, FunctionTool)
    definition = look_up.definition
    assert definition.name == "look_up"
    assert definition.description == "Look an order up.\n\nAnd more."
    assert definition.input_schema == {
        "additionalProperties": False,
        "properties": {
            "order_id": {"type": "string"},
            "limit": {"type": "integer", "default": 5},
        },
        "required": ["order_id"],
        "type": "object",
    }


def test_the_default_is_the_careful_one() -> None:
    def change(x: int) -> None: ...

    definition = tool(change).definition
    assert definition.effect is ToolEffect.NON_IDEMPOTENT_WRITE
    assert definition.approval is False
    assert definition.timeout_seconds is None


def test_everything_can_be_declared() -> None:
    declared = tool(
        name="other",
        description="Does it.",
        effect=ToolEffect.READ,
        requires_approval=True,
        timeout_seconds=3,
        max_attempts=2,
        backoff_seconds=0.5,
        result_shown_bytes=100,
        queue="slow",
    )(lambda: None)
    definition = declared.definition
    assert (definition.name, definition.description) == ("other", "Does it.")
    assert (definition.effect, definition.approval) == (ToolEffect.READ, True)
    assert (definition.timeout_seconds, definition.max_attempts) == (3, 2)
    assert (definition.backoff_seconds, definition.result_shown_bytes) == (0.5, 100)
    assert definition.queue == "slow"


def test_the_context_is_given_and_is_not_part_of_the_schema() -> None:
    @tool
    def look_up(order_id: str, context: ToolContext) -> tuple[str, str]:
        return order_id, context.idempotency_key

    assert list(properties_of(look_up.function)) == ["order_id"]
    assert look_up.invoke({"order_id": "A1"}, CONTEXT) == ("A1", "call_1")
    with pytest.raises(InvalidArguments, match="context"):
        look_up.validate({"order_id": "A1", "context": {}})


@pytest.mark.parametrize("optional", [True, False])
def test_a_context_may_be_optional_and_have_any_name(optional: bool) -> None:
    def needs(here: ToolContext) -> str:
        return here.call_id

    def may_have(here: ToolContext | None = None) -> str:
        return here.call_id if here else "none"

    made = tool(may_have if optional else needs)
    assert made.definition.input_schema.get("properties", {}) == {}
    assert made.invoke({}, CONTEXT) == "call_1"


def test_optional_and_default_parameters() -> None:
    def find(name: str | None = None, *, exact: bool = False, tags: tuple[str, ...] = ()) -> object:
        return name, exact, tags

    assert "required" not in schema_of(find)
    assert properties_of(find)["name"] == {
        "anyOf": [{"type": "string"}, {"type": "null"}],
        "default": None,
    }
    made = tool(find)
    assert made.invoke({}, CONTEXT) == (None, False, ())
    assert made.invoke({"name": None, "tags": ["a"]}, CONTEXT) == (None, False, ("a",))


def test_a_default_that_is_mutable_is_not_shared_between_calls() -> None:
    def collect(found: list[int] = []) -> list[int]:  # noqa: B006 - what a user may write
        found.append(1)
        return found

    made = tool(collect)
    assert [made.invoke({}, CONTEXT), made.invoke({}, CONTEXT)] == [[1], [1]]


def test_models_as_parameters_are_described_and_built() -> None:
    def send(to: Address, copies: list[Address]) -> object:
        return to, copies

    assert "Address" in str(schema_of(send))
    made = tool(send)
    assert made.invoke({"to": {"street": "Elm"}, "copies": []}, CONTEXT) == (
        Address(street="Elm"),
        [],
    )


def test_constraints_and_descriptions_reach_the_schema() -> None:
    def refund(
        amount: Annotated[int, Field(ge=1, description="In cents.")],
        kind: Literal["full", "part"] = "full",
        day: date = date(2026, 1, 2),
    ) -> object:
        return amount, kind, day

    properties = properties_of(refund)
    assert properties["amount"] == {"type": "integer", "minimum": 1, "description": "In cents."}
    assert "full" in str(properties["kind"])
    made = tool(refund)
    assert made.invoke({"amount": 1, "day": "2026-03-04"}, CONTEXT) == (
        1,
        "full",
        date(2026, 3, 4),
    )
    with pytest.raises(InvalidArguments, match=r"^invalid arguments: amount: "):
        made.validate({"amount": 0})


def test_an_async_function_is_known_as_one() -> None:
    async def wait(x: int) -> int:
        return x

    assert tool(wait).is_async
    assert not tool(positional_free).is_async


@pytest.mark.parametrize(
    "name", ["schema", "json", "copy", "model_dump", "_hidden", "model_config"]
)
def test_any_parameter_name_will_do(name: str) -> None:
    namespace: dict[str, Callable[..., object]] = {}
    exec(f"def f({name}: int, other: int = 2) -> object: return {name}, other", namespace)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = tool(namespace["f"])
    assert list(properties_of(made.function)) == [name, "other"]
    assert made.invoke({name: 1}, CONTEXT) == (1, 2)
    with pytest.raises(InvalidArguments, match=f"invalid arguments: {name}: "):
        made.validate({name: "x"})


# --- what cannot be a tool


def untyped(x) -> None: ...  # type: ignore[no-untyped-def]


def positional(x: int, /) -> None: ...


def many(*x: int) -> None: ...


def named(**x: int) -> None: ...


def unknown_type(x: Missing) -> None: ...  # type: ignore[name-defined] # noqa: F821


def unserialisable(x: threading.Lock) -> None: ...


def callback(x: Callable[[], None]) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (untyped, "parameter 'x' needs a type"),
        (positional, "cannot be a tool parameter"),
        (many, "cannot be a tool parameter"),
        (named, "cannot be a tool parameter"),
        (unknown_type, "a type of its signature cannot be found"),
        (unserialisable, "unserialisable"),
        (callback, "callback"),
        (partial(positional, 1), "partial"),
    ],
)
def test_a_signature_that_cannot_be_a_schema_is_refused_when_it_is_defined(
    function: Callable[..., object], words: str
) -> None:
    with pytest.raises(DefinitionError, match=words):
        tool(function)


@pytest.mark.parametrize(
    "name", ["", "9lives", "with space", "dotted.name", "x" * 65, "é", "-dash", "new\nline", "a\n"]
)
def test_a_bad_name_is_refused_and_shown(name: str) -> None:
    with pytest.raises(DefinitionError, match="is no tool name"):
        ToolDefinition(name=name, description="", input_schema={})


@pytest.mark.parametrize("name", ["a", "_a", "A-1_b", "x" * 64])
def test_a_good_name_is_taken(name: str) -> None:
    assert ToolDefinition(name=name, description="", input_schema={}).name == name


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(DefinitionError, match="<lambda>"):
        tool(lambda: None)


@pytest.mark.parametrize("attempts", [0, -1])
def test_a_tool_has_at_least_one_attempt(attempts: int) -> None:
    with pytest.raises(DefinitionError, match=f"max_attempts is {attempts}"):
        tool(max_attempts=attempts)(positional_free)


@pytest.mark.parametrize("name", ["approval_timeout_seconds", "timeout_seconds", "backoff_seconds"])
@pytest.mark.parametrize("seconds", [-1.5, float("inf"), float("nan"), 1e10])
def test_a_time_is_not_negative_and_no_longer_than_a_year(name: str, seconds: float) -> None:
    with pytest.raises(DefinitionError, match=f"pay: {name} is "):
        dataclasses.replace(ToolDefinition("pay", "", {}), **{name: seconds})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["approval_timeout_seconds", "timeout_seconds"])
def test_a_limit_of_no_time_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match=f"pay: {name} is 0"):
        dataclasses.replace(ToolDefinition("pay", "", {}), **{name: 0})  # type: ignore[arg-type]


def positional_free() -> None: ...


# --- arguments


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "to: Field required"),
        ({"to": {}}, "to.street: Field required"),
        ({"to": {"street": "Elm"}, "extra": 1}, "extra: Extra inputs are not permitted"),
        ({"to": {"street": "Nowhere"}}, "there is no such street"),
        ({"to": {"street": "Elm", "number": "many"}}, "to.number: "),
        ({"to": "Elm"}, "to: "),
    ],
)
def test_wrong_arguments_are_named_shortly(arguments: dict[str, JsonValue], words: str) -> None:
    def send(to: Address) -> None: ...

    with pytest.raises(InvalidArguments) as caught:
        tool(send).validate(arguments)
    assert str(caught.value).startswith("invalid arguments: ")
    assert words in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_message_names_at_most_five_faults_and_never_repeats_the_input() -> None:
    def send(to: list[int]) -> None: ...

    with pytest.raises(InvalidArguments) as caught:
        tool(send).validate({"to": ["secret" * 1000] * 100})
    assert str(caught.value).count("to.") == 5
    assert "secret" not in str(caught.value)


def test_arguments_are_not_changed_by_the_tool() -> None:
    def clear(items: list[int]) -> None:
        items.clear()

    arguments: dict[str, JsonValue] = {"items": [1, 2]}
    tool(clear).invoke(arguments, CONTEXT)
    assert arguments == {"items": [1, 2]}


# --- approval


@pytest.mark.parametrize(
    ("rule", "asks"),
    [
        (True, True),
        (False, False),
        (lambda arguments: arguments["amount"] > 100, True),
        (lambda arguments: arguments["amount"] > 1_000, False),
        (lambda arguments: arguments["missing"], True),
        (lambda _: 1 / 0, True),
        (lambda _: "yes", True),
        (lambda _: None, False),
    ],
    ids=["always", "never", "over", "under", "key error", "raises", "truthy", "falsy"],
)
def test_an_approval_rule_decides_and_one_that_raises_asks(
    rule: bool | Callable[[Mapping[str, JsonValue]], bool], asks: bool
) -> None:
    assert needs_approval(rule, {"amount": 500}) is asks


# --- digests


BASE = ToolDefinition(name="a", description="d", input_schema={"type": "object"})


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "b"},
        {"description": "e"},
        {"input_schema": {"type": "object", "required": ["x"]}},
        {"effect": ToolEffect.READ},
        {"source": "slack"},
    ],
)
def test_what_a_person_relies_on_is_in_the_digest(changes: dict[str, object]) -> None:
    assert dataclasses.replace(BASE, **changes).digest != BASE.digest  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"timeout_seconds": 5.0},
        {"max_attempts": 1},
        {"queue": "slow"},
        {"approval": True},
        {"result_shown_bytes": 9},
    ],
)
def test_how_a_tool_is_run_is_not_in_the_digest(changes: dict[str, object]) -> None:
    assert dataclasses.replace(BASE, **changes).digest == BASE.digest  # type: ignore[arg-type]
