"""Messages: the durable conversation, as it is stored, shown and replayed to the model."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import reduce
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue

from celeriac.sessions.calls import CallStatus
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.images import ImageReference

__all__ = ["CallReference", "ItemsApi", "Message", "Role", "Usage", "turn_usage"]

ItemsApi = Literal["chat", "responses", "google-adk", "langchain", "pydantic-ai"]
"""Chat completions (all providers), OpenAI's Responses API, or a framework's messages: each has output items of its
own form."""

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
    """Tokens and cost of one or more model calls. Unknown is None, never 0.

    A sum holds what is known; `uncounted_calls` and `unpriced_calls` say how many calls it lacks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_tokens: int | None = None
    """All tokens that were read, from a cache or not."""
    output_tokens: int | None = None
    """All tokens that were written, reasoning included."""
    cached_tokens: int | None = None
    """Those of the input that a cache had."""
    cache_write_tokens: int | None = None
    """Those of the input that were written into a cache."""
    reasoning_tokens: int | None = None
    """Those of the output that were reasoning."""
    cost_usd: float | None = None
    model_calls: int = 0
    uncounted_calls: int = 0
    """Calls of these whose tokens are unknown."""
    unpriced_calls: int = 0
    """Calls of these whose cost is unknown."""

    def of_one_call(self) -> Usage:
        """Return what one step used, ready to be added to others: one call, or so many as a framework made in it."""
        calls = max(self.model_calls, 1)
        uncounted = self.input_tokens is None or self.output_tokens is None
        counts = {
            "uncounted_calls": calls * uncounted,
            "unpriced_calls": calls * (self.cost_usd is None),
        }
        return self.model_copy(update={"model_calls": calls, **counts})

    def plus(self, other: Usage) -> Usage:
        """Return the sum; a figure unknown on both sides stays unknown."""
        return Usage(
            input_tokens=_sum(self.input_tokens, other.input_tokens),
            output_tokens=_sum(self.output_tokens, other.output_tokens),
            cached_tokens=_sum(self.cached_tokens, other.cached_tokens),
            cache_write_tokens=_sum(self.cache_write_tokens, other.cache_write_tokens),
            reasoning_tokens=_sum(self.reasoning_tokens, other.reasoning_tokens),
            cost_usd=_sum(self.cost_usd, other.cost_usd),
            model_calls=self.model_calls + other.model_calls,
            uncounted_calls=self.uncounted_calls + other.uncounted_calls,
            unpriced_calls=self.unpriced_calls + other.unpriced_calls,
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
    images: tuple[ImageReference, ...] = ()
    """What a user message shows; the bytes are kept beside the conversation."""
    items: tuple[JsonValue, ...] = ()
    """The provider's output items, verbatim, for a replay that changes nothing."""
    items_api: ItemsApi = "chat"
    """The API whose items they are."""
    reasoning: str = ""
    calls: tuple[CallReference, ...] = ()
    call_id: str | None = None
    tool: str | None = None
    status: CallStatus | None = None
    """For a tool message: how its call ended."""
    model: str | None = None
    """The model that was asked."""
    reported_model: str | None = None
    """The model that answered, as its provider names it."""
    finish_reason: str | None = None
    usage: Usage | None = None
    """What the call used that put out this message."""
    first_token_ms: int | None = None
    """Milliseconds from the request to the first piece of text or reasoning."""
    latency_ms: int | None = None
    """Milliseconds from the request to the end of the response."""
    turn_usage: Usage | None = None
    """On the message that ended a turn: what all its model calls used, if that was more than this one."""
    failure: FailureKind | None = None
    """On the notice of a failed turn: what kind of failure of the model it was."""
    covers_before: int | None = None
    """For a summary: it stands for all messages with a lower seq than this."""
    interrupted: bool = False
    """The person stopped the model in the middle of this text."""


def turn_usage(messages: Iterable[Message], turn_id: str) -> Usage:
    """Say what an ended turn used, by its messages; attempts that failed are known by the last one alone."""
    of_turn = [message for message in messages if message.turn_id == turn_id]
    for message in reversed(of_turn):
        if message.turn_usage is not None:
            return message.turn_usage
    used = (message.usage.of_one_call() for message in of_turn if message.usage is not None)
    return reduce(Usage.plus, used, Usage())
