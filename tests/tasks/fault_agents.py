"""Agents that can be broken on purpose: every entry leaves a mark on disk, and gates hold what runs.

Workers load this file by its path. A gate is open once the file ``gate-<name>`` is there.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import AsyncIterator
from pathlib import Path

from celeriac.connectors.demo_model import DemoModel
from celeriac.connectors.history import problems_of
from celeriac.connectors.order_support.agent import cancel_order, look_up_order, set_note
from celeriac.sessions.built_in import BuiltInTool
from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.definition import AgentDefinition
from celeriac.sessions.errors import ToolFailed
from celeriac.sessions.messages import Role
from celeriac.sessions.model import ModelError, ModelReply, ModelRequest, ReasoningDelta, TextDelta
from celeriac.sessions.tools import ToolContext, tool

ROOT = Path(os.environ["FAULT_DIR"])
_PAUSE = threading.Event()


def leave_mark(what: str, key: str, attempt: int, **more: object) -> None:
    """Append one line; a single small write to a file opened for appending is whole."""
    mark = {"what": what, "key": key, "attempt": attempt, "pid": os.getpid(), "more": more}
    with (ROOT / "marks").open("ab", buffering=0) as file:
        file.write(json.dumps(mark).encode() + b"\n")


def is_open(gate: str) -> bool:
    return not gate or (ROOT / f"gate-{gate}").exists()


class WatchedModel:
    """The demo model without its pauses; it notes each request, and ``/hold gate text`` waits in between."""

    def __init__(self) -> None:
        self._demo = DemoModel(seconds_per_word=0)

    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        leave_mark(
            "model",
            request.session_id,
            request.attempt,
            problems=problems_of(request),
            instructions=request.instructions,
            texts=[f"{message.role.value}: {message.text}" for message in request.messages],
        )
        last = request.messages[-1]
        if last.role is Role.USER and last.text.startswith("/hold "):
            _, gate, text = last.text.split(" ", 2)
            yield TextDelta(text)
            while not is_open(gate):
                await asyncio.sleep(0.02)
            yield TextDelta(" and more")
            yield ModelReply(text=f"{text} and more", finish_reason="stop")
            return
        if last.role is Role.USER and last.text.startswith("/exit"):
            raise SystemExit(3)
        if last.role is Role.USER and last.text.startswith("/cut"):
            yield TextDelta("half a sentence, and")
            raise ModelError("the stream ended within a call", retryable=True)
        if last.text.startswith("Execute the plan") and "stall" in last.text:
            yield ModelReply(text="I stop here.", finish_reason="stop")
            return
        async for piece in self._demo.stream(request):
            yield piece


def _hold(gate: str) -> None:
    while not is_open(gate):
        _PAUSE.wait(0.02)


@tool(effect=ToolEffect.READ)
def look(context: ToolContext, gate: str = "", end: str = "") -> str:
    """Look at something, in a thread."""
    leave_mark("look", context.call_id, context.attempt)
    _hold(gate)
    _end(end)
    return f"seen {gate or 'at once'}"


@tool(effect=ToolEffect.READ)
async def look_async(context: ToolContext, gate: str = "", end: str = "") -> str:
    """Look at something, on the event loop."""
    leave_mark("look_async", context.call_id, context.attempt)
    while not is_open(gate):
        await asyncio.sleep(0.02)
    _end(end)
    return f"seen {gate or 'at once'}"


@tool(effect=ToolEffect.IDEMPOTENT_WRITE)
def put(context: ToolContext, gate: str = "", end: str = "") -> str:
    """Write something that may be written again."""
    leave_mark("put", context.call_id, context.attempt, idempotency_key=context.idempotency_key)
    _hold(gate)
    _end(end)
    return "put"


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
def charge(context: ToolContext, gate: str = "", end: str = "", after: str = "") -> str:
    """Charge a card. The mark `charge` is the effect; `before` says that it was entered."""
    leave_mark("before", context.call_id, context.attempt)
    _hold(gate)
    leave_mark("charge", context.call_id, context.attempt)
    _end(end)
    _hold(after)
    return "charged"


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True)
def charge_approved(context: ToolContext, gate: str = "", pause: float = 0) -> str:
    """Charge a card after somebody approved it."""
    _PAUSE.wait(pause)
    _hold(gate)
    leave_mark("charge", context.call_id, context.attempt)
    _PAUSE.wait(pause)
    return "charged"


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE, timeout_seconds=0.2)
def charge_slowly(context: ToolContext, gate: str = "", end: str = "") -> str:
    """Charge a card, and take longer than is allowed."""
    leave_mark("before", context.call_id, context.attempt)
    _hold(gate)
    leave_mark("charge", context.call_id, context.attempt)
    if end == "refused":
        raise ToolFailed("the card was refused")
    _end(end)
    return "charged"


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True, approval_timeout_seconds=0.2)
def charge_soon(context: ToolContext) -> str:
    """Charge a card if somebody approves it at once."""
    leave_mark("charge", context.call_id, context.attempt)
    return "charged"


def _end(how: str) -> None:
    """Break in one of the ways in which tools break."""
    if how == "exit":
        os._exit(7)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "memory":
        raise MemoryError("no room left")
    if how == "system":
        raise SystemExit(5)
    if how == "interrupt":
        raise KeyboardInterrupt


WATCHED = WatchedModel()

faults = AgentDefinition(
    name="faults",
    description="Breaks on demand.",
    instructions=os.environ.get("FAULT_INSTRUCTIONS", "Do as told."),
    models=["watched"],
    model_clients={"watched": WATCHED},
    tools=[
        look,
        look_async,
        put,
        charge,
        charge_approved,
        charge_slowly,
        charge_soon,
        look_up_order,
        set_note,
        cancel_order,
    ],
    built_in_tools=frozenset(BuiltInTool),
    plan_mode_enabled=True,
)
