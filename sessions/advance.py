"""What happens next: the pure heart of Celeriac.

`advance(state, event, now)` is the only place where it is decided what a session does after something
happened. It reads no clock, no store and no environment, so every rule can be tested by example and by
random histories. What it returns is committed as a whole or not at all.
"""

from __future__ import annotations

from celeriac.sessions import (
    built_in_rules,
    call_rules,
    late_rules,
    model_rules,
    turn_rules,
    unknown_rules,
)
from celeriac.sessions.calls import CallStatus, Decision, DecisionVerb
from celeriac.sessions.draft import Change, Draft, Rules
from celeriac.sessions.errors import Conflict, NotFound
from celeriac.sessions.inputs import (
    ApprovalDecided,
    CallReconciled,
    CheckRequested,
    ContextCompacted,
    ContextFull,
    Input,
    MessageSent,
    ModelInterrupted,
    ModelReplied,
    OutcomeFound,
    PlanExecuted,
    QuestionAnswered,
    QueuedMessageDeleted,
    StepFailed,
    StepReport,
    StepReturned,
    ToolChanged,
    ToolEnded,
    TurnCancelled,
    TurnSteered,
    WokenUp,
)
from celeriac.sessions.state import SCHEMA_VERSION, SessionState, Step, StepName

__all__ = ["advance", "start"]

_DEFAULT_RULES = Rules()


def start(
    session_id: str, agent: str, model: str, now: int, rules: Rules = _DEFAULT_RULES
) -> Change:
    """Start a session that awaits its first message.

    Args:
        session_id: Its id.
        agent: Name of its agent.
        model: Name of its model.
        now: Unix milliseconds.
        rules: The numbers that the rules use.

    Returns:
        The change that creates it.
    """
    state = SessionState(
        schema_version=SCHEMA_VERSION,
        session_id=session_id,
        agent=agent,
        model=model,
        created_at=now,
        updated_at=now,
    )
    draft = Draft(state, now, rules)
    draft.transition(StepName.START_AGENT_SESSION)
    return draft.finish()


def advance(
    state: SessionState, event: Input, now: int, rules: Rules = _DEFAULT_RULES
) -> Change | None:
    """Decide what an input does to a session.

    Args:
        state: The state before.
        event: What happened.
        now: Unix milliseconds.
        rules: The numbers that the rules use.

    Returns:
        What to commit, or None when the input changes nothing (a repetition, or one that came too late).

    Raises:
        Refused: A person's request does not fit the state; nothing changes.
    """
    draft = Draft(state, now, rules)
    if not _apply(draft, event):
        return None
    return draft.finish()


def _apply(draft: Draft, event: Input) -> bool:
    match event:
        case MessageSent():
            return turn_rules.message_sent(draft, event)
        case QueuedMessageDeleted():
            return turn_rules.queued_message_deleted(draft, event)
        case TurnSteered():
            return turn_rules.steered(draft, event)
        case TurnCancelled():
            return turn_rules.cancelled(draft, event)
        case PlanExecuted():
            return turn_rules.plan_executed(draft, event)
        case ApprovalDecided() | QuestionAnswered() | CallReconciled() | CheckRequested():
            return _call_decided(draft, event)
        case WokenUp():
            return _woken_up(draft, event)
        case _:
            return _step_reported(draft, event)


def _call_decided(
    draft: Draft, event: ApprovalDecided | QuestionAnswered | CallReconciled | CheckRequested
) -> bool:
    """A person says something about a call."""
    match event:
        case ApprovalDecided():
            return _approval_decided(draft, event)
        case QuestionAnswered():
            built_in_rules.question_answered(draft, event)
            turn_rules.go_on(draft)
            return True
        case CallReconciled():
            return unknown_rules.call_reconciled(draft, event)
        case CheckRequested():
            return unknown_rules.check_requested(draft, event)


def _step_reported(draft: Draft, event: StepReport) -> bool:
    """A worker reports on the step that it claimed."""
    match event:
        case ModelReplied() | ModelInterrupted() | ContextFull() | ContextCompacted():
            return _model_ended(draft, event)
        case ToolEnded():
            return _tool_ended(draft, event)
        case StepFailed():
            return _step_failed(draft, event)
        case StepReturned():
            return _step_returned(draft, event)
        case ToolChanged():
            return _tool_changed(draft, event)
        case OutcomeFound():
            return _outcome_found(draft, event)


def _claimed_step(draft: Draft, step_id: str, token: int) -> Step | None:
    step = draft.state.step(step_id)
    return step if step is not None and token != 0 and step.timing.token == token else None


def _model_ended(
    draft: Draft, event: ModelReplied | ModelInterrupted | ContextFull | ContextCompacted
) -> bool:
    step = _claimed_step(draft, event.step_id, event.token)
    if step is None:
        return False
    match event:
        case ModelReplied():
            model_rules.model_replied(draft, step, event)
        case ModelInterrupted():
            model_rules.model_interrupted(draft, step, event)
        case ContextFull():
            model_rules.context_full(draft, step, event)
        case ContextCompacted():
            model_rules.context_compacted(draft, step, event)
    return True


def _tool_ended(draft: Draft, event: ToolEnded) -> bool:
    step = _claimed_step(draft, event.step_id, event.token)
    call = draft.state.call(event.call_id)
    if step is not None and call is not None:
        call_rules.tool_ended(draft, call, step, event)
        turn_rules.go_on(draft)
        return True
    if call is not None and late_rules.settles_open_call(draft, call, event):
        turn_rules.go_on(draft)
        return True
    return late_rules.tool_ended_late(draft, event)


