"""Tools: what an agent may call, what it declares about itself, and what it gets when it runs."""

from __future__ import annotations

import copy
import hashlib
import inspect
import re
import threading
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, overload, runtime_checkable

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PydanticUserError,
    ValidationError,
    create_model,
)

from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.errors import DefinitionError
from celeriac.sessions.jsonsafe import dump_json

__all__ = [
    "TOOL_NAME_PATTERN",
    "ApprovalRule",
    "CachingToolSource",
    "DefinedToolSource",
    "FunctionTool",
    "InvalidArguments",
    "ReconcileContext",
    "Reconciliation",
    "ReconcilingToolSource",
    "ToolContext",
    "ToolDefinition",
    "ToolListing",
    "ToolPolicy",
    "ToolResult",
    "ToolSource",
    "explain_invalid",
    "needs_approval",
    "tool",
]

TOOL_NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")

_LONGEST_SECONDS = 366 * 24 * 3600

_DURATIONS = (
    "approval_timeout_seconds",
    "timeout_seconds",
    "backoff_seconds",
    "idempotency_valid_seconds",
    "reconcile_after_seconds",
)

ApprovalRule = bool | Callable[[Mapping[str, JsonValue]], bool]
"""Whether a call asks a person first: always, never, or depending on its arguments."""


