"""Messages: the durable conversation, as it is stored, shown and replayed to the model."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue

from celeriac.sessions.calls import CallStatus

__all__ = ["CallReference", "Message", "Role", "Usage"]

Number = TypeVar("Number", int, float)


class Role(StrEnum):
    """Whose message it is."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    SUMMARY = "summary"
    """Stands for the older messages that compaction took out of the context."""
    NOTICE = "notice"
    """Celeriac's own words, e.g. why a turn failed or that an unknown outcome was settled."""


class Usage(BaseModel):
    """Tokens and cost of one or more model calls. Unknown is None, never 0."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None
    model_calls: int = 0

    def plus(self, other: Usage) -> Usage:
        """Return the sum; a figure unknown on both sides stays unknown."""
        return Usage(
            input_tokens=_sum(self.input_tokens, other.input_tokens),
            output_tokens=_sum(self.output_tokens, other.output_tokens),
            cached_tokens=_sum(self.cached_tokens, other.cached_tokens),
            reasoning_tokens=_sum(self.reasoning_tokens, other.reasoning_tokens),
            cost_usd=_sum(self.cost_usd, other.cost_usd),
            model_calls=self.model_calls + other.model_calls,
        )


def _sum(left: Number | None, right: Number | None) -> Number | None:
    if left is None:
        return right
    return left if right is None else left + right


class CallReference(BaseModel):
    """How an assistant message names a call it made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    tool: str
    arguments: str
    """The model's own text of the arguments, replayed unchanged."""
    provider_id: str | None = None
    """The provider's id for the call: mapped when talking to that provider, never trusted."""


class Message(BaseModel):
    """One entry of the conversation.

    Stored messages are immutable. `seq` counts from 0 over the whole session; it never has gaps.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int
    role: Role
    text: str = ""
    created_at: int
    """Unix milliseconds."""
    turn_id: str | None = None
    message_id: str | None = None
    """The client's id of a user message."""
    items: tuple[JsonValue, ...] = ()
    """The provider's output items, verbatim, for a replay that changes nothing."""
    reasoning: str = ""
    calls: tuple[CallReference, ...] = ()
    call_id: str | None = None
    tool: str | None = None
    status: CallStatus | None = None
    """For a tool message: how its call ended."""
    model: str | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    covers_before: int | None = None
    """For a summary: it stands for all messages with a lower seq than this."""
    interrupted: bool = False
    """The person stopped the model in the middle of this text."""
