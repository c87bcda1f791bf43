"""The page of the audit log."""

from __future__ import annotations

from flask import Blueprint, Response, render_template, request, url_for

from celeriac.web.auth import visitor
from celeriac.web.operators import Role
from celeriac.web.page_parts import go
from celeriac.web.parts import parts
from celeriac.web.problems import forbidden

__all__ = ["page_audit"]

page_audit = Blueprint("page_audit", __name__)


@page_audit.get("/audit")
def show_audit() -> Response:
    """Who did what, newest first."""
    principal = visitor()
    if principal.role == Role.NOBODY:
        return go(url_for("page_login.show_login"))
    if not principal.is_operator:
        raise forbidden("The audit log is for operators. Log in as one.", code="role_too_small")
    session_id = request.args.get("session_id", "").strip() or None
    page = parts().client.audit(
        session_id=session_id, cursor=request.args.get("cursor") or None, limit=50
    )
    return Response(render_template("audit.html", page=page, session_id=session_id))
