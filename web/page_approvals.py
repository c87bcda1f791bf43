"""The inbox: every call that waits for a person, and every outcome that nobody knows."""

from __future__ import annotations

from flask import Blueprint, Response, render_template, url_for

from celeriac.web.auth import visitor
from celeriac.web.operators import Role
from celeriac.web.page_parts import go
from celeriac.web.parts import parts
from celeriac.web.problems import forbidden

__all__ = ["approvals_page", "page_approvals"]

page_approvals = Blueprint("page_approvals", __name__)


@page_approvals.get("/approvals")
def show_approvals() -> Response:
    """The inbox."""
    if visitor().role == Role.NOBODY:
        return go(url_for("page_login.show_login"))
    return approvals_page()


@page_approvals.get("/approvals/fragment")
def show_fragment() -> Response:
    """The part of the inbox that changes."""
    return Response(render_template("parts/inbox.html", **_context()))


def approvals_page(*, alert: str | None = None, status: int = 200) -> Response:
    """Show the inbox.

    Args:
        alert: What went wrong with the form that was just sent.
        status: The HTTP status that says so too.

    Returns:
        The page.
    """
    html = render_template("approvals.html", **_context(), alert=alert)
    return Response(html, status)


def _context() -> dict[str, object]:
    principal = visitor()
    if not principal.may(Role.VIEWER):
        raise forbidden("The inbox is for operators. Log in as one.", code="operator_needed")
    client = parts().client
    return {
        "approvals": client.approvals(),
        "unknown": client.unknown_outcomes(),
        "principal": principal,
    }
