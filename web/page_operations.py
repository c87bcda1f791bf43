"""The page of operations: is it working, and why is this one not moving."""

from __future__ import annotations

from flask import Blueprint, Response, render_template, url_for

from celeriac.tasks.operation_words import problems
from celeriac.tasks.queues import CeleryQueues
from celeriac.web.auth import visitor
from celeriac.web.charts import charts_of
from celeriac.web.operators import Role
from celeriac.web.page_parts import go
from celeriac.web.parts import parts
from celeriac.web.problems import forbidden

__all__ = ["operations_page", "page_operations"]

page_operations = Blueprint("page_operations", __name__)


@page_operations.get("/operations")
def show_operations() -> Response:
    """The page."""
    if visitor().role == Role.NOBODY:
        return go(url_for("page_login.show_login"))
    return operations_page()


@page_operations.get("/operations/fragment")
def show_fragment() -> Response:
    """The part of the page that changes."""
    return Response(render_template("parts/operations.html", **_context()))


def operations_page(*, alert: str | None = None, status: int = 200) -> Response:
    """Show what goes on.

    Args:
        alert: What went wrong with the form that was just sent.
        status: The HTTP status that says so too.

    Returns:
        The page.
    """
    return Response(render_template("operations.html", **_context(), alert=alert), status)


def _context() -> dict[str, object]:
    principal = visitor()
    if not principal.may(Role.VIEWER):
        raise forbidden("Operations are for operators. Log in as one.", code="operator_needed")
    here = parts()
    operations = here.client.operations.read(CeleryQueues(here.settings))
    return {
        "operations": operations,
        "problems": list(problems(operations)),
        "charts": list(charts_of(operations.rates)),
        "principal": principal,
    }
