"""The event stream of a session, as server-sent events."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

from flask import Blueprint, Response, request

from celeriac.web.auth import require_session
from celeriac.web.operators import Role
from celeriac.web.parts import parts
from celeriac.web.problems import Refusal
from celeriac.web.responses import stream_response

__all__ = ["api_events"]

api_events = Blueprint("api_events", __name__, url_prefix="/api/sessions")


@api_events.get("/<sid>/events")
def events(sid: str) -> Response:
    """Stream live events from a position: ``Last-Event-ID``, else ``?resume_token=``, else the end."""
    require_session(sid, Role.VIEWER)
    here = parts()
    asked = _asked_position(sid)

    def open_stream() -> Iterator[str]:
        position = _end_position(sid) if asked is None else asked
        return here.streams.read(here.client, here.key, sid, position)

    return stream_response(here.streams, open_stream)


def _end_position(session_id: str) -> str:
    here = parts()
    with here.streams.turn():
        return here.client.snapshot(session_id).resume_token


def _asked_position(session_id: str) -> str | None:
    token = request.headers.get("Last-Event-ID")
    if token is None:
        token = request.args.get("resume_token")
    if token is None:
        return None
    position = parts().key.position(session_id, token)
    if position is None:
        raise Refusal(
            HTTPStatus.BAD_REQUEST,
            "The resume token is not one of this session. Load the snapshot and go on from its resume_token.",
            code="invalid_resume_token",
        )
    return position
