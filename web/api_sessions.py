"""The JSON API of sessions: start, read, send, steer, stop, execute a plan."""

from __future__ import annotations

from flask import Blueprint, Response, request

from celeriac.sessions.errors import InvalidRequest, NotFound
from celeriac.sessions.ids import MESSAGE_ID_PATTERN
from celeriac.sessions.snapshot import Snapshot
from celeriac.sessions.state import SessionStatus
from celeriac.web.answers import Accepted, SessionStarted, Steps
from celeriac.web.auth import acting, creator, require_operator, require_session
from celeriac.web.limits import limit_messages, limit_sessions
from celeriac.web.operators import Role
from celeriac.web.parts import parts
from celeriac.web.responses import empty, model_response
from celeriac.web.schemas import (
    CancelTurn,
    CreateSession,
    ExecutePlan,
    SendMessage,
    Steer,
    integer_argument,
    read_body,
)
from celeriac.web.uploads import accept_images, json_images

__all__ = ["api_sessions"]

api_sessions = Blueprint("api_sessions", __name__, url_prefix="/api/sessions")


@api_sessions.post("")
def create_session() -> Response:
    """Start a session; the server picks its id."""
    principal = creator()
    limit_sessions(principal)
    accept_images()
    body = read_body(CreateSession, optional=True)
    created = acting(principal).create_session(
        agent=body.agent,
        model=body.model,
        message=body.message,
        message_id=body.message_id,
        plan_mode=body.plan_mode,
        images=json_images(body.images),
    )
    token = parts().key.session_token(created.session_id)
    response = model_response(SessionStarted(**dict(created), session_token=token), 201)
    response.headers["Location"] = f"/api/sessions/{created.session_id}"
    return response


@api_sessions.get("")
def list_sessions() -> Response:
    """List sessions, newest first."""
    require_operator(Role.VIEWER)
    page = parts().client.list_sessions(
        status=status_argument(),
        agent=request.args.get("agent") or None,
        cursor=request.args.get("cursor") or None,
        limit=integer_argument("limit", lowest=1, highest=200) or 50,
    )
    return model_response(page)


def status_argument() -> SessionStatus | None:
    """Read the filter ``?state=`` of a session list.

    Raises:
        InvalidRequest: It is no session status.
    """
    text = request.args.get("state") or None
    if text is None:
        return None
    if text not in set(SessionStatus):
        names = ", ".join(SessionStatus)
        raise InvalidRequest(
            f"state must be one of {names}, not {text[:40]!r}.", code="invalid_argument"
        )
    return SessionStatus(text)


@api_sessions.get("/<sid>")
def get_snapshot(sid: str) -> Response:
    """The session in one consistent moment."""
    require_session(sid, Role.VIEWER)
    return model_response(signed(parts().client.snapshot(sid)))


def signed(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with its resume token signed for this session."""
    token = parts().key.resume_token(snapshot.session_id, snapshot.resume_token)
    return snapshot.model_copy(update={"resume_token": token})


@api_sessions.get("/<sid>/messages")
def get_messages(sid: str) -> Response:
    """Older messages."""
    require_session(sid, Role.VIEWER)
    before = integer_argument("before", lowest=0, highest=10**12)
    limit = integer_argument("limit", lowest=1, highest=200) or 200
    return model_response(parts().client.messages(sid, before=before, limit=limit))


@api_sessions.post("/<sid>/messages")
def send_message(sid: str) -> Response:
    """Send a message; it starts a turn or waits in the queue."""
    principal = require_session(sid, Role.OPERATOR)
    limit_messages(sid)
    accept_images()
    body = read_body(SendMessage)
    sent = acting(principal).send_message(
        sid,
        body.text,
        message_id=body.message_id,
        plan_mode=body.plan_mode,
        model=body.model,
        images=json_images(body.images),
    )
    return model_response(sent, 202)


@api_sessions.delete("/<sid>/queue/<message_id>")
def delete_queued(sid: str, message_id: str) -> Response:
    """Take a message out of the queue."""
    principal = require_session(sid, Role.OPERATOR)
    if MESSAGE_ID_PATTERN.fullmatch(message_id) is None:
        raise NotFound("No such message is in the queue.", code="unknown_message")
    acting(principal).delete_queued(sid, message_id)
    return empty()


@api_sessions.post("/<sid>/steer")
def steer(sid: str) -> Response:
    """Apply queued messages, or a new one, at the next safe step boundary."""
    principal = require_session(sid, Role.OPERATOR)
    body = read_body(Steer, optional=True)
    if body.text is not None:
        limit_messages(sid)
    ids = None if body.message_ids is None else tuple(body.message_ids)
    acting(principal).steer(sid, message_ids=ids, text=body.text, by=principal.name)
    return model_response(Accepted(), 202)


@api_sessions.post("/<sid>/cancel")
def cancel(sid: str) -> Response:
    """Stop the open turn."""
    principal = require_session(sid, Role.OPERATOR)
    body = read_body(CancelTurn, optional=True)
    acting(principal).cancel_turn(sid, turn_id=body.turn_id, by=principal.name)
    return model_response(Accepted(), 202)


@api_sessions.post("/<sid>/plan/execute")
def execute_plan(sid: str) -> Response:
    """Carry out the plan, as it was reviewed."""
    principal = require_session(sid, Role.OPERATOR)
    body = read_body(ExecutePlan)
    acting(principal).execute_plan(sid, revision=body.revision, by=principal.name)
    return model_response(Accepted(), 202)


@api_sessions.get("/<sid>/steps")
def get_steps(sid: str) -> Response:
    """The step history."""
    require_session(sid, Role.VIEWER)
    return model_response(Steps(steps=parts().client.steps(sid)))
