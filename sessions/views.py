"""Make read models out of stored records. Pure."""

from __future__ import annotations

from celeriac.sessions.calls import CallOutcome, CallRecord, CallRequest, CallStatus, LateResult
from celeriac.sessions.snapshot import SessionSummary, StepView, TurnView
from celeriac.sessions.state import (
    ControlVerb,
    OpenCall,
    SessionState,
    SessionStatus,
    Step,
)

__all__ = ["call_record", "session_summary", "turn_view"]


def call_record(
    request: CallRequest,
    outcome: CallOutcome | None,
    state: SessionState,
    late: LateResult | None = None,
) -> CallRecord:
    """Join what was asked, how it ended, and, while it is open, where it is.

    Args:
        request: The call's request.
        outcome: Its outcome, if it settled.
        state: The session's control state.
        late: A result that came after it had been settled otherwise.

    Returns:
        The call as people see it.
    """
    call = state.call(request.id)
    step = next((step for step in state.turn_steps if step.call_id == request.id), None)
    known: dict[str, object] = dict(request)
    if call is not None:
        known |= _open_fields(call, step)
        known["waits_its_turn"] = state.waits_its_turn(call)
    if outcome is not None:
        known |= {
            "status": outcome.status,
            "attempts": outcome.attempts or known.get("attempts", 0),
            "skipped": outcome.skipped,
            "result": outcome.result,
            "error": outcome.error,
            "reconciled_by": outcome.reconciled_by,
            "note": outcome.note,
            "answered_by": outcome.answered_by,
            "cancelled_while": outcome.cancelled_while,
            "settled_at": outcome.settled_at,
            "decision": outcome.decision or known.get("decision"),
        }
    known |= _look_up_fields(request.id, state)
    known["late_result"] = late
    known.setdefault("status", CallStatus.PENDING)
    return CallRecord.model_validate(known)


def _open_fields(call: OpenCall, step: Step | None) -> dict[str, object]:
    running = step is not None and step.timing.claimed
    return {
        "status": _live_status(call, step),
        "effect": call.effect,
        "attempts": call.attempts + (1 if running else 0),
        "max_attempts": call.max_attempts,
        "requires_approval": call.requires_approval,
        "digest": call.digest or None,
        "approval_reason": call.approval_reason,
        "decision": call.decision,
        "last_error": step.last_error if step else None,
        "next_attempt_at": step.timing.not_before if step and _is_retrying(step) else None,
        "waits_until": step.timing.due if step and step.name.waits else None,
    }


def _look_up_fields(call_id: str, state: SessionState) -> dict[str, object]:
    unknown = state.unknown_call(call_id)
    if unknown is None:
        return {}
    check = next((step for step in state.background_steps if step.call_id == call_id), None)
    return {
        "checkable": unknown.reconcile_after_ms is not None,
        "checking_at": None
        if check is None
        else check.timing.claimed_at or check.timing.not_before,
        "checked_at": unknown.checked_at,
        "checked_note": unknown.checked_note,
    }


def _is_retrying(step: Step) -> bool:
    return step.attempt > 1 and not step.timing.claimed


def _live_status(call: OpenCall, step: Step | None) -> CallStatus:
    if call.status is not CallStatus.PENDING or step is None:
        return call.status
    if step.timing.claimed:
        return CallStatus.RUNNING
    return CallStatus.RETRYING if _is_retrying(step) else CallStatus.PENDING


def turn_view(state: SessionState) -> TurnView | None:
    """Describe the open turn."""
    turn = state.turn
    if turn is None:
        return None
    word = state.status.value
    if turn.control is not None:
        word = "steering" if turn.control.verb is ControlVerb.STEER else "cancelling"
    return TurnView(
        id=turn.id,
        state=word,
        started_at=turn.started_at,
        model_calls=turn.model_calls,
        plan_mode=turn.plan_mode,
        usage=turn.usage,
        steps=tuple(_step_view(step) for step in state.turn_steps),
    )


def _step_view(step: Step) -> StepView:
    timing = step.timing
    word = "ready"
    if step.name.waits:
        word = "waiting"
    elif timing.claimed:
        word = "running"
    elif _is_retrying(step):
        word = "retrying"
    return StepView(
        id=step.id,
        name=step.name,
        call_id=step.call_id,
        attempt=step.attempt,
        state=word,
        since=timing.claimed_at or step.created_at,
        next_attempt_at=timing.not_before if word == "retrying" else None,
        due=timing.due if step.name.waits else None,
        owner=timing.owner or None,
        last_error=step.last_error,
        last_failure=step.last_failure,
    )


def session_summary(state: SessionState) -> SessionSummary:
    """Make a row of the session list."""
    return SessionSummary(
        session_id=state.session_id,
        agent=state.agent,
        model=state.model,
        title=state.title,
        status=state.status,
        created_at=state.created_at,
        updated_at=state.updated_at,
        turns=state.turns,
        waiting_for=_waiting_for(state),
    )


def _waiting_for(state: SessionState) -> str | None:
    if state.status is not SessionStatus.WAITING or state.turn is None:
        return None
    words = {
        CallStatus.AWAITING_APPROVAL: "approval",
        CallStatus.AWAITING_ANSWER: "answer",
        CallStatus.AWAITING_TIMER: "timer",
    }
    for status, word in words.items():
        for call in state.turn.calls:
            if call.status is status:
                return f"{word}: {call.tool}"
    return None
