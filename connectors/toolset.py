"""An agent's tools as one set: resolve a model's call, validate it, and run one attempt of it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from jsonschema.protocols import Validator
from pydantic import JsonValue

from celeriac.connectors.schemas import validator_of
from celeriac.sessions.approvals import approval_digest
from celeriac.sessions.built_in import BUILT_IN_DEFINITIONS, BuiltInTool, parse_built_in
from celeriac.sessions.calls import CallRequest, ToolEffect
from celeriac.sessions.definition import AgentDefinition
from celeriac.sessions.errors import DefinitionError
from celeriac.sessions.ids import new_call_id
from celeriac.sessions.inputs import PlannedCall
from celeriac.sessions.jsonsafe import clean_text, to_json_value
from celeriac.sessions.messages import CallReference
from celeriac.sessions.model import ModelCall
from celeriac.sessions.tools import (
    TOOL_NAME_PATTERN,
    CachingToolSource,
    FunctionTool,
    InvalidArguments,
    ReconcileContext,
    Reconciliation,
    ReconcilingToolSource,
    ToolContext,
    ToolDefinition,
    ToolListing,
    ToolPolicy,
    ToolSource,
    needs_approval,
)

__all__ = ["BoundTool", "Toolset", "build_toolset"]

_log = logging.getLogger(__name__)

_ERROR_MAX_CHARACTERS = 500
_LISTING_SECONDS = 10.0
_DESCRIPTION_CHARACTERS = 500

_missing: dict[str, tuple[str, ...]] = {}
"""What was last told of each agent's missing tools."""

Reconcile = Callable[
    [Mapping[str, JsonValue], ReconcileContext], Coroutine[None, None, Reconciliation]
]
Invoke = Callable[[Mapping[str, JsonValue], ToolContext], object | Awaitable[object]]


@dataclass(frozen=True, slots=True)
class BoundTool:
    """A tool that can be run."""

    definition: ToolDefinition
    invoke: Invoke
    """Returns the result, or an awaitable of it."""
    validate: Callable[[Mapping[str, JsonValue]], object]
    """Raises `InvalidArguments`."""
    runs_async: bool
    built_in: BuiltInTool | None = None
    """Set for Celeriac's own tools, which no worker runs."""
    reconcile: Reconcile | None = None
    """Looks up what became of a call, where its source can."""


class Toolset:
    """The tools an agent has at one moment.

    Args:
        tools: The tools; their names are unique.
        unlisted: What went wrong with each source whose tools could not be listed now.
        listed: What its sources listed.
    """

    def __init__(
        self,
        tools: Sequence[BoundTool],
        unlisted: Sequence[str] = (),
        listed: Sequence[ToolDefinition] = (),
    ) -> None:
        self._tools = {tool.definition.name: tool for tool in tools}
        self.definitions = tuple(tool.definition for tool in tools)
        self.unlisted = tuple(unlisted)
        self._listed = listed

    def is_of(self, listed: Sequence[ToolDefinition], unlisted: Sequence[str]) -> bool:
        """Whether it was made of the very definitions that sources list now."""
        if len(listed) != len(self._listed) or tuple(unlisted) != self.unlisted:
            return False
        return all(now is then for now, then in zip(listed, self._listed, strict=True))

    def get(self, name: str) -> BoundTool | None:
        """Return the tool of that name, if there is one."""
        return self._tools.get(name)

    def only(self, names: Collection[str]) -> Toolset:
        """Return a set of those of the tools that have one of these names."""
        return Toolset([tool for name, tool in self._tools.items() if name in names])

    def plan(self, call: ModelCall, turn_id: str, now: int) -> PlannedCall:
        """Resolve a call that the model wrote: our own Call ID, checked arguments, effect and approval.

        Args:
            call: The call as the model wrote it.
            turn_id: The turn.
            now: Unix milliseconds.

        Returns:
            The call to open; `refused` says why it cannot run.
        """
        provider_id = call.provider_id
        reference = CallReference(
            id=new_call_id(),
            tool=_sendable_name(call.name),
            arguments=clean_text(call.arguments),
            provider_id=None if provider_id is None else clean_text(provider_id),
        )
        request = CallRequest(
            id=reference.id,
            tool=reference.tool,
            arguments=_parsed_or_text(call.arguments),
            effect=ToolEffect.READ,
            turn_id=turn_id,
            created_at=now,
        )
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            why = f"there is no tool {clean_text(call.name)[:100]!r}; the tools are: {known}"
            if self.unlisted:
                why += " (some cannot be listed at the moment)"
            return PlannedCall(reference=reference, request=request, refused=why)
        request = request.model_copy(
            update={
                "effect": tool.definition.effect,
                "source": tool.definition.source,
                "original_name": tool.definition.original_name,
            }
        )
        try:
            arguments = _parse(call.arguments)
            tool.validate(arguments)
        except InvalidArguments as error:
            ordered = tool.definition.ordered
            return PlannedCall(
                reference=reference, request=request, refused=str(error), ordered=ordered
            )
        request = request.model_copy(
            update={"arguments": arguments, "description": _said_of(tool.definition, arguments)}
        )
        return _planned(reference, request, arguments, tool)


