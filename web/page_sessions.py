"""Pages: the list of sessions, and one session as a chat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from flask import Blueprint, Response, render_template, request, url_for

from celeriac.sessions.errors import InvalidRequest, Refused
from celeriac.sessions.ids import new_message_id
from celeriac.sessions.snapshot import AgentInfo, SessionPage, Snapshot
from celeriac.sessions.state import SessionStatus
from celeriac.web import words
from celeriac.web.auth import (
    Principal,
    acting,
    may_create_openly,
    own_sessions,
    page_principal,
    remember_session,
    require_csrf,
    visitor,
)
from celeriac.web.limits import limit_sessions
from celeriac.web.operators import Role
from celeriac.web.page_parts import go, typed
from celeriac.web.parts import parts
from celeriac.web.problems import problem_of
from celeriac.web.schemas import integer_argument
from celeriac.web.transcript import entries, needs_person
from celeriac.web.uploads import accept_images, form_images

__all__ = ["Kept", "page_sessions", "session_page"]

page_sessions = Blueprint("page_sessions", __name__)

_DEMO_MODEL = "demo"


@dataclass(frozen=True, slots=True)
class Kept:
    """What was typed into a form that was refused, so that nothing is lost."""

    message: str = ""
    plan_first: bool = False
    model: str | None = None
    answers: Mapping[str, str] = field(default_factory=dict)
    """By the call that asked."""


_NOTHING_KEPT = Kept()


@page_sessions.get("/")
def home() -> Response:
    """Where people begin."""
    return go(url_for("page_sessions.show_sessions"))


@page_sessions.get("/sessions")
def show_sessions() -> Response:
    """The list, with the form that starts a session."""
    principal = visitor()
    if not principal.may(Role.CLIENT) and not may_create_openly() and not own_sessions():
        return go(url_for("page_login.show_login"))
    return _list_page(principal)


def _list_page(
    principal: Principal, *, alert: str | None = None, status: int = 200, draft: str = ""
) -> Response:
    client = parts().client
    found = _found() if principal.may(Role.VIEWER) else None
    may_create = principal.may(Role.CLIENT) or may_create_openly()
    html = render_template(
        "sessions.html",
        found=found,
        own=own_sessions(),
        state=request.args.get("state") or None,
        agent=request.args.get("agent") or None,
        states=[(status, words.session_chip(status).words) for status in SessionStatus],
        may_create=may_create,
        agents=client.agents() if may_create else (),
        workers=len(client.workers()),
        default_agent=parts().settings.default_agent,
        chosen=request.form,
        alert=alert,
        draft=draft,
    )
    return Response(html, status)


def _found() -> SessionPage:
    text = request.args.get("state") or None
    if text is not None and text not in set(SessionStatus):
        raise InvalidRequest("There is no such filter.", code="invalid_argument")
    return parts().client.list_sessions(
        status=SessionStatus(text) if text else None,
        agent=request.args.get("agent") or None,
        cursor=request.args.get("cursor") or None,
        limit=50,
    )


@page_sessions.post("/sessions")
def start_session() -> Response:
    """Start a session and open its page."""
    principal = visitor()
    if not principal.may(Role.CLIENT) and not may_create_openly():
        require_csrf()
        return go(url_for("page_login.show_login"))
    accept_images()
    require_csrf()
    text = typed("message")
    try:
        limit_sessions(principal)
        created = acting(principal).create_session(
            agent=request.form.get("agent") or None,
            model=request.form.get("model") or None,
            message=text if text.strip() else None,
            plan_mode=bool(request.form.get("plan_mode")),
            images=form_images(),
        )
    except Refused as error:
        status = problem_of(error).status
        return _list_page(principal, alert=str(error), status=status, draft=text)
    if not principal.is_operator:
        title = " ".join(text.split()) or created.agent
        remember_session(created.session_id, title)
    return go(url_for("page_sessions.show_session", sid=created.session_id))


@page_sessions.get("/sessions/<sid>")
def show_session(sid: str) -> Response:
    """One session."""
    return session_page(sid, page_principal(sid, Role.VIEWER))


def session_page(
    sid: str,
    principal: Principal,
    *,
    alert: str | None = None,
    status: int = HTTPStatus.OK,
    kept: Kept = _NOTHING_KEPT,
) -> Response:
    """Show one session.

    Args:
        sid: The session.
        principal: Who looks at it.
        alert: What went wrong with the form that was just sent.
        status: The HTTP status that says so too.
        kept: What was typed into that form.

    Returns:
        The page.
    """
    before = integer_argument("before", lowest=0, highest=10**12)
    context = _session_context(sid, principal, kept)
    if before is not None:
        older = parts().client.messages(sid, before=before)
        context.update(entries=entries(older.messages, older.calls), has_older=older.has_older)
    html = render_template(
        "session.html",
        **context,
        older=before is not None,
        alert=alert,
        message_id=new_message_id(),
    )
    return Response(html, status)


@page_sessions.get("/sessions/<sid>/fragment")
def show_fragment(sid: str) -> Response:
    """The parts of a session's page that change, for the script that keeps it up to date."""
    principal = page_principal(sid, Role.VIEWER)
    return Response(render_template("session_fragment.html", **_session_context(sid, principal)))


def _session_context(
    sid: str, principal: Principal, kept: Kept = _NOTHING_KEPT
) -> dict[str, object]:
    here = parts()
    snapshot = here.client.snapshot(sid)
    workers = len(here.client.workers())
    agent = next((one for one in here.client.agents() if one.name == snapshot.agent), None)
    attention = needs_person(snapshot)
    return {
        "session": snapshot,
        "principal": principal,
        "entries": entries(snapshot.messages, snapshot.calls),
        "has_older": snapshot.has_older,
        "oldest_seq": snapshot.oldest_seq,
        "sentence": words.state_sentence(snapshot, workers=workers),
        "chip": words.session_chip(snapshot.status, asks=attention),
        "attention": attention,
        "kept": kept,
        "plan_mode": agent is not None and agent.plan_mode_enabled,
        "models": agent.models if agent is not None else (),
        "suggestions": _suggestions(snapshot, agent),
        "resume_token": here.key.resume_token(sid, snapshot.resume_token),
        "missing_tools": () if agent is None else agent.missing_tools,
        "no_worker": words.NO_WORKER if snapshot.turn is not None and not workers else None,
    }


def _suggestions(snapshot: Snapshot, agent: AgentInfo | None) -> list[words.Suggestion]:
    if agent is None or snapshot.messages or snapshot.model != _DEMO_MODEL:
        return []
    names = {tool.name for tool in agent.tools}
    return words.demo_suggestions(names, plan_mode=agent.plan_mode_enabled)
