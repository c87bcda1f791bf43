"""What forms on a session's page and in the inbox do. Each ends in a redirect, or in a page that says why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from flask import Blueprint, Response, request, url_for

from celeriac.sessions.built_in import parse_choices
from celeriac.sessions.calls import DecisionVerb
from celeriac.sessions.errors import InvalidRequest, NotFound, Refused
from celeriac.sessions.ids import MESSAGE_ID_PATTERN
from celeriac.web.api_calls import check_call_id
from celeriac.web.auth import Principal, acting, page_principal, require_csrf
from celeriac.web.limits import limit_messages
from celeriac.web.operators import Role
from celeriac.web.page_approvals import approvals_page
from celeriac.web.page_operations import operations_page
from celeriac.web.page_parts import done, is_enhanced, typed
from celeriac.web.page_sessions import Kept, session_page
from celeriac.web.parts import parts
from celeriac.web.problems import forbidden, problem_of
from celeriac.web.uploads import accept_images, form_images

__all__ = ["page_actions"]

page_actions = Blueprint("page_actions", __name__, url_prefix="/sessions/<sid>")


class _Page(Protocol):
    def __call__(self, *, alert: str | None, status: int) -> Response: ...


class _Source(NamedTuple):
    """A page over all sessions that a form was sent from."""

    endpoint: str
    page: _Page


_SOURCES = {
    "approvals": _Source("page_approvals.show_approvals", approvals_page),
    "operations": _Source("page_operations.show_operations", operations_page),
}


def _act(
    sid: str, principal: Principal, action: Callable[[], object], kept: Kept | None = None
) -> Response:
    """Do it, then show the page it was asked from; a refusal is shown there too."""
    source = _SOURCES.get(request.form.get("from", "")) if principal.may(Role.VIEWER) else None
    try:
        action()
    except Refused as error:
        if is_enhanced():
            raise
        status = problem_of(error).status
        if source is not None:
            return source.page(alert=str(error), status=status)
        return session_page(sid, principal, alert=str(error), status=status, kept=kept or Kept())
    if source is not None:
        return done(url_for(source.endpoint))
    return done(url_for("page_sessions.show_session", sid=sid))


def _sender(sid: str) -> Principal:
    require_csrf()
    return page_principal(sid, Role.OPERATOR)


def _checked_message_id(text: str) -> str:
    if MESSAGE_ID_PATTERN.fullmatch(text) is None:
        raise NotFound("That message is not in the queue.", code="unknown_message")
    return text


@page_actions.post("/messages")
def send(sid: str) -> Response:
    """Send a message."""
    principal = page_principal(sid, Role.OPERATOR)
    accept_images()
    require_csrf()
    text = typed("text")
    message_id = request.form.get("message_id") or None
    plan_first = bool(request.form.get("plan_mode"))
    model = request.form.get("model") or None

    def action() -> None:
        if message_id is not None and MESSAGE_ID_PATTERN.fullmatch(message_id) is None:
            raise InvalidRequest("The form is damaged; reload the page.", code="invalid_message_id")
        limit_messages(sid)
        acting(principal).send_message(
            sid,
            text,
            message_id=message_id,
            plan_mode=plan_first,
            model=model,
            images=form_images(),
        )

    return _act(sid, principal, action, Kept(message=text, plan_first=plan_first, model=model))


@page_actions.post("/queue/<message_id>/delete")
def delete_queued(sid: str, message_id: str) -> Response:
    """Take a message out of the queue."""
    principal = _sender(sid)
    return _act(
        sid,
        principal,
        lambda: acting(principal).delete_queued(sid, _checked_message_id(message_id)),
    )


@page_actions.post("/queue/<message_id>/steer")
def steer(sid: str, message_id: str) -> Response:
    """Apply a queued message at the next safe moment."""
    principal = _sender(sid)
    return _act(
        sid,
        principal,
        lambda: acting(principal).steer(
            sid, message_ids=(_checked_message_id(message_id),), by=principal.name
        ),
    )


@page_actions.post("/cancel")
def cancel(sid: str) -> Response:
    """Stop the open turn."""
    principal = _sender(sid)
    turn_id = request.form.get("turn_id") or None
    return _act(
        sid,
        principal,
        lambda: acting(principal).cancel_turn(sid, turn_id=turn_id, by=principal.name),
    )


@page_actions.post("/calls/<call_id>/decision")
def decide(sid: str, call_id: str) -> Response:
    """Approve or reject a call; the digest says what the person was shown."""
    require_csrf()
    principal = page_principal(sid, Role.APPROVER)
    check_call_id(call_id)
    decision = request.form.get("decision", "")
    note = request.form.get("note", "").strip() or None
    digest = request.form.get("digest") or None

    def action() -> None:
        if decision not in set(DecisionVerb):
            raise InvalidRequest("Choose Approve or Reject.", code="invalid_decision")
        verb = DecisionVerb(decision)
        acting(principal).decide(sid, call_id, verb, by=principal.name, note=note, digest=digest)

    return _act(sid, principal, action)


@page_actions.post("/calls/<call_id>/answer")
def answer(sid: str, call_id: str) -> Response:
    """Answer a question of the agent, with a text or with one of its choices."""
    principal = _sender(sid)
    check_call_id(call_id)
    text = typed("answer")

    def action() -> None:
        choice = request.form.get("choice")
        given = text if choice is None else _chosen(sid, call_id, choice)
        acting(principal).answer(sid, call_id, given, by=principal.name)

    return _act(sid, principal, action, Kept(answers={call_id: text}))


def _chosen(sid: str, call_id: str, number: str) -> str:
    """Return a choice by its number: what a form posts as text may differ in its line ends."""
    choices = parse_choices(parts().client.call(sid, call_id).arguments)
    for index, choice in enumerate(choices):
        if str(index) == number:
            return choice
    raise InvalidRequest("Choose one of the answers that are offered.", code="not_a_choice")


@page_actions.post("/plan/execute")
def execute_plan(sid: str) -> Response:
    """Carry out the plan at the revision that was shown."""
    principal = _sender(sid)
    text = request.form.get("revision", "")

    def action() -> None:
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise InvalidRequest("The form is damaged; reload the page.", code="invalid_revision")
        acting(principal).execute_plan(sid, revision=int(text), by=principal.name)

    return _act(sid, principal, action)


@page_actions.post("/calls/<call_id>/check")
def check(sid: str, call_id: str) -> Response:
    """Have an unknown outcome looked up at its provider."""
    principal = _operator(sid, call_id)
    return _act(
        sid, principal, lambda: acting(principal).check_call(sid, call_id, by=principal.name)
    )


def _operator(sid: str, call_id: str) -> Principal:
    require_csrf()
    principal = page_principal(sid, Role.VIEWER)
    if not principal.is_operator:
        raise forbidden("Only an operator settles an unknown outcome.", code="role_too_small")
    check_call_id(call_id)
    return principal


@page_actions.post("/calls/<call_id>/reconcile")
def reconcile(sid: str, call_id: str) -> Response:
    """Settle an unknown outcome."""
    principal = _operator(sid, call_id)
    outcome = request.form.get("outcome", "")
    note = request.form.get("note", "").strip() or None

    def action() -> None:
        if outcome not in {"succeeded", "failed"}:
            raise InvalidRequest("Say whether it happened.", code="invalid_outcome")
        acting(principal).reconcile(
            sid, call_id, succeeded=outcome == "succeeded", by=principal.name, note=note
        )

    return _act(sid, principal, action)
