"""Rules of unknown outcomes: how a call gets one, how it is looked up, and how it is settled after all. Pure.

A look-up is a step of its own (`ReconcileCall`). It belongs to no turn: it may wait while the session is idle, and no
steer or stop touches it.
"""

from __future__ import annotations

from pydantic import JsonValue

from celeriac.sessions.calls import CallOutcome, CallStatus
from celeriac.sessions.draft import Draft
from celeriac.sessions.errors import Conflict
from celeriac.sessions.inputs import CallReconciled, CheckRequested, OutcomeFound, StepFailed
from celeriac.sessions.jsonsafe import truncate_text
from celeriac.sessions.retry_rules import retry
from celeriac.sessions.state import STATE_TEXT_BYTES, OpenCall, Step, StepName, UnknownCall

__all__ = [
    "call_reconciled",
    "check_broke",
    "check_requested",
    "is_needed",
    "outcome_found",
    "settle_unknown",
    "settle_unknown_later",
]

_CHECK_ATTEMPTS = 5


def settle_unknown(draft: Draft, call: OpenCall, error: str, *, token: int = 0) -> None:
    """Record that nobody knows how a call ended; where its source can look it up, that follows.

    Args:
        draft: The change in the making.
        call: The call.
        error: What is known.
        token: Fencing token of the claim that ended so; 0 when none did.
    """
    draft.settle(call, CallStatus.OUTCOME_UNKNOWN, error=error)
    unknown = UnknownCall(
        id=call.id,
        tool=call.tool,
        attempts=call.attempts,
        decision=call.decision,
        token=token,
        queue=call.queue,
        reconcile_after_ms=call.reconcile_after_ms,
    )
    draft.update(unknown=(*draft.state.unknown, unknown))
    if call.reconcile_after_ms is not None:
        draft.open_step(
            StepName.RECONCILE_CALL,
            call_id=call.id,
            queue=call.queue,
            delay_ms=call.reconcile_after_ms,
        )


def settle_unknown_later(
    draft: Draft,
    unknown: UnknownCall,
    *,
    succeeded: bool,
    by: str,
    result: JsonValue = None,
    error: str | None = None,
    note: str | None = None,
    token: int = 0,
) -> None:
    """Settle a call whose outcome was unknown, and tell the model if it was told "unknown".

    Args:
        draft: The change in the making.
        unknown: The call.
        succeeded: Whether it happened.
        by: Who found out.
        result: What it returned, if known.
        error: Why it failed, if known.
        note: What the person said who found out.
        token: Fencing token of the claim whose report settles it.
    """
    status = CallStatus.SUCCEEDED if succeeded else CallStatus.FAILED
    draft.change.outcomes[unknown.id] = CallOutcome(
        status=status,
        result=result,
        error=error,
        reconciled_by=by,
        note=note,
        attempts=unknown.attempts,
        settled_at=draft.now,
        decision=unknown.decision,
        token=token,
    )
    draft.update(unknown=tuple(old for old in draft.state.unknown if old.id != unknown.id))
    check = _check_of(draft, unknown.id)
    if check is not None and not check.timing.claimed:
        draft.end_step(check, CallStatus.CANCELLED.value, note="the outcome is known")
    if draft.state.call(unknown.id) is not None:
        draft.update_call(unknown.id, status=status)
    draft.call_event(unknown.id, unknown.tool, status)
    if unknown.told_model:
        word = "it did happen" if succeeded else "it did not happen"
        said = note or error
        detail = f" ({truncate_text(said, STATE_TEXT_BYTES)})" if said else ""
        draft.tell_model(
            f"The outcome of the earlier call {unknown.id} of {unknown.tool} is now known: {word}{detail}."
        )


def call_reconciled(draft: Draft, event: CallReconciled) -> bool:
    """A person found out how a call ended."""
    settle_unknown_later(
        draft,
        _known_unknown(draft, event.call_id),
        succeeded=event.succeeded,
        by=event.by,
        result=event.result,
        note=event.note,
    )
    return True


def check_requested(draft: Draft, event: CheckRequested) -> bool:
    """A person wants a call looked up now; one look-up at a time."""
    unknown = _known_unknown(draft, event.call_id)
    if unknown.reconcile_after_ms is None:
        raise Conflict(
            f"Call {unknown.id} of {unknown.tool} cannot be looked up; find out at the provider, then say "
            "whether it happened.",
            code="not_checkable",
        )
    check = _check_of(draft, unknown.id)
    if check is None:
        draft.open_step(StepName.RECONCILE_CALL, call_id=unknown.id, queue=unknown.queue)
        return True
    if check.timing.claimed or check.timing.sends:
        return False
    now = check.evolve(timing=draft.sent_now())
    draft.replace_step(now)
    draft.change.send.append(now)
    return True


def outcome_found(draft: Draft, step: Step, event: OutcomeFound) -> None:
    """A look-up ended: it settles the call, or says what was found."""
    draft.end_step(step, CallStatus.SUCCEEDED.value, note=event.note or None)
    unknown = draft.state.unknown_call(event.call_id)
    if unknown is None:
        return
    if event.happened is None:
        _remember(draft, unknown, event.note)
        return
    settle_unknown_later(
        draft,
        unknown,
        succeeded=event.happened,
        by=event.by,
        result=event.result,
        note=event.note or None,
    )


def check_broke(draft: Draft, step: Step, failed: StepFailed, word: str) -> None:
    """A look-up broke: it is made again a few times, then left to a person."""
    unknown = draft.state.unknown_call(step.call_id)
    if unknown is not None and failed.retryable and step.attempt < _CHECK_ATTEMPTS:
        wait = failed.delay_ms
        retry(draft, step, failed.error, delay_ms=wait, backoff_seconds=None, word=word)
        return
    draft.end_step(step, word, error=failed.error)
    if unknown is not None:
        _remember(draft, unknown, f"It could not be looked up: {failed.error}")


def is_needed(draft: Draft, step: Step) -> bool:
    """Return whether a look-up is still of a call whose outcome is unknown; a person may have settled it meanwhile."""
    return draft.state.unknown_call(step.call_id) is not None


def _remember(draft: Draft, unknown: UnknownCall, note: str) -> None:
    told = unknown.evolve(checked_at=draft.now, checked_note=truncate_text(note, STATE_TEXT_BYTES))
    draft.update(
        unknown=tuple(told if old.id == unknown.id else old for old in draft.state.unknown),
        updated_at=draft.now,
    )
    draft.call_event(unknown.id, unknown.tool, CallStatus.OUTCOME_UNKNOWN)


def _known_unknown(draft: Draft, call_id: str) -> UnknownCall:
    unknown = draft.state.unknown_call(call_id)
    if unknown is None:
        raise Conflict(
            f"The outcome of call {call_id} is not unknown (any more).", code="not_unknown"
        )
    return unknown


def _check_of(draft: Draft, call_id: str) -> Step | None:
    return next((step for step in draft.state.background_steps if step.call_id == call_id), None)
