"""Rules of late reports: a worker that was thought dead says after all how its attempt ended. Pure.

Nothing that such a worker says is lost. Whatever still says something new settles the call or its unknown
outcome; what comes too late for that is kept on the call's record.
"""

from __future__ import annotations

from celeriac.sessions import call_rules
from celeriac.sessions.calls import DID_NOT_RUN, CallStatus, LateResult, ToolEffect
from celeriac.sessions.draft import Draft
from celeriac.sessions.inputs import SettledCall, StepFailed, StepReturned, ToolEnded
from celeriac.sessions.state import OpenCall
from celeriac.sessions.unknown_rules import settle_unknown_later

__all__ = ["did_not_run", "settles_open_call", "tool_ended_late"]

_BY = "late result"


def settles_open_call(draft: Draft, call: OpenCall, event: ToolEnded) -> bool:
    """Settle a call that is to be tried again, or waits to be asked again; say whether that was done.

    Only a success does: that one attempt failed says nothing about the next.
    """
    step = next((step for step in draft.state.turn_steps if step.call_id == call.id), None)
    if step is None or not event.succeeded:
        return False
    call_rules.tool_ended(draft, call, step, event)
    return True


def tool_ended_late(draft: Draft, event: ToolEnded) -> bool:
    """Settle an unknown outcome, or keep the result on the record of a call that is settled."""
    unknown = draft.state.unknown_call(event.call_id)
    if unknown is not None and (event.succeeded or unknown.attempts <= 1):
        settle_unknown_later(
            draft,
            unknown,
            succeeded=event.succeeded,
            by=_BY,
            result=event.result,
            error=event.error,
            token=event.token,
        )
        return True
    settled = event.settled
    if settled is None or not _says_something_new(settled, event):
        return False
    draft.change.late_results[event.call_id] = LateResult(
        succeeded=event.succeeded,
        result=event.result,
        error=event.error,
        at=draft.now,
        token=event.token,
    )
    draft.update(updated_at=draft.now)
    draft.call_event(event.call_id, settled.request.tool, settled.outcome.status)
    if event.succeeded and _contradicts(settled):
        draft.tell_model(
            f"A late result of the earlier call {event.call_id} of {settled.request.tool} arrived: it "
            f"succeeded, although it was recorded as {settled.outcome.status.value}."
        )
    return True


def did_not_run(draft: Draft, event: StepFailed | StepReturned, why: str) -> bool:
    """Settle an unknown outcome whose only attempt, as its worker now says, never entered the tool."""
    unknown = draft.state.unknown_call(event.call_id)
    if unknown is None or unknown.attempts != 1 or unknown.token != event.token:
        return False
    settle_unknown_later(
        draft, unknown, succeeded=False, by=_BY, error=DID_NOT_RUN + why, token=event.token
    )
    return True


def _says_something_new(settled: SettledCall, event: ToolEnded) -> bool:
    """Whether this report was not stored before, nor one that says more: a success is never replaced."""
    late = settled.late
    if event.token == settled.outcome.token or (late is not None and event.token == late.token):
        return False
    return late is None or (event.succeeded and not late.succeeded)


def _contradicts(settled: SettledCall) -> bool:
    """Whether the model was told that a write did not happen."""
    writes = settled.request.effect is not ToolEffect.READ
    return writes and settled.outcome.status in {CallStatus.FAILED, CallStatus.REJECTED}
