"""The agent of the storm: a model that does what its messages say, and tools that enter their effects.

A message is JSON: ``{"label": …, "words": …, "fail": …, "rounds": [[[tool, arguments], …], …]}``. Each round
is one response with calls; after the last one the model answers.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from celeriac.connectors.history import problems_of
from celeriac.connectors.sdk.source import ConnectorToolSource
from celeriac.connectors.sdk.tools import connector_tool
from celeriac.connectors.summaries import INSTRUCTIONS
from celeriac.sessions.built_in import BuiltInTool
from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.definition import AgentDefinition, CompactionPolicy
from celeriac.sessions.errors import ToolFailed
from celeriac.sessions.messages import Message, Role, Usage
from celeriac.sessions.model import (
    ModelCall,
    ModelError,
    ModelReply,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
)
from celeriac.sessions.tools import ToolContext, tool
from tests.chaos.points import LEDGER, install, pass_point, strike

__all__ = ["chaos"]

_WORD_SECONDS = 0.02
_PAUSE = threading.Event()


@dataclass(frozen=True)
class Wish:
    """What a message asks the model for."""

    label: str
    words: int = 0
    fail: int = 0
    """Attempts that fail before the first response."""
    rounds: Sequence[Sequence[tuple[str, dict[str, JsonValue]]]] = field(default_factory=list)


class ChaosModel:
    """Streams its answers word by word and does what the newest message of the turn says."""

    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        LEDGER.request(request.session_id, request.turn_id, request.attempt, problems_of(request))
        if request.instructions == INSTRUCTIONS:
            yield TextDelta("What came before")
            pass_point("in a summary", request.session_id, request.attempt)
            yield ModelReply(text="What came before was this and that.", finish_reason="stop")
            return
        turn = [one for one in request.messages if one.turn_id == request.turn_id]
        wish = _wish(turn)
        number = sum(message.role is Role.ASSISTANT for message in turn)
        yield ReasoningDelta("hm")
        text = ""
        for word in range(wish.words):
            text += f"word-{word} "
            yield TextDelta(f"word-{word} ")
            await asyncio.sleep(_WORD_SECONDS)
        pass_point("in a model call", f"{wish.label}/model-{number}", request.attempt)
        if number == 0 and request.attempt <= wish.fail:
            if request.attempt == 2:
                raise RuntimeError("planned: the stream broke")
            raise ModelError("planned: the service is overloaded", retryable=True)
        calls = wish.rounds[number] if number < len(wish.rounds) else ()
        yield ModelReply(
            text=text if calls else f"{text}done {wish.label}",
            calls=[ModelCall(name=name, arguments=json.dumps(given)) for name, given in calls],
            items=[{"type": "item", "number": number}],
            usage=Usage(output_tokens=1, model_calls=1),
            finish_reason="tool_calls" if calls else "stop",
        )


def _wish(turn: Sequence[Message]) -> Wish:
    said = [message for message in turn if message.role is Role.USER]
    if not said:
        return Wish("a plan that stalled, or a turn whose beginning was summarised")
    if said[-1].message_id is None:
        done: JsonValue = [{"title": "sow and reap", "status": "completed"}]
        return Wish("a plan", rounds=[[("write_todos", {"todos": done})]])
    return Wish(**json.loads(said[-1].text))


def _begin(context: ToolContext, name: str, label: str, end: str) -> None:
    _enter("entered", context, name, label)
    if end == "refuse":
        raise ToolFailed("planned: the provider refused")
    if end.endswith("-early") and context.attempt == 1:
        _end(end.removesuffix("-early"), label, context.attempt)


def _happen(context: ToolContext, name: str, label: str, end: str) -> str:
    """Have the effect, between the two points that matter most."""
    pass_point("before effect", label, context.attempt)
    _enter("effects", context, name, label)
    pass_point("after effect", label, context.attempt)
    if end.endswith("-late") and context.attempt == 1:
        _end(end.removesuffix("-late"), label, context.attempt)
    return f"{name} of {label}"


def _enter(table: str, context: ToolContext, name: str, label: str) -> None:
    LEDGER.enter(
        table,
        context.call_id,
        key=context.idempotency_key,
        tool=name,
        label=label,
        attempt=context.attempt,
    )


def _end(how: str, label: str, attempt: int) -> None:
    """Break in one of the ways in which tools break."""
    if how in {"exit", "kill"}:
        strike(how, "by a tool", label, attempt)
    if how == "memory":
        raise MemoryError("planned: no room left")
    if how == "system":
        raise SystemExit(5)
    if how == "interrupt":
        raise KeyboardInterrupt
    raise RuntimeError("planned: the tool broke")


@tool(effect=ToolEffect.READ)
def look(context: ToolContext, label: str, pause: float = 0, end: str = "") -> str:
    """Look at something, in a thread."""
    _begin(context, "look", label, end)
    _PAUSE.wait(pause)
    return f"seen {label}"


@tool(effect=ToolEffect.READ)
async def look_async(context: ToolContext, label: str, pause: float = 0, end: str = "") -> str:
    """Look at something, on the event loop."""
    _begin(context, "look_async", label, end)
    await asyncio.sleep(pause)
    return f"seen {label}"


@tool(effect=ToolEffect.IDEMPOTENT_WRITE)
def put(context: ToolContext, label: str, pause: float = 0, end: str = "") -> str:
    """Write something that may be written again."""
    _begin(context, "put", label, end)
    _PAUSE.wait(pause)
    return _happen(context, "put", label, end)


@tool(effect=ToolEffect.IDEMPOTENT_WRITE, requires_approval=True)
async def put_approved(context: ToolContext, label: str, pause: float = 0, end: str = "") -> str:
    """Write something that may be written again, once approved."""
    _begin(context, "put_approved", label, end)
    await asyncio.sleep(pause)
    return _happen(context, "put_approved", label, end)


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
def charge(context: ToolContext, label: str, pause: float = 0, end: str = "") -> str:
    """Charge a card."""
    _begin(context, "charge", label, end)
    _PAUSE.wait(pause)
    return _happen(context, "charge", label, end)


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
async def charge_async(context: ToolContext, label: str, pause: float = 0, end: str = "") -> str:
    """Charge a card, on the event loop."""
    _begin(context, "charge_async", label, end)
    await asyncio.sleep(pause)
    return _happen(context, "charge_async", label, end)


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE, timeout_seconds=0.5)
def charge_timed(context: ToolContext, label: str, pause: float = 0, end: str = "") -> str:
    """Charge a card; a long pause overruns its time, and it happens all the same."""
    _begin(context, "charge_timed", label, end)
    _PAUSE.wait(pause)
    return _happen(context, "charge_timed", label, end)


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True, approval_timeout_seconds=1.5)
def charge_soon(context: ToolContext, label: str, pause: float = 0, end: str = "") -> str:
    """Charge a card, if somebody approves it in time."""
    _begin(context, "charge_soon", label, end)
    _PAUSE.wait(pause)
    return _happen(context, "charge_soon", label, end)


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True)
def charge_approved(context: ToolContext, label: str, pause: float = 0, end: str = "") -> str:
    """Charge a card after somebody approved it."""
    _begin(context, "charge_approved", label, end)
    _PAUSE.wait(pause)
    return _happen(context, "charge_approved", label, end)


chaos = AgentDefinition(
    name="chaos",
    description="Does what it is told while everything breaks.",
    instructions="Do as told.",
    models=["chaos"],
    model_clients={"chaos": ChaosModel()},
    tools=[
        look,
        look_async,
        put,
        put_approved,
        charge,
        charge_async,
        charge_timed,
        charge_soon,
        charge_approved,
    ],
    tool_sources=[
        ConnectorToolSource(
            [
                connector_tool("stripe.createRefund", "shop", requires_approval=False),
                connector_tool(
                    "sql.execute", "books", fixed={"statement": "book"}, requires_approval=False
                ),
            ]
        )
    ],
    built_in_tools=frozenset(BuiltInTool),
    plan_mode_enabled=True,
    # So small that a session of a few turns is summarised once or twice.
    compaction=CompactionPolicy(context_window_tokens=2_000, threshold=0.8, keep_recent_tokens=200),
)

install()