def _said_of(definition: ToolDefinition, arguments: Mapping[str, JsonValue]) -> str | None:
    """Return what a person who is asked should read of a tool that is not the agent's own."""
    if definition.source is None or not needs_approval(definition.approval, arguments):
        return None
    return clean_text(definition.description)[:_DESCRIPTION_CHARACTERS] or None


def _planned(
    reference: CallReference,
    request: CallRequest,
    arguments: dict[str, JsonValue],
    tool: BoundTool,
) -> PlannedCall:
    definition = tool.definition
    asks = needs_approval(definition.approval, arguments)
    return PlannedCall(
        reference=reference,
        request=request,
        requires_approval=asks,
        digest=approval_digest(definition, arguments),
        shown=definition.parts() if asks else {},
        max_attempts=definition.max_attempts,
        backoff_seconds=definition.backoff_seconds,
        queue=definition.queue,
        ordered=definition.ordered,
        shown_bytes=definition.result_shown_bytes,
        approval_timeout_ms=_milliseconds(definition.approval_timeout_seconds),
        idempotency_valid_ms=_milliseconds(definition.idempotency_valid_seconds),
        reconcile_after_ms=_milliseconds(definition.reconcile_after_seconds),
        built_in=tool.built_in,
    )


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)


def _sendable_name(name: str) -> str:
    """Return a tool's name as every provider takes it back; a model may invent any."""
    if TOOL_NAME_PATTERN.fullmatch(name) is not None:
        return name
    return "_" + re.sub(r"[^A-Za-z0-9_-]", "_", name)[:63]


def _no_constants(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:20]} is too large")
    return value


_DECODER = json.JSONDecoder(parse_constant=_no_constants, parse_float=_finite)


