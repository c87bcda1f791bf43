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

from collections.abc import Mapping

from pydantic import JsonValue

from celeriac.sessions import built_in_rules
from celeriac.sessions.calls import DID_NOT_RUN, CallOutcome, CallStatus, ToolEffect
from celeriac.sessions.draft import Draft
from celeriac.sessions.inputs import PlannedCall, StepFailed, ToolChanged, ToolEnded
from celeriac.sessions.jsonsafe import truncate_text
from celeriac.sessions.state import (
    ControlVerb,
    OpenCall,
    Step,
    StepName,
    StepTiming,
    UnknownCall,
)

__all__ = [
    "approval_expired",
    "ask_for_approval",
    "attempt_broke",
    "backoff_ms",
    "begin",
    "cancel_unstarted",
    "definition_changed",
    "open_call",
    "rejected",
    "retry",
    "settle_unknown_later",
    "start_call",
    "tool_ended",
]

_STATE_TEXT_BYTES = 2_000
"""How much of an error the control state keeps; history and records have all of it."""


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
        _settle_unknown(draft, call, why)
        return
    if event.effect is not None:
        attempts = 1 if once else call.max_attempts
        call = draft.update_call(call.id, effect=event.effect, max_attempts=attempts)
    call = draft.update_call(call.id, shown=event.shown)
    ask_for_approval(draft, call, event.digest, event.reason)


def rejected(draft: Draft, call: OpenCall) -> None:
    """A person rejected a call: it did not run, unless it asked again after an attempt of a write."""
    if call.attempts == 0 or call.effect is ToolEffect.READ:
        draft.settle(call, CallStatus.REJECTED)
        return
    said = f" They said: {call.decision.note}" if call.decision and call.decision.note else ""
    error = f"An earlier attempt was made; a person then rejected the next one.{said}"
    _settle_unknown(draft, call, error)


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
        _settle_unknown(draft, call, f"an earlier attempt was made; then {why}")


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
        call = draft.update_call(call.id, attempts=call.attempts + 1)
    error, retryable = _bounded_wait(draft, failed)
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
        _settle_unknown(draft, call, error, token=failed.token if failed.entered else 0)
    else:
        draft.settle(call, status, error=error)


def _bounded_wait(draft: Draft, failed: StepFailed) -> tuple[str, bool]:
    longest = draft.rules.provider_wait_max_ms
    if failed.delay_ms is not None and failed.delay_ms > longest:
        asked, limit = failed.delay_ms // 1000, longest // 1000
        return f"{failed.error} (asked to wait {asked} s; the limit is {limit} s)", False
    return failed.error, failed.retryable


def _used_up(call: OpenCall, error: str) -> tuple[CallStatus, str]:
    if call.attempts == 0:
        return CallStatus.FAILED, DID_NOT_RUN + error
    if call.effect is ToolEffect.READ:
        return CallStatus.FAILED, error
    return CallStatus.OUTCOME_UNKNOWN, error


def retry(
    draft: Draft,
    step: Step,
    error: str,
    *,
    delay_ms: int | None,
    backoff_seconds: float | None,
    word: str,
    facts: Mapping[str, object] | None = None,
) -> None:
    """Schedule the next attempt of a step; the wait holds no worker and no message."""
    draft.attempt_ended(step, word, error=error, note="will be tried again", facts=facts)
    wait = backoff_ms(draft, step.attempt, backoff_seconds) if delay_ms is None else delay_ms
    at = draft.now + wait
    timing = StepTiming(not_before=at, due=at) if wait else draft.sent_now()
    again = step.evolve(
        attempt=step.attempt + 1,
        last_error=truncate_text(error, _STATE_TEXT_BYTES),
        last_failure=(facts or {}).get("failure"),
        timing=timing,
    )
    draft.replace_step(again)
    if wait == 0:
        draft.change.send.append(again)


def backoff_ms(draft: Draft, attempt: int, base_seconds: float | None) -> int:
    """Return the wait before the attempt after `attempt`: it doubles, up to a maximum."""
    rules = draft.rules
    base = rules.retry_base_ms if base_seconds is None else int(base_seconds * 1000)
    return int(min(base * 2 ** (attempt - 1), max(rules.retry_max_ms, base)))


def cancel_unstarted(draft: Draft) -> None:
    """Close everything that nobody has started: ready steps, waits, and retries that are waiting."""
    for step in draft.state.steps:
        if step.timing.claimed:
            continue
        draft.end_step(step, CallStatus.CANCELLED.value)
        call = draft.state.call(step.call_id) if step.call_id else None
        if call is None:
            continue
        if call.attempts > 0 and call.effect is not ToolEffect.READ:
            why = f"; the last attempt: {step.last_error}" if step.last_error else ""
            _settle_unknown(draft, call, f"stopped before it could be tried again{why}")
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


def _settle_unknown(draft: Draft, call: OpenCall, error: str, *, token: int = 0) -> None:
    draft.settle(call, CallStatus.OUTCOME_UNKNOWN, error=error)
    unknown = UnknownCall(
        id=call.id,
        tool=call.tool,
        attempts=call.attempts,
        decision=call.decision,
        token=token,
    )
    draft.update(unknown=(*draft.state.unknown, unknown))


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
    if draft.state.call(unknown.id) is not None:
        draft.update_call(unknown.id, status=status)
    draft.call_event(unknown.id, unknown.tool, status)
    if unknown.told_model:
        word = "it did happen" if succeeded else "it did not happen"
        said = note or error
        detail = f" ({truncate_text(said, _STATE_TEXT_BYTES)})" if said else ""
        draft.tell_model(
            f"The outcome of the earlier call {unknown.id} of {unknown.tool} is now known: {word}{detail}."
        )
