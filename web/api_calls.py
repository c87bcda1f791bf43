"""The JSON API of calls: decisions, answers and reconciliation. GET never decides anything."""

from __future__ import annotations

from flask import Blueprint, Response

from celeriac.sessions.calls import DecisionVerb
from celeriac.sessions.errors import NotFound
from celeriac.sessions.ids import CALL_ID_PATTERN, is_session_id
from celeriac.web.auth import acting, require_operator, require_session
from celeriac.web.operators import Role
from celeriac.web.responses import model_response
from celeriac.web.schemas import Answer, Decide, Reconcile, read_body

__all__ = ["api_calls", "check_call_id"]

api_calls = Blueprint("api_calls", __name__, url_prefix="/api/sessions/<sid>/calls/<call_id>")


def check_call_id(call_id: str) -> None:
    """Keep what cannot be a Call ID away from the store.

    Raises:
        NotFound: It has another shape.
    """
    if CALL_ID_PATTERN.fullmatch(call_id) is None:
        raise NotFound("There is no such call in this session.", code="unknown_call")


@api_calls.post("/decision")
def decide(sid: str, call_id: str) -> Response:
    """Approve or reject a call that waits for it."""
    principal = require_session(sid, Role.APPROVER)
    check_call_id(call_id)
    body = read_body(Decide)
    call = acting(principal).decide(
        sid,
        call_id,
        DecisionVerb(body.decision),
        by=principal.name,
        note=body.note,
        digest=body.digest,
    )
    return model_response(call)


@api_calls.post("/answer")
def answer(sid: str, call_id: str) -> Response:
    """Answer a question of the agent; open to whoever may send messages to the session."""
    principal = require_session(sid, Role.OPERATOR)
    check_call_id(call_id)
    body = read_body(Answer)
    return model_response(acting(principal).answer(sid, call_id, body.answer, by=principal.name))


@api_calls.post("/check")
def check(sid: str, call_id: str) -> Response:
    """Have an unknown outcome looked up at its provider; for operators only."""
    principal = require_operator(Role.OPERATOR)
    _check_session_id(sid)
    check_call_id(call_id)
    return model_response(acting(principal).check_call(sid, call_id, by=principal.name), 202)


def _check_session_id(sid: str) -> None:
    if not is_session_id(sid):
        raise NotFound(f"There is no session {sid[:64]!r}.", code="unknown_session")


@api_calls.post("/reconcile")
def reconcile(sid: str, call_id: str) -> Response:
    """Settle an unknown outcome; for operators only."""
    principal = require_operator(Role.OPERATOR)
    _check_session_id(sid)
    check_call_id(call_id)
    body = read_body(Reconcile)
    call = acting(principal).reconcile(
        sid,
        call_id,
        succeeded=body.outcome == "succeeded",
        by=principal.name,
        note=body.note,
        result=body.result,
    )
    return model_response(call)
