"""The JSON API around sessions: settings, approvals, unknown outcomes, health."""

from __future__ import annotations

from typing import Literal

from flask import Blueprint, Response

from celeriac.sessions.errors import StoreUnavailable
from celeriac.sessions.settings import Settings
from celeriac.web.answers import (
    Approvals,
    ChoicesDefault,
    Health,
    Limits,
    Readiness,
    SettingsView,
    UnknownOutcomes,
)
from celeriac.web.auth import creator, require_operator
from celeriac.web.operators import Role
from celeriac.web.parts import parts
from celeriac.web.responses import model_response
from celeriac.web.schemas import integer_argument
from celeriac.web.security import REQUEST_MAX_BYTES

__all__ = ["api_inbox"]

api_inbox = Blueprint("api_inbox", __name__)


@api_inbox.get("/api/settings")
def get_settings() -> Response:
    """What a new session can choose from; open to whoever may start one."""
    creator()
    here = parts()
    agents = here.client.agents()
    names = [agent.name for agent in agents]
    chosen = here.settings.default_agent
    default = chosen if chosen in names else next(iter(names), None)
    models = dict.fromkeys(model for agent in agents for model in agent.models)
    model = next((a.default_model for a in agents if a.name == default), None)
    return model_response(
        SettingsView(
            agents=agents,
            models=tuple(models),
            default=ChoicesDefault(agent=default, model=model),
            tools={agent.name: tuple(tool.name for tool in agent.tools) for agent in agents},
            limits=_limits(here.settings),
        )
    )


def _limits(settings: Settings) -> Limits:
    return Limits(
        message_max_bytes=settings.message_max_bytes,
        queue_max_messages=settings.queue_max_messages,
        request_max_bytes=REQUEST_MAX_BYTES,
        session_max_bytes=settings.session_max_bytes,
        result_shown_bytes=settings.result_shown_bytes,
        result_kept_bytes=settings.result_kept_bytes,
    )


@api_inbox.get("/api/approvals")
def get_approvals() -> Response:
    """Calls that wait for a decision, oldest first."""
    require_operator(Role.VIEWER)
    limit = integer_argument("limit", lowest=1, highest=500) or 100
    return model_response(Approvals(approvals=parts().client.approvals(limit=limit)))


@api_inbox.get("/api/unknown")
def get_unknown() -> Response:
    """Calls whose outcome nobody knows."""
    require_operator(Role.VIEWER)
    limit = integer_argument("limit", lowest=1, highest=500) or 100
    return model_response(UnknownOutcomes(unknown=parts().client.unknown_outcomes(limit=limit)))


@api_inbox.get("/healthz")
def healthz() -> Response:
    """The process is up."""
    return model_response(Health())


@api_inbox.get("/readyz")
def readyz() -> Response:
    """The store answers, and a worker was seen lately that takes work."""
    try:
        parts().client.ping()
        seen = parts().client.workers()
    except StoreUnavailable as error:
        reason = "the session store does not answer"
        return _not_ready(reason, "unreachable", None, wait=error.retry_after_seconds)
    workers = sum(not worker.stuck for worker in seen)
    if not workers:
        reason = "no worker was seen in the last 15 seconds; sessions are kept and wait for one"
        if seen:
            reason = "no worker takes the work that is queued; see their logs"
        return _not_ready(reason, "ok", 0)
    return model_response(Readiness(status="ready", store="ok", workers=workers))


def _not_ready(
    reason: str, store: Literal["ok", "unreachable"], workers: int | None, *, wait: int = 5
) -> Response:
    answer = Readiness(status="not ready", store=store, workers=workers, reason=reason)
    response = model_response(answer, 503)
    response.headers["Retry-After"] = str(wait)
    return response
