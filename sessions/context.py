"""The active context: what of the conversation the model reads, how large that is, where it may be cut. Pure.

Sizes are in tokens. A provider's own count is used as far as there is one; the rest is estimated from UTF-8
bytes, 3.5 to a token: English prose has about 4.5, source code and JSON about 3, Chinese about 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from celeriac.sessions.images import IMAGE_TOKENS
from celeriac.sessions.jsonsafe import dump_json
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.model import ModelRequest

__all__ = [
    "RequestSize",
    "active_context",
    "choose_cut",
    "message_tokens",
    "request_size",
    "request_tokens",
    "text_tokens",
]

_MESSAGE_TOKENS = 5
"""What a message costs beside its text: its role, its ids, its punctuation."""
_WORTH = 10
"""A cut must take at least this part of the context (a tenth) away: a summary costs a model call."""


def active_context(messages: Sequence[Message]) -> list[Message]:
    """Put the newest summary before what it does not cover; older summaries are part of it.

    Args:
        messages: The conversation from the first message that the newest summary does not cover.

    Returns:
        What the model reads, oldest first.
    """
    summary = [message for message in messages if message.role is Role.SUMMARY][-1:]
    return summary + [message for message in messages if message.role is not Role.SUMMARY]


def text_tokens(text: str) -> int:
    """Estimate the tokens of a text."""
    return -(-len(text.encode()) * 2 // 7)


def message_tokens(message: Message) -> int:
    """Estimate the tokens of a message; its provider's items hold its text and calls once more."""
    own = text_tokens(message.text)
    own += sum(text_tokens(call.tool) + text_tokens(call.arguments) for call in message.calls)
    own += IMAGE_TOKENS * len(message.images)
    items = sum(text_tokens(dump_json(item)) for item in message.items)
    return _MESSAGE_TOKENS * (1 + len(message.calls)) + max(own, items)


@dataclass(frozen=True, slots=True)
class RequestSize:
    """How many tokens a request has, about."""

    tokens: int
    counted: int | None = None
    """How many of them the provider has counted itself; None when all of it is an estimate."""

    def describe(self) -> str:
        """Say it, with what it rests on."""
        if self.counted is None:
            return f"about {self.tokens:,} tokens (an estimate: no provider has counted them)"
        return f"about {self.tokens:,} tokens ({self.counted:,} counted by the provider)"


def request_size(request: ModelRequest) -> RequestSize:
    """Measure a request: as the provider counted the last one, plus an estimate of what came since.

    Providers count what a cache had, too (litellm adds up Anthropic's parts), so it is the whole input.
    """
    messages = request.messages
    summarised_at = max((one.seq for one in messages if one.role is Role.SUMMARY), default=-1)
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if message.seq < summarised_at:
            break  # it answered a longer context
        usage = message.usage
        # The input of several calls, which a framework made in one step, is no size of the context.
        one = usage is not None and usage.model_calls <= 1
        if message.role is Role.ASSISTANT and usage is not None and one and usage.input_tokens:
            since = sum(map(message_tokens, messages[at:]))
            return RequestSize(usage.input_tokens + since, usage.input_tokens)
    return RequestSize(_fixed_tokens(request) + sum(map(message_tokens, messages)))


def request_tokens(request: ModelRequest) -> int:
    """Say how many tokens a request has, about; see `request_size`."""
    return request_size(request).tokens


def _fixed_tokens(request: ModelRequest) -> int:
    tools = sum(
        text_tokens(tool.name)
        + text_tokens(tool.description)
        + text_tokens(dump_json(dict(tool.input_schema)))
        for tool in request.tools
    )
    return text_tokens(request.instructions) + tools


def choose_cut(context: Sequence[Message], keep_tokens: int) -> int | None:
    """Choose which of the oldest messages a summary shall stand for.

    A response stays with the results of its calls. The newest messages stay, as many as have `keep_tokens`
    together (the newest response or message in any case), or up to twice as many where that keeps a
    turn whole.

    Args:
        context: The active context.
        keep_tokens: About how much stays as it is.

    Returns:
        Seq of the first message that stays; None when nothing worth a model call can be taken away.
    """
    body = [message for message in context if message.role is not Role.SUMMARY]
    sizes = [message_tokens(message) for message in body]
    tails = list(accumulate(reversed(sizes)))[::-1]
    starts = [at for at, message in enumerate(body) if at and message.role is not Role.TOOL]
    if not starts:
        return None
    cut = next((at for at in starts if tails[at] <= keep_tokens), starts[-1])
    whole_turns = [at for at in starts if at <= cut and body[at].turn_id != body[at - 1].turn_id]
    if whole_turns and tails[whole_turns[-1]] <= 2 * keep_tokens:
        cut = whole_turns[-1]
    worth = (tails[0] - tails[cut]) * _WORTH >= tails[0]
    return body[cut].seq if worth else None
