"""Write order: the ordered writes of one response run one at a time, as the model wrote them. Pure.

An ordered call has no step until the writes before it have succeeded; a call that needs an approval asks only
then. When one of them ends in any other way, those after it are skipped.
"""

from __future__ import annotations

from celeriac.sessions import call_rules
from celeriac.sessions.calls import DID_NOT_RUN, CallStatus
from celeriac.sessions.draft import Draft
from celeriac.sessions.state import OpenCall

__all__ = ["take_next"]

_ENDED = {
    CallStatus.FAILED: "failed",
    CallStatus.OUTCOME_UNKNOWN: "has an unknown outcome",
    CallStatus.REJECTED: "was rejected",
    CallStatus.CANCELLED: "was cancelled",
}


def take_next(draft: Draft) -> None:
    """Begin the next ordered write if its turn has come, and skip those that can have none any more."""
    begun = False
    broken: OpenCall | None = None
    for call in draft.turn.calls:
        if not call.ordered:
            continue
        if call.status.settled:
            if call.status is not CallStatus.SUCCEEDED:
                broken = broken or call
        elif not draft.state.waits_its_turn(call):
            begun = True
        elif broken is not None:
            _skip(draft, call, broken)
        elif not begun:
            call_rules.begin(draft, call)
            begun = True


def _skip(draft: Draft, call: OpenCall, broken: OpenCall) -> None:
    why = f"the earlier write {broken.tool} ({broken.id}) of the same response {_ENDED[broken.status]}"
    draft.settle(call, CallStatus.FAILED, error=DID_NOT_RUN + why, skipped=True)
