"""The agent under test: a model and tools that take no time, so that only the overhead of steps is left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TypedDict

from celery.signals import worker_ready

from benchmarks.marks import mark, ring
from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.definition import AgentDefinition
from celeriac.sessions.messages import Role
from celeriac.sessions.model import (
    ModelCall,
    ModelReply,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
)
from celeriac.sessions.tools import ToolContext, tool

__all__ = ["Order", "bench"]


class Order(TypedDict, total=False):
    """What a user message asks for, as JSON."""

    reads: int
    """So many calls, one after the other."""
    parallel: int
    """So many calls at once."""
    guarded: bool
    """A call that needs approval."""
    held: bool
    """A call whose first attempt never ends."""
    say: str
    """A text to answer with."""


class BenchModel:
    """Does what the newest message asks for, reading no other."""

    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        """Reply at once."""
        mark(request.session_id, "model")
        newest = request.messages[-1]
        if newest.role is Role.TOOL:
            order: Order = {"reads": int(newest.text)}
        else:
            order = json.loads(newest.text)
        calls = _calls(order)
        if not calls:
            ring(request.session_id)
        yield ModelReply(
            text="" if calls else order.get("say", "done"), calls=calls, finish_reason="stop"
        )


def _calls(order: Order) -> list[ModelCall]:
    if order.get("guarded"):
        return [ModelCall("write", "{}")]
    if order.get("held"):
        return [ModelCall("hold", "{}")]
    if order.get("parallel"):
        return [ModelCall("read", '{"left":0}')] * order["parallel"]
    left = order.get("reads", 0)
    return [ModelCall("read", f'{{"left":{left - 1}}}')] if left > 0 else []


@tool(effect=ToolEffect.READ)
async def read(left: int, context: ToolContext) -> int:
    """Read nothing."""
    mark(context.session_id, "tool")
    return left


@tool(effect=ToolEffect.READ)
async def hold(context: ToolContext) -> int:
    """Read nothing, for ever the first time."""
    mark(context.session_id, "tool")
    if context.attempt == 1:
        await asyncio.Event().wait()
    return 0


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True)
async def write(context: ToolContext) -> int:
    """Write nothing, with approval."""
    mark(context.session_id, "tool")
    return 0


@worker_ready.connect
def _ready(**_: object) -> None:
    ring("ready")


bench = AgentDefinition(
    name="bench",
    instructions="",
    models=["bench"],
    model_clients={"bench": BenchModel()},
    tools=[read, hold, write],
)
