"""Rules of model calls: what a response, a broken attempt or a full context leads to. Pure."""

from __future__ import annotations

from typing import TypedDict

from celeriac.sessions import call_rules, turn_rules
from celeriac.sessions.draft import Draft
from celeriac.sessions.events import EventType
from celeriac.sessions.inputs import (
    ContextCompacted,
    ContextFull,
    ModelInterrupted,
    ModelReplied,
    StepFailed,
)
from celeriac.sessions.messages import Role, Usage
from celeriac.sessions.retry_rules import retry
from celeriac.sessions.state import Step, StepName

__all__ = [
    "context_compacted",
    "context_full",
    "model_attempt_broke",
    "model_interrupted",
    "model_replied",
]


def model_replied(draft: Draft, step: Step, event: ModelReplied) -> None:
    """Store a response, then end the turn or open its calls."""
    facts = _facts(event)
    answered = not event.calls and draft.turn.control is None
    missing = "; ".join(event.missing_tools)
    note = f"some tools were missing: {missing}" if missing else None
    draft.end_step(step, "succeeded", note=note, facts=facts)
    _count_usage(draft, event.usage)
    several = draft.turn.usage.model_calls > 1
    message = draft.append(
        Role.ASSISTANT,
        text=event.text,
        reasoning=event.reasoning,
        items=tuple(event.items),
        items_api=event.items_api,
        calls=tuple(planned.reference for planned in event.calls),
        turn_usage=draft.turn.usage if answered and several else None,
        **facts,
    )
    draft.update_turn(
        model_calls=draft.turn.model_calls + 1,
        response_seq=message.seq,
        compactions=draft.turn.compactions if event.context_full else 0,
        refused_as_too_large=False,
    )
    draft.change.snapshot = event.snapshot
    if answered:
        turn_rules.end_turn(draft, "answered")
        return
    for planned in event.calls:
        call_rules.open_call(draft, planned)
    turn_rules.go_on(draft)


class _Facts(TypedDict):
    """What is recorded of a model call, in its message and in the history."""

    model: str | None
    reported_model: str | None
    finish_reason: str | None
    usage: Usage
    first_token_ms: int | None
    latency_ms: int | None


def _facts(event: ModelReplied | ContextCompacted) -> _Facts:
    return {
        "model": event.model,
        "reported_model": event.reported_model,
        "finish_reason": event.finish_reason,
        "usage": event.usage,
        "first_token_ms": event.first_token_ms,
        "latency_ms": event.latency_ms,
    }


def _count_usage(draft: Draft, of_call: Usage) -> None:
    usage = of_call.of_one_call()
    draft.update(usage=draft.state.usage.plus(usage))
    draft.update_turn(usage=draft.turn.usage.plus(usage))


def model_interrupted(draft: Draft, step: Step, event: ModelInterrupted) -> None:
    """Keep the partial text of a stopped model call; no call of it exists, and what it used is unknown."""
    unknown = Usage()
    draft.end_step(step, "cancelled", facts={"usage": unknown})
    _count_usage(draft, unknown)
    if event.text.strip():
        draft.append(Role.ASSISTANT, text=event.text, interrupted=True, usage=unknown)
    elif step.name is StepName.RUN_MODEL:
        _withdraw(draft, step)
    turn_rules.go_on(draft)


def _withdraw(draft: Draft, step: Step) -> None:
    """Tell pages that what this attempt has streamed, reasoning too, will be no message."""
    draft.event(EventType.TEXT_WITHDRAWN, step_id=step.id, attempt=step.attempt)


def model_attempt_broke(draft: Draft, step: Step, event: StepFailed, word: str) -> None:
    """Retry a model call (of `CompactContext`, too), or record that the turn failed."""
    if step.name is StepName.RUN_MODEL:
        _withdraw(draft, step)
    if event.usage is not None:
        _count_usage(draft, event.usage)
    facts = {"usage": event.usage, "failure": event.kind}
    if draft.turn.control is not None:
        draft.end_step(step, word, error=event.error, facts=facts)
        turn_rules.go_on(draft)
        return
    rules = draft.rules
    too_long = event.delay_ms is not None and event.delay_ms > rules.provider_wait_max_ms
    if event.retryable and not too_long and step.attempt < rules.model_attempts:
        retry(
            draft,
            step,
            event.error,
            delay_ms=event.delay_ms,
            backoff_seconds=None,
            word=word,
            facts=facts,
        )
        return
    draft.end_step(step, word, error=event.error, facts=facts)
    most = rules.provider_wait_max_ms
    why = _why_turn_failed(event, step, too_long=too_long, most_ms=most)
    turn_rules.fail_turn(draft, why, event.kind)


def _why_turn_failed(event: StepFailed, step: Step, *, too_long: bool, most_ms: int) -> str:
    why = event.error
    if too_long and event.delay_ms is not None:
        asked, most = event.delay_ms // 1000, most_ms // 1000
        why = (
            f"{event.error} (the provider asks to wait {asked} s; "
            f"CELERIAC_PROVIDER_WAIT_MAX_SECONDS allows {most} s)"
        )
    elif step.attempt > 1:
        why = f"the model call failed {step.attempt} times; the last error: {event.error}"
    if step.name is StepName.COMPACT_CONTEXT:
        return f"the older messages could not be summarised, nothing of them is lost: {why}"
    return why


# --- compaction


def context_full(draft: Draft, step: Step, event: ContextFull) -> None:
    """Summarise older messages first; this attempt of the model call was none."""
    draft.end_step(step, "returned", note=event.reason)
    if event.refused:
        _withdraw(draft, step)
    if draft.turn.control is not None:
        turn_rules.go_on(draft)
        return
    refused = event.refused or draft.turn.refused_as_too_large
    draft.update_turn(compact_before=event.compact_before, refused_as_too_large=refused)
    draft.open_step(StepName.COMPACT_CONTEXT)


def context_compacted(draft: Draft, step: Step, event: ContextCompacted) -> None:
    """Append the summary and let the context begin after what it covers; both in this one commit."""
    before = draft.turn.compact_before
    facts = _facts(event)
    draft.end_step(step, "succeeded", facts=facts)
    draft.append(
        Role.SUMMARY,
        text=event.text + _still_unknown(draft),
        covers_before=before,
        **facts,
    )
    _count_usage(draft, event.usage)
    draft.update(context_from=before)
    draft.update_turn(compact_before=0, compactions=draft.turn.compactions + 1)
    turn_rules.go_on(draft)


def _still_unknown(draft: Draft) -> str:
    """Say which outcomes are unknown: what the model must not forget is not left to a summary."""
    if not draft.state.unknown:
        return ""
    calls = ", ".join(f"{entry.id} of {entry.tool}" for entry in draft.state.unknown)
    return f"\n\nCalls whose outcome is still unknown (do not repeat them): {calls}."
