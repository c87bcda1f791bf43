"""Builders of model requests and messages for the tests of connectors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.messages import CallReference, Message, Role
from celeriac.sessions.model import ModelReply, ModelRequest, ReasoningDelta, TextDelta
from celeriac.sessions.tools import ToolDefinition

Piece = TextDelta | ReasoningDelta | ModelReply


def user(text: str) -> Message:
    return Message(seq=0, role=Role.USER, text=text, created_at=0)


def assistant(text: str = "", *calls: CallReference) -> Message:
    return Message(seq=0, role=Role.ASSISTANT, text=text, calls=calls, created_at=0)


def result(call_id: str, tool: str, text: str) -> Message:
    return Message(seq=0, role=Role.TOOL, call_id=call_id, tool=tool, text=text, created_at=0)


def notice(text: str) -> Message:
    return Message(seq=0, role=Role.NOTICE, text=text, created_at=0)


def call(call_id: str, tool: str = "look_up", arguments: str = "{}") -> CallReference:
    return CallReference(id=call_id, tool=tool, arguments=arguments)


def named_tools(*names: str) -> list[ToolDefinition]:
    return [
        ToolDefinition(
            name=name, description=name, input_schema={"type": "object"}, effect=ToolEffect.READ
        )
        for name in names
    ]


def request(
    *messages: Message,
    tools: Sequence[ToolDefinition] = (),
    model: str = "demo",
    instructions: str = "Be brief.",
    attempt: int = 1,
    timeout_seconds: float = 30,
) -> ModelRequest:
    return ModelRequest(
        model=model,
        instructions=instructions,
        messages=messages,
        tools=tools,
        session_id="ses_1",
        turn_id="t1",
        attempt=attempt,
        timeout_seconds=timeout_seconds,
    )


def collect(stream: AsyncIterator[Piece]) -> list[Piece]:
    """Run a stream to its end in a loop of its own."""

    async def gather() -> list[Piece]:
        return [piece async for piece in stream]

    return asyncio.run(gather())


def reply_of(pieces: Sequence[Piece]) -> ModelReply:
    last = pieces[-1]
    assert isinstance(last, ModelReply)
    return last
