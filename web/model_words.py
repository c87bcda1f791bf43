"""Model calls in words for a person: what they used, how they ended, why they failed."""

from __future__ import annotations

from dataclasses import dataclass

from celeriac.sessions.failures import FailureKind
from celeriac.sessions.messages import Message, Usage

__all__ = ["Fact", "answer_facts", "answer_line", "failure_words", "retry_words", "usage_words"]


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that is known of a model call."""

    name: str
    words: str


_FAILURES = {
    FailureKind.BUSY: "The model's provider is too busy just now, or it was asked too often. Try again later.",
    FailureKind.UNAVAILABLE: "The model's provider could not be reached, or has trouble of its own. Try again later.",
    FailureKind.TIMEOUT: "The model did not answer in time. Try again, or ask for less at once.",
    FailureKind.BROKEN: "The model's answer broke off or could not be used. Try again.",
    FailureKind.AUTHENTICATION: (
        "The provider does not accept the key of this worker. Whoever runs the workers must set the right one."
    ),
    FailureKind.QUOTA: (
        "The account at the provider has no money or quota left. Whoever runs the workers must see to it."
    ),
    FailureKind.NOT_FOUND: "The provider does not know this model. Choose another one.",
    FailureKind.UNSUPPORTED: (
        "This model does not take a setting that the agent gives it. Choose another model, or have the agent changed."
    ),
    FailureKind.BAD_REQUEST: "The provider refused the request as it is. Trying again will not help.",
    FailureKind.CONTENT_POLICY: (
        "The provider's content policy stopped the request or the answer. Say it in another way."
    ),
    FailureKind.REFUSAL: "The model refused to answer. Say it in another way.",
    FailureKind.TOO_LARGE: (
        "This conversation has become too large for the model. Start a new session, or choose a model that reads more."
    ),
}
_RETRIES = {
    FailureKind.BUSY: "The provider is too busy",
    FailureKind.UNAVAILABLE: "The provider could not be reached or has trouble",
    FailureKind.TIMEOUT: "The model did not answer in time",
    FailureKind.BROKEN: "The model's answer broke off",
}
_ENDINGS = {
    "stop": "finished",
    "end_turn": "finished",
    "completed": "finished",
    "tool_calls": "to call tools",
    "length": "cut at the longest answer allowed",
    "max_tokens": "cut at the longest answer allowed",
    "content_filter": "cut by the provider's content filter",
    "refusal": "refused",
}


def failure_words(kind: FailureKind) -> str:
    """Say why a turn failed and what to do."""
    return _FAILURES[kind]


def retry_words(kind: FailureKind | None) -> str:
    """Say why a model call is tried again."""
    return _RETRIES.get(kind, "The model call failed") if kind else "The model call failed"


def usage_words(usage: Usage) -> str:
    """Say what was used in all; what is unknown is called so, never 0."""
    if usage.model_calls == 0:
        return "No model call yet"
    parts = [_count(usage.model_calls, "model call")]
    if usage.input_tokens is not None or usage.output_tokens is not None:
        tokens = f"{(usage.input_tokens or 0) + (usage.output_tokens or 0):,} tokens"
        parts.append(_with_gap(tokens, usage.uncounted_calls, "whose tokens nobody counted"))
    if usage.cost_usd is None:
        parts.append("cost unknown")
    else:
        parts.append(_with_gap(_dollars(usage.cost_usd), usage.unpriced_calls, "without a price"))
    return " · ".join(parts)


def _with_gap(words: str, missing: int, which: str) -> str:
    return f"at least {words} ({_count(missing, 'call')} {which})" if missing else words


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _dollars(cost: float) -> str:
    if cost >= 0.1:
        return f"${cost:,.2f}"
    return f"${cost:.4f}" if cost >= 0.0001 else "less than $0.0001"


def answer_line(message: Message) -> str:
    """Say in one line what a model call was; nothing when nothing is known of it."""
    usage = message.usage
    parts = [message.reported_model or message.model or ""]
    if usage is not None and (usage.input_tokens is not None or usage.output_tokens is not None):
        parts.append(f"{(usage.input_tokens or 0) + (usage.output_tokens or 0):,} tokens")
    if usage is not None and usage.cost_usd is not None:
        parts.append(_dollars(usage.cost_usd))
    if message.latency_ms is not None:
        parts.append(_seconds(message.latency_ms))
    return " · ".join(filter(None, parts))


def answer_facts(message: Message) -> list[Fact]:
    """List what is known of the model call behind a message."""
    usage = message.usage or Usage()
    found = [
        Fact("Model", _model(message)),
        Fact("Read", _tokens(usage.input_tokens, _of_input(usage))),
        Fact("Written", _tokens(usage.output_tokens, _of_output(usage))),
        Fact("Cost", "unknown" if usage.cost_usd is None else _dollars(usage.cost_usd)),
        Fact("Time", _time(message)),
        Fact("Ended", _ending(message)),
    ]
    if message.turn_usage is not None:
        found.append(Fact("Whole turn", usage_words(message.turn_usage)))
    return [fact for fact in found if fact.words]


def _model(message: Message) -> str:
    asked, answered = message.model or "", message.reported_model or ""
    if not answered or answered == asked:
        return asked
    return f"{answered}, asked for as {asked}" if asked else answered


def _tokens(count: int | None, parts: list[str]) -> str:
    if count is None:
        return "unknown"
    return f"{_count(count, 'token')}{' (' + ', '.join(parts) + ')' if parts else ''}"


def _of_input(usage: Usage) -> list[str]:
    parts = []
    if usage.cached_tokens:
        parts.append(f"{usage.cached_tokens:,} from the provider's cache")
    if usage.cache_write_tokens:
        parts.append(f"{usage.cache_write_tokens:,} put into it")
    return parts


def _of_output(usage: Usage) -> list[str]:
    return [f"{usage.reasoning_tokens:,} of them reasoning"] if usage.reasoning_tokens else []


def _time(message: Message) -> str:
    if message.latency_ms is None:
        return ""
    whole = _seconds(message.latency_ms)
    if message.first_token_ms is None:
        return whole
    return f"{whole}, the first token after {_seconds(message.first_token_ms)}"


def _seconds(milliseconds: int) -> str:
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    return (
        f"{milliseconds / 1000:.1f} s" if milliseconds < 60_000 else f"{milliseconds // 1000:,} s"
    )


def _ending(message: Message) -> str:
    reason = message.finish_reason
    return "" if reason is None else _ENDINGS.get(reason, reason)