def _outcome_found(draft: Draft, event: OutcomeFound) -> bool:
    step = _claimed_step(draft, event.step_id, event.token)
    if step is None:
        return False
    unknown_rules.outcome_found(draft, step, event)
    return True


def _step_failed(draft: Draft, event: StepFailed) -> bool:
    step = _claimed_step(draft, event.step_id, event.token)
    if step is None:
        return not event.entered and late_rules.did_not_run(draft, event, event.error)
    _attempt_broke(draft, step, event, "failed")
    return True


def _attempt_broke(draft: Draft, step: Step, event: StepFailed, word: str) -> None:
    if step.name.background:
        unknown_rules.check_broke(draft, step, event, word)
        return
    call = draft.state.call(step.call_id) if step.call_id else None
    if call is None:
        model_rules.model_attempt_broke(draft, step, event, word)
    else:
        call_rules.attempt_broke(draft, call, step, event, word)
        turn_rules.go_on(draft)


def _step_returned(draft: Draft, event: StepReturned) -> bool:
    step = _claimed_step(draft, event.step_id, event.token)
    why = "given back by its worker before it began"
    if step is None:
        return late_rules.did_not_run(draft, event, why)
    if step.name.background and not unknown_rules.is_needed(draft, step):
        draft.end_step(step, "returned", note=why)
        return True
    draft.attempt_ended(step, "returned", note=why)
    again = step.evolve(timing=draft.sent_now())
    draft.replace_step(again)
    if not step.name.background and draft.turn.control is not None:
        call_rules.cancel_unstarted(draft)
        turn_rules.go_on(draft)
    else:
        draft.change.send.append(again)
    return True


def _tool_changed(draft: Draft, event: ToolChanged) -> bool:
    step = _claimed_step(draft, event.step_id, event.token)
    call = draft.state.call(step.call_id) if step is not None and step.call_id else None
    if step is None or call is None:
        return False
    draft.end_step(step, "returned", note=event.reason)
    call_rules.definition_changed(draft, call, event)
    if draft.turn.control is not None:
        call_rules.cancel_unstarted(draft)
    turn_rules.go_on(draft)
    return True


def _approval_decided(draft: Draft, event: ApprovalDecided) -> bool:
    call = draft.state.call(event.call_id)
    if call is None:
        raise NotFound(f"No open call {event.call_id!r}.", code="unknown_call")
    if call.status is not CallStatus.AWAITING_APPROVAL:
        return _decided_before(call.decision, event)
    if event.digest != call.digest:
        raise Conflict(
            f"Call {call.id} changed since it was shown; look at it again, then decide.",
            code="changed",
        )
    decision = Decision(
        verb=event.verb, by=event.by, at=draft.now, digest=event.digest, note=event.note
    )
    step = next(step for step in draft.state.steps if step.call_id == call.id)
    approved = event.verb is DecisionVerb.APPROVE
    call = draft.update_call(call.id, decision=decision, approval_reason=None)
    draft.end_step(step, "approved" if approved else "rejected", note=f"by {event.by}")
    if approved:
        call_rules.start_call(draft, call)
    else:
        call_rules.rejected(draft, call)
        turn_rules.go_on(draft)
    return True


def _decided_before(decision: Decision | None, event: ApprovalDecided) -> bool:
    if decision is None:
        raise Conflict(
            f"Call {event.call_id} is not waiting for an approval.", code="not_awaiting_approval"
        )
    if decision.verb is event.verb:
        return False
    raise Conflict(
        f"Call {event.call_id} was already {decision.describe()}.", code="already_decided"
    )


def _woken_up(draft: Draft, event: WokenUp) -> bool:
    changed = False
    for step in draft.state.steps:
        due = step.timing.due
        end = event.dead_owners.get(step.timing.owner) if step.timing.claimed else None
        is_due = end is not None or (due is not None and due <= draft.now)
        if not is_due or draft.state.step(step.id) is None:
            continue
        changed = True
        if step.timing.claimed and event.after_outage and end is None:
            later = step.timing.evolve(due=draft.now + draft.rules.lease_ms)
            draft.replace_step(step.evolve(timing=later))
        elif step.timing.claimed:
            error = f"{end or 'the worker that ran it was lost'} ({step.timing.owner})"
            lost = StepFailed(step.id, step.timing.token, error, delay_ms=0)
            _attempt_broke(draft, step, lost, "lost")
        elif step.name.waits:
            _wait_is_over(draft, step)
        else:
            _send_again(draft, step, event)
    return changed


def _wait_is_over(draft: Draft, step: Step) -> None:
    call = draft.state.call(step.call_id)
    if call is None:
        raise AssertionError(f"the wait {step.id} is of no open call")
    if step.name is StepName.AWAIT_TIMER:
        built_in_rules.timer_fired(draft, call, step)
    else:
        call_rules.approval_expired(draft, call, step)
    turn_rules.go_on(draft)


def _send_again(draft: Draft, step: Step, event: WokenUp) -> None:
    """Send a ready step again that nobody claimed; rarer each time, so a backlog never multiplies."""
    timing = step.timing
    wait = min(draft.rules.resend_ms * 2**timing.sends, draft.rules.resend_max_ms)
    again = step.evolve(timing=timing.evolve(due=draft.now + wait, sends=timing.sends + 1))
    draft.replace_step(again)
    late_not_lost = step.queue in event.backlogged and 0 < timing.sends < _SENDS_UNTIL_LOST
    if not late_not_lost:
        draft.change.send.append(again)


_SENDS_UNTIL_LOST = 6
"""After so many looks (more than a minute) a message is taken for lost even in a backlog."""
