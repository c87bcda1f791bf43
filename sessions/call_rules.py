"""Rules of calls: how each attempt's end turns into a retry or an outcome. Pure.

The table of effects lives here:

=====================  ==========================  =======================
effect                 an attempt broke            attempts used up
=====================  ==========================  =======================
read                   again, same Call ID         failed
idempotent_write       again, same Call ID         outcome_unknown
non_idempotent_write   never again                 outcome_unknown
=====================  ==========================  =======================

Where no attempt was ever handed to the tool, the call is failed and says that it is safe to call again.
"""

from __future__ import annotations

from celeriac.sessions import built_in_rules
from celeriac.sessions.calls import DID_NOT_RUN, CallStatus, ToolEffect
from celeriac.sessions.draft import Draft
from celeriac.sessions.inputs import PlannedCall, StepFailed, ToolChanged, ToolEnded
from celeriac.sessions.retry_rules import retry, wait_ms
from celeriac.sessions.state import ControlVerb, OpenCall, Step, StepName
from celeriac.sessions.unknown_rules import settle_unknown

__all__ = [
    "approval_expired",
    "ask_for_approval",
    "attempt_broke",
    "begin",
    "cancel_unstarted",
    "definition_changed",
    "open_call",
    "rejected",
    "start_call",
    "tool_ended",
]


def open_call(draft: Draft, planned: PlannedCall) -> None:
    """Open a call of a new response: refused at once, waiting, or ready to run.

    An ordered one gets no step here: `write_order` begins it when its turn comes.
    """
    request = planned.request
    draft.change.requests.append(request)
    call = OpenCall(
        id=request.id,
        tool=request.tool,
        effect=request.effect,
        status=CallStatus.PENDING,
        max_attempts=planned.max_attempts,
        backoff_seconds=planned.backoff_seconds,
        queue=planned.queue,
        requires_approval=planned.requires_approval,
        digest=planned.digest,
        shown=planned.shown,
        ordered=planned.ordered,
        shown_bytes=planned.shown_bytes,
        approval_timeout_ms=planned.approval_timeout_ms,
        idempotency_valid_ms=planned.idempotency_valid_ms,
        reconcile_after_ms=planned.reconcile_after_ms,
    )
    draft.update_turn(calls=(*draft.turn.calls, call))
    if planned.refused is not None:
        draft.settle(call, CallStatus.FAILED, error=DID_NOT_RUN + planned.refused)
    elif draft.turn.control is not None:
        _cancel(draft, call, CallStatus.PENDING)
    elif planned.built_in is not None:
        built_in_rules.open_built_in(draft, call, planned.built_in, request.arguments)
    elif not call.ordered:
        begin(draft, call)


def begin(draft: Draft, call: OpenCall) -> None:
    """Ask for a call's approval if it needs one, else make it ready to run."""
    if call.requires_approval:
        ask_for_approval(draft, call, call.digest, None)
    else:
        start_call(draft, call)


def start_call(draft: Draft, call: OpenCall) -> None:
    """Make a call ready to run, on the route that its effect asks for."""
    once = call.effect is ToolEffect.NON_IDEMPOTENT_WRITE
    name = StepName.CALL_SINGLE_ATTEMPT_TOOL if once else StepName.CALL_TOOL
    # A call that was asked again goes on counting: asking gives it no further attempts.
    draft.open_step(name, call_id=call.id, queue=call.queue, attempt=call.attempts + 1)
    draft.update_call(call.id, status=CallStatus.PENDING)
    draft.call_event(call.id, call.tool, CallStatus.PENDING)


def ask_for_approval(draft: Draft, call: OpenCall, digest: str, reason: str | None) -> None:
    """Let a call wait for a person, bound to what is shown."""
    expires = call.approval_timeout_ms
    due = None if expires is None else draft.now + expires
    draft.open_step(StepName.AWAIT_TOOL_APPROVAL, call_id=call.id, due=due)
    draft.update_call(
        call.id,
        status=CallStatus.AWAITING_APPROVAL,
        digest=digest,
        approval_reason=reason,
        decision=None,
    )
    draft.call_event(call.id, call.tool, CallStatus.AWAITING_APPROVAL)


def definition_changed(draft: Draft, call: OpenCall, event: ToolChanged) -> None:
    """What would run is not what was shown: ask again, under the stricter effect if there is one.

    A write that was tried and must now run at most once is not asked for: it may have happened already.
    """
    once = event.effect is ToolEffect.NON_IDEMPOTENT_WRITE
    if once and call.attempts > 0 and call.effect is not ToolEffect.READ:
        why = f"it was tried before a deploy; now it may run only once. {event.reason}"
        settle_unknown(draft, call, why)
        return
    if event.effect is not None:
        call = draft.update_call(call.id, effect=event.effect)
    call = draft.update_call(call.id, shown=event.shown)
    ask_for_approval(draft, call, event.digest, event.reason)


def rejected(draft: Draft, call: OpenCall) -> None:
    """A person rejected a call: it did not run, unless it asked again after an attempt of a write."""
    if call.attempts == 0 or call.effect is ToolEffect.READ:
        draft.settle(call, CallStatus.REJECTED)
        return
    said = f" They said: {call.decision.note}" if call.decision and call.decision.note else ""
    error = f"An earlier attempt was made; a person then rejected the next one.{said}"
    settle_unknown(draft, call, error)


