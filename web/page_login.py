"""Login and logout of browsers. Opening a login link changes nothing; pressing its button does."""

from __future__ import annotations

from http import HTTPStatus

from flask import Blueprint, Response, render_template, request, url_for

from celeriac.sessions.audit import AuditAct
from celeriac.web.audit import log_access, log_refusal
from celeriac.web.auth import (
    LOCAL_OPERATOR,
    consume_login_code,
    log_in,
    log_out,
    require_csrf,
    visitor,
)
from celeriac.web.limits import limit_logins
from celeriac.web.operators import Role
from celeriac.web.page_parts import go
from celeriac.web.parts import parts

__all__ = ["page_login"]

page_login = Blueprint("page_login", __name__)


@page_login.get("/login")
def show_login() -> Response:
    """The login page; with a one-time code it has one button."""
    return _page(code=request.args.get("code"))


def _page(*, code: str | None = None, alert: str | None = None, status: int = 200) -> Response:
    html = render_template(
        "login.html", code=code, alert=alert, has_operators=bool(parts().operators)
    )
    return Response(html, status)


@page_login.post("/login")
def login() -> Response:
    """Log the browser in with a one-time code or an operator's token."""
    require_csrf()
    limit_logins()
    code = request.form.get("code")
    if code:
        if not consume_login_code(parts().settings, code):
            log_refusal(AuditAct.LOGIN_REFUSED, "a login link that is used up")
            return _page(
                alert="This link was used already, or a newer one exists. Start the server again for a new link.",
                status=HTTPStatus.FORBIDDEN,
            )
        log_access(AuditAct.LOGIN, LOCAL_OPERATOR, Role.OPERATOR.name.lower())
        log_in(None)
        return go(url_for("page_sessions.show_sessions"))
    operator = parts().operators.find(request.form.get("operator_token", "").strip())
    if operator is None:
        log_refusal(AuditAct.LOGIN_REFUSED, "no operator's token")
        return _page(alert="That token is not known here.", status=HTTPStatus.FORBIDDEN)
    # First: nobody is let in whose login cannot be logged.
    log_access(AuditAct.LOGIN, operator.name, operator.role.name.lower())
    log_in(operator)
    return go(url_for("page_sessions.show_sessions"))


@page_login.post("/logout")
def logout() -> Response:
    """Forget the login."""
    require_csrf()
    known = visitor()
    log_out()
    if known.role != Role.NOBODY:
        log_access(AuditAct.LOGOUT, known.name, known.role.name.lower())
    return go(url_for("page_login.show_login"))
