"""The JSON API of the audit log."""

from __future__ import annotations

from flask import Blueprint, Response, request

from celeriac.web.auth import require_operator
from celeriac.web.operators import Role
from celeriac.web.parts import parts
from celeriac.web.responses import model_response
from celeriac.web.schemas import integer_argument

__all__ = ["api_audit"]

api_audit = Blueprint("api_audit", __name__)


@api_audit.get("/api/audit")
def get_audit() -> Response:
    """Decisions and operators' acts, newest first."""
    require_operator(Role.OPERATOR)
    page = parts().client.audit(
        session_id=request.args.get("session_id") or None,
        cursor=request.args.get("cursor") or None,
        limit=integer_argument("limit", lowest=1, highest=500) or 100,
    )
    return model_response(page)