def _parse(raw: str) -> dict[str, JsonValue]:
    try:
        value = _DECODER.decode(raw.strip() or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(f"invalid arguments: not JSON ({error})") from None
    if not isinstance(value, dict):
        raise InvalidArguments("invalid arguments: they must be a JSON object")
    cleaned = to_json_value(value)
    return cleaned if isinstance(cleaned, dict) else {}


def _parsed_or_text(raw: str) -> JsonValue:
    try:
        return _parse(raw)
    except InvalidArguments:
        return clean_text(raw)


async def build_toolset(
    agent: AgentDefinition, *, anew: str | None = None, previous: Toolset | None = None
) -> Toolset:
    """Collect an agent's tools: its functions, Celeriac's own, and those of its sources.

    Args:
        agent: The agent.
        anew: The `ToolDefinition.source` whose tools are to be listed anew, whatever is remembered.
        previous: The agent's tools as they were collected last.

    Returns:
        The tools there are now; the previous set where its sources list the very same. A source that cannot list
        its own is left out; it is asked again at the next step.

    Raises:
        DefinitionError: Two tools have the same name.
    """
    for source in agent.tool_sources:
        if anew is not None and isinstance(source, CachingToolSource):
            source.forget_tools(anew)
    listed, unlisted = await _list_sources(agent)
    _log_missing(agent.name, unlisted)
    if previous is not None and previous.is_of([one for _, one in listed], unlisted):
        return previous
    tools = [_bind_function(tool, agent.tool_policies) for tool in agent.tools]
    tools += [_bind_built_in(tool) for tool in BuiltInTool if tool in agent.built_in_tools]
    taken = {tool.definition.name for tool in tools}
    tools += [
        _bind_source(source, _ruled(_without_clash(one, taken), agent.tool_policies))
        for source, one in listed
    ]
    names = Counter(tool.definition.name for tool in tools)
    doubled = sorted(name for name, count in names.items() if count > 1)
    if doubled:
        raise DefinitionError(f"agent {agent.name}: several tools are named {', '.join(doubled)}")
    return Toolset(tools, unlisted, [one for _, one in listed])


async def _list_sources(
    agent: AgentDefinition,
) -> tuple[list[tuple[ToolSource, ToolDefinition]], tuple[str, ...]]:
    """List the tools of all sources, and what is missing."""
    found: list[tuple[ToolSource, ToolDefinition]] = []
    unlisted: list[str] = []
    listings = await asyncio.gather(*(_list_tools(source) for source in agent.tool_sources))
    for source, listing in zip(agent.tool_sources, listings, strict=True):
        if isinstance(listing, Exception):
            unlisted.append(f"{type(source).__name__}: {listing}")
            continue
        if isinstance(listing, ToolListing):
            unlisted += listing.unlisted
        tools = listing.tools if isinstance(listing, ToolListing) else listing
        found += [(source, tool) for tool in tools]
    return found, tuple(clean_text(why)[:_ERROR_MAX_CHARACTERS] for why in unlisted)


def _log_missing(agent: str, whys: tuple[str, ...]) -> None:
    """Tell what is missing when that changes: tools are listed at every step."""
    if _missing.get(agent, ()) == whys:
        return
    _missing[agent] = whys
    if whys:
        _log.warning("Agent %s goes without some tools: %s", agent, "; ".join(whys))
    else:
        _log.info("Agent %s has all its tools again", agent)


def _without_clash(definition: ToolDefinition, taken: Collection[str]) -> ToolDefinition:
    """A tool that the agent's own code names keeps its name; another, of a source, may have a second one."""
    if definition.name not in taken or definition.alternative_name is None:
        return definition
    return dataclasses.replace(definition, name=definition.alternative_name)


async def _list_tools(
    source: ToolSource,
) -> Sequence[ToolDefinition] | ToolListing | Exception:
    """Return a source's tools, or what ails it: the agent can do without it for now."""
    limit = asyncio.timeout(_LISTING_SECONDS)
    try:
        async with limit:
            return await source.list_tools()
    except Exception as error:  # noqa: BLE001 - whatever it is
        if limit.expired():
            return TimeoutError(f"it did not list its tools within {_LISTING_SECONDS:g} s")
        return error


def _ruled(definition: ToolDefinition, policies: Mapping[str, ToolPolicy]) -> ToolDefinition:
    """Apply the agent's own word on a tool; `AgentDefinition` refuses the one that it may not have."""
    policy = policies.get(definition.name)
    if policy is None:
        return definition
    asks = policy.requires_approval
    return dataclasses.replace(
        definition,
        effect=policy.effect or definition.effect,
        approval=definition.approval if asks is None else asks,
    )


def _bind_function(tool: FunctionTool, policies: Mapping[str, ToolPolicy]) -> BoundTool:
    definition = _ruled(tool.definition, policies)
    return BoundTool(definition, tool.invoke, tool.validate, tool.is_async)


def _bind_built_in(tool: BuiltInTool) -> BoundTool:
    def invoke(_arguments: Mapping[str, JsonValue], _context: ToolContext) -> object:
        raise AssertionError(f"{tool} is not run by a worker")

    return BoundTool(
        BUILT_IN_DEFINITIONS[tool],
        invoke,
        partial(parse_built_in, tool),
        runs_async=False,
        built_in=tool,
    )


def _bind_source(source: ToolSource, definition: ToolDefinition) -> BoundTool:
    validator = validator_of(definition.input_schema)

    def invoke(arguments: Mapping[str, JsonValue], context: ToolContext) -> Awaitable[object]:
        return source.call(definition, arguments, context)

    reconcile = None
    if isinstance(source, ReconcilingToolSource) and definition.reconcile_after_seconds is not None:
        reconcile = partial(source.reconcile, definition)
    return BoundTool(
        definition,
        invoke,
        partial(_validate, validator),
        runs_async=True,
        reconcile=reconcile,
    )


def _validate(validator: Validator, arguments: Mapping[str, JsonValue]) -> None:
    try:
        errors = sorted(validator.iter_errors(dict(arguments)), key=lambda error: list(error.path))
    except Exception as error:
        # A schema of somebody else's: a reference to nothing, a pattern that is none.
        fault = f"{type(error).__name__}: {error}"[:200]
        raise InvalidArguments(f"invalid arguments: their check broke ({fault})") from error
    if errors:
        # A message quotes the value, however long it is.
        parts = [f"{error.json_path}: {error.message}"[:200] for error in errors[:5]]
        raise InvalidArguments("invalid arguments: " + "; ".join(parts))