def approval_expired(draft: Draft, call: OpenCall, step: Step) -> None:
    """Nobody decided in time: that is no rejection, and the call did not run because of it."""
    draft.end_step(step, "expired")
    waited = (call.approval_timeout_ms or 0) // 1000
    why = f"its approval expired after {waited:,} s without a decision"
    if call.attempts == 0:
        draft.settle(call, CallStatus.FAILED, error=DID_NOT_RUN + why)
    elif call.effect is ToolEffect.READ:
        draft.settle(call, CallStatus.FAILED, error=why)
    else:
        settle_unknown(draft, call, f"an earlier attempt was made; then {why}")


def tool_ended(draft: Draft, call: OpenCall, step: Step, ended: ToolEnded) -> None:
    """The tool returned or said for certain that it failed: both settle the call."""
    late = step.timing.token != ended.token
    if step.timing.claimed:
        # Else the result is late and its attempt was counted when its worker was lost.
        call = draft.update_call(call.id, attempts=call.attempts + 1)
    status = CallStatus.SUCCEEDED if ended.succeeded else CallStatus.FAILED
    note = "the late result of an earlier attempt" if late else None
    draft.end_step(step, status.value, error=ended.error, note=note)
    draft.settle(call, status, result=ended.result, error=ended.error, token=ended.token)


def attempt_broke(draft: Draft, call: OpenCall, step: Step, failed: StepFailed, word: str) -> None:
    """An attempt of a call broke: retry it or settle the call, as its effect allows.

    Args:
        draft: The change in the making.
        call: The call.
        step: Its step.
        failed: What broke.
        word: How the history names it: ``failed`` or ``lost``.
    """
    if failed.entered:
        call = draft.update_call(
            call.id,
            attempts=call.attempts + 1,
            first_attempt_at=call.first_attempt_at or step.timing.claimed_at or draft.now,
        )
    error, retryable = _bounded_wait(draft, failed)
    if retryable and not _key_lasts(draft, call, step, failed):
        error, retryable = f"{error} (its provider does not know the key any longer)", False
    # An attempt that certainly did nothing uses none of a write that has only one.
    once = call.effect is ToolEffect.NON_IDEMPOTENT_WRITE
    may_repeat = not (once and call.attempts > 0)
    if retryable and may_repeat and step.attempt < call.max_attempts and not draft.turn.control:
        retry(
            draft,
            step,
            error,
            delay_ms=failed.delay_ms,
            backoff_seconds=call.backoff_seconds,
            word=word,
        )
        draft.call_event(call.id, call.tool, CallStatus.RETRYING)
        return
    status, error = _used_up(call, error)
    draft.end_step(step, word if status is CallStatus.FAILED else status.value, error=error)
    if status is CallStatus.OUTCOME_UNKNOWN:
        settle_unknown(draft, call, error, token=failed.token if failed.entered else 0)
    else:
        draft.settle(call, status, error=error)


def _bounded_wait(draft: Draft, failed: StepFailed) -> tuple[str, bool]:
    longest = draft.rules.provider_wait_max_ms
    if failed.delay_ms is not None and failed.delay_ms > longest:
        asked, limit = failed.delay_ms // 1000, longest // 1000
        return f"{failed.error} (asked to wait {asked} s; the limit is {limit} s)", False
    return failed.error, failed.retryable


def _key_lasts(draft: Draft, call: OpenCall, step: Step, failed: StepFailed) -> bool:
    next_at = draft.now + wait_ms(draft, step, failed.delay_ms, call.backoff_seconds)
    return call.key_is_valid_at(next_at)


def _used_up(call: OpenCall, error: str) -> tuple[CallStatus, str]:
    if call.attempts == 0:
        return CallStatus.FAILED, DID_NOT_RUN + error
    if call.effect is ToolEffect.READ:
        return CallStatus.FAILED, error
    return CallStatus.OUTCOME_UNKNOWN, error


def cancel_unstarted(draft: Draft) -> None:
    """Close everything that nobody has started: ready steps, waits, and retries that are waiting."""
    for step in draft.state.turn_steps:
        if step.timing.claimed:
            continue
        draft.end_step(step, CallStatus.CANCELLED.value)
        call = draft.state.call(step.call_id) if step.call_id else None
        if call is None:
            continue
        if call.attempts > 0 and call.effect is not ToolEffect.READ:
            why = f"; the last attempt: {step.last_error}" if step.last_error else ""
            settle_unknown(draft, call, f"stopped before it could be tried again{why}")
        else:
            _cancel(draft, call, call.status if step.name.waits else _ready_status(step))
    for call in draft.turn.calls:
        if draft.state.waits_its_turn(call):
            _cancel(draft, call, CallStatus.PENDING)


def _ready_status(step: Step) -> CallStatus:
    return CallStatus.RETRYING if step.attempt > 1 else CallStatus.PENDING


def _cancel(draft: Draft, call: OpenCall, was: CallStatus) -> None:
    control = draft.turn.control
    steered = control is not None and control.verb is ControlVerb.STEER
    reason = "The user sent a new message instead." if steered else "The user stopped the turn."
    draft.settle(call, CallStatus.CANCELLED, error=reason, cancelled_while=was)