class InvalidArguments(ValueError):
    """The model's arguments do not fit the tool's schema; the message tells it what to correct."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a running tool knows about its call. It never holds secrets."""

    session_id: str
    call_id: str
    idempotency_key: str
    """Equal on every attempt of this call; give it to the provider."""
    attempt: int
    """1 for the first attempt."""
    deadline: float | None = None
    """When the attempt times out, in Unix seconds; None means never."""
    report_progress: Callable[[str], None] = lambda _text: None
    """Show a short text on the page while the tool runs; best effort."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    """Set when a person stopped the turn; a long tool may look at it and end early."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool source returns: a value for the record and the model, and whether it is an error."""

    value: JsonValue
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """What is known about a tool without running it."""

    name: str
    description: str
    input_schema: Mapping[str, JsonValue]
    effect: ToolEffect = ToolEffect.NON_IDEMPOTENT_WRITE
    approval: ApprovalRule = False
    approval_timeout_seconds: float | None = None
    """How long a call waits for a decision before it counts as not run; None is for ever."""
    timeout_seconds: float | None = None
    max_attempts: int = 3
    """Of a write that must not be repeated only attempts count that certainly did nothing."""
    backoff_seconds: float | None = None
    result_shown_bytes: int | None = None
    queue: str | None = None
    """Celery queue of its steps; None is ``celeriac.tool``."""
    idempotency_valid_seconds: float | None = None
    """How long the provider knows the idempotency key after the first attempt; no attempt is made later."""
    reconcile_after_seconds: float | None = None
    """After how long its source can look up what became of a call (`ReconcilingToolSource`); None is never."""
    ordered: bool = False
    """Run one at a time in the model's order with the other ordered writes of a response."""
    source: str | None = None
    original_name: str | None = None
    alternative_name: str | None = None
    """The name it gets where another tool of the agent has its name; None makes that an error."""
    claims: Mapping[str, str] = field(default_factory=dict)
    """What else its source says of it, by what it is about, e.g. hints of what it does."""
    digest: str = field(init=False, default="")
    """Digest of what a person relies on when approving: name, text, schema, effect, source, claims."""

    def __post_init__(self) -> None:
        if TOOL_NAME_PATTERN.fullmatch(self.name) is None:
            raise DefinitionError(
                f"{self.name!r} is no tool name: use a letter or _ first, then at most 63 letters, "
                "digits, _ or -"
            )
        if self.max_attempts < 1:
            raise DefinitionError(
                f"{self.name}: max_attempts is {self.max_attempts}; it must be ≥ 1"
            )
        for name in _DURATIONS:
            seconds = getattr(self, name)
            # An infinite one would be found out only by a call that was made already.
            if seconds is not None and not 0 <= seconds <= _LONGEST_SECONDS:
                raise DefinitionError(
                    f"{self.name}: {name} is {seconds}; it must be between 0 and a year, or None"
                )
            if seconds == 0 and name not in {"backoff_seconds", "reconcile_after_seconds"}:
                raise DefinitionError(f"{self.name}: {name} is 0; it must be > 0, or None")
        # Worked out once: every call and every approval compares it.
        object.__setattr__(self, "digest", self._digest())

    def parts(self) -> dict[str, str]:
        """Return a short digest of each thing a person relies on, to say later which of them changed."""
        relied_on: dict[str, JsonValue] = {
            "description": self.description,
            "arguments": dict(self.input_schema),
            "effect": self.effect.value,
            "source": self.source,
            **self.claims,
        }
        return {
            what: hashlib.sha256(dump_json(value).encode()).hexdigest()[:8]
            for what, value in relied_on.items()
        }

    def _digest(self) -> str:
        parts: list[JsonValue] = [
            self.name,
            self.description,
            dict(self.input_schema),
            self.effect.value,
            self.source,
        ]
        if self.claims:
            parts.append(dict(self.claims))
        content = dump_json(parts)
        return hashlib.sha256(content.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class ToolListing:
    """The tools of a source of which a part cannot be listed now."""

    tools: Sequence[ToolDefinition]
    unlisted: Sequence[str] = ()
    """What is missing and why, a line each."""


@runtime_checkable
class ToolSource(Protocol):
    """Lists and calls many tools, e.g. those of an MCP server."""

    async def list_tools(self) -> Sequence[ToolDefinition] | ToolListing:
        """Return the tools there are now; a source that takes longer than 10 s counts as one that cannot."""

    async def call(
        self, tool: ToolDefinition, arguments: Mapping[str, JsonValue], context: ToolContext
    ) -> ToolResult:
        """Run one attempt of a call; exactly one request to the outside."""


@runtime_checkable
class CachingToolSource(ToolSource, Protocol):
    """A source that remembers what it listed, and holds something open for it."""

    def forget_tools(self, source: str) -> None:
        """List the tools of this `ToolDefinition.source` anew: a decision is about to be compared with them."""

    async def aclose(self) -> None:
        """Close what is open; the process is about to end."""


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """Which call is looked up."""

    session_id: str
    call_id: str
    idempotency_key: str
    created_at: float
    """When the call was made, in Unix seconds."""
    settled_at: float
    """When its outcome became unknown, in Unix seconds."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What a look-up found."""

    happened: bool | None
    """True: the call took effect. False: it did not, and certainly never will. None: that does not tell."""
    result: JsonValue = None
    note: str = ""
    """What was found, for a person."""


@runtime_checkable
class ReconcilingToolSource(ToolSource, Protocol):
    """A source that can look up what became of a call whose outcome is unknown."""

    async def reconcile(
        self, tool: ToolDefinition, arguments: Mapping[str, JsonValue], context: ReconcileContext
    ) -> Reconciliation:
        """Look it up, without changing anything; exactly one request to the outside.

        Raises:
            Exception: The look-up broke; it is made again.
        """


@runtime_checkable
class DefinedToolSource(ToolSource, Protocol):
    """A source whose tools are known when the agent is defined, and that is made ready when a worker starts."""

    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        """What is declared about its tools."""

    def start(self) -> None:
        """Check what the worker configures for it; called before any fork, so nothing is opened yet.

        Raises:
            ConfigurationError: The worker cannot start with it.
        """


class ToolPolicy(BaseModel):
    """An agent's own word on a tool: whether it asks first and, of a plain one, its effect."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    effect: ToolEffect | None = None
    requires_approval: ApprovalRule | None = None


def needs_approval(rule: ApprovalRule, arguments: Mapping[str, JsonValue]) -> bool:
    """Apply an approval rule; a predicate that raises asks, since nobody said that it need not."""
    if isinstance(rule, bool):
        return rule
    try:
        return bool(rule(copy.deepcopy(dict(arguments))))
    except Exception:  # noqa: BLE001 - any fault of the rule means: ask
        return True


class FunctionTool:
    """A typed Python function as a tool; made by `tool`.

    Args:
        function: Sync or async. A parameter annotated `ToolContext` gets the context and is not part of
            the schema.
        definition: What is declared about it.
        parameters: Model of its arguments.
        context_parameter: Name of the parameter that takes the context, if any.
    """

    def __init__(
        self,
        function: Callable[..., object],
        definition: ToolDefinition,
        parameters: type[BaseModel],
        context_parameter: str | None,
    ) -> None:
        self.function = function
        self.definition = definition
        self._parameters = parameters
        self._context_parameter = context_parameter
        self.is_async = inspect.iscoroutinefunction(function)

    def validate(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """Check the arguments and turn them into Python values.

        Raises:
            InvalidArguments: Some are wrong or missing; the message is short and names each.
        """
        try:
            model = self._parameters.model_validate(dict(arguments))
        except ValidationError as error:
            raise InvalidArguments(explain_invalid(error)) from None
        except Exception as error:
            # A validator of the tool's own types broke: the call cannot run, the response can go on.
            fault = f"{type(error).__name__}: {error}"[:200]
            raise InvalidArguments(f"invalid arguments: their check broke ({fault})") from error
        fields = type(model).model_fields
        return {str(info.alias): getattr(model, name) for name, info in fields.items()}

    def invoke(
        self, arguments: Mapping[str, JsonValue], context: ToolContext
    ) -> object | Awaitable[object]:
        """Call the function; an async one returns its awaitable."""
        values = self.validate(arguments)
        if self._context_parameter is not None:
            values[self._context_parameter] = context
        return self.function(**values)

    def __repr__(self) -> str:
        return f"<tool {self.definition.name}>"


@overload
def tool(function: Callable[..., object], /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: ToolEffect = ToolEffect.NON_IDEMPOTENT_WRITE,
    requires_approval: ApprovalRule = False,
    approval_timeout_seconds: float | None = None,
    timeout_seconds: float | None = None,
    max_attempts: int = 3,
    backoff_seconds: float | None = None,
    result_shown_bytes: int | None = None,
    queue: str | None = None,
) -> Callable[[Callable[..., object]], FunctionTool]: ...
def tool(
    function: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: ToolEffect = ToolEffect.NON_IDEMPOTENT_WRITE,
    requires_approval: ApprovalRule = False,
    approval_timeout_seconds: float | None = None,
    timeout_seconds: float | None = None,
    max_attempts: int = 3,
    backoff_seconds: float | None = None,
    result_shown_bytes: int | None = None,
    queue: str | None = None,
) -> FunctionTool | Callable[[Callable[..., object]], FunctionTool]:
    """Turn a typed function into a tool.

    Args:
        function: The function, when used without parentheses.
        name: Name the model sees; default the function's.
        description: What it does, for the model; default the docstring.
        effect: What it does to the world. The default is the careful one: a write that never runs twice.
        requires_approval: True, or a predicate over the arguments, to ask a person first.
        approval_timeout_seconds: How long a call waits for the decision before it counts as not run; None is
            for ever.
        timeout_seconds: Longest time of one attempt; None is no limit.
        max_attempts: Attempts of a read or an idempotent write. Another write has exactly one; it is only tried
            again where it certainly did nothing (`ToolNotRun`).
        backoff_seconds: First wait before the next attempt; it doubles. None is the worker's default.
        result_shown_bytes: How much of the result the model reads; None is the worker's default.
        queue: Celery queue of its steps; None is ``celeriac.tool``.

    Returns:
        The tool, or a decorator that makes it.

    Raises:
        DefinitionError: The signature cannot be turned into a JSON Schema.
    """

    def wrap(target: Callable[..., object]) -> FunctionTool:
        label = str(getattr(target, "__qualname__", repr(target)))
        try:
            parameters, context_parameter = _parameters_of(target, label)
            schema = _schema_of(parameters)
        except PydanticUserError as error:
            raise DefinitionError(
                f"{label}: its parameters have no JSON Schema: {error.message}"
            ) from error
        definition = ToolDefinition(
            name=name or str(getattr(target, "__name__", "tool")),
            description=description or inspect.getdoc(target) or "",
            input_schema=schema,
            effect=effect,
            approval=requires_approval,
            approval_timeout_seconds=approval_timeout_seconds,
            timeout_seconds=timeout_seconds,
            max_attempts=max_attempts,
            backoff_seconds=backoff_seconds,
            result_shown_bytes=result_shown_bytes,
            queue=queue,
        )
        return FunctionTool(target, definition, parameters, context_parameter)

    return wrap if function is None else wrap(function)


def _parameters_of(
    function: Callable[..., object], label: str
) -> tuple[type[BaseModel], str | None]:
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise DefinitionError(
            f"{label}: a type of its signature cannot be found: {error}"
        ) from error
    fields: dict[str, tuple[object, object]] = {}
    context_parameter = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise DefinitionError(f"{label}: {parameter} cannot be a tool parameter; name each one")
        hint = hints.get(parameter.name)
        if hint is ToolContext or ToolContext in typing.get_args(hint):
            context_parameter = parameter.name
        elif hint is None:
            raise DefinitionError(f"{label}: parameter {parameter.name!r} needs a type")
        else:
            # The name is an alias, as pydantic's own fields may not be called `_x`, `json`, `copy`, …
            named = typing.Annotated[hint, Field(alias=parameter.name)]  # type: ignore[valid-type]
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[f"p{len(fields)}"] = (named, default)
    model = typing.cast(
        "type[BaseModel]",
        create_model(  # type: ignore[call-overload]
            f"{label}_arguments", __config__=ConfigDict(extra="forbid"), **fields
        ),
    )
    return model, context_parameter


def _schema_of(parameters: type[BaseModel]) -> dict[str, JsonValue]:
    schema = parameters.model_json_schema()
    schema.pop("title", None)
    for entry in schema.get("properties", {}).values():
        entry.pop("title", None)
    return schema


def explain_invalid(error: ValidationError) -> str:
    """Say briefly what is wrong with arguments, so that the model can correct them."""
    parts = [
        f"{'.'.join(str(part) for part in item['loc']) or 'arguments'}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False)[:5]
    ]
    return "invalid arguments: " + "; ".join(parts)
