"""The JSON API of operations: what goes on, why a session does not move, and metrics."""

from __future__ import annotations

from flask import Blueprint, Response

from celeriac.sessions.errors import NotFound
from celeriac.sessions.ids import is_session_id
from celeriac.tasks.queues import CeleryQueues
from celeriac.web.answers import SessionReasons
from celeriac.web.auth import require_operator
from celeriac.web.metrics import CONTENT_TYPE, metrics_text
from celeriac.web.operators import Role
from celeriac.web.parts import parts
from celeriac.web.responses import model_response

__all__ = ["api_operations"]

api_operations = Blueprint("api_operations", __name__)


@api_operations.get("/api/operations")
def get_operations() -> Response:
    """Workers, queues, counts, and the sessions at work that have not moved for the longest time."""
    require_operator(Role.VIEWER)
    here = parts()
    return model_response(here.client.operations.read(CeleryQueues(here.settings)))


@api_operations.get("/api/operations/sessions/<sid>")
def get_reasons(sid: str) -> Response:
    """Why a session is where it is."""
    require_operator(Role.VIEWER)
    if not is_session_id(sid):
        raise NotFound(f"There is no session {sid[:64]!r}.", code="unknown_session")
    here = parts()
    state, _, reasons = here.client.operations.reasons(sid, CeleryQueues(here.settings))
    return model_response(SessionReasons(session_id=sid, status=state.status, reasons=reasons))


@api_operations.get("/metrics")
def get_metrics() -> Response:
    """Metrics for Prometheus."""
    require_operator(Role.VIEWER)
    here = parts()
    operations = here.client.operations.read(CeleryQueues(here.settings))
    return Response(metrics_text(operations), content_type=CONTENT_TYPE)
