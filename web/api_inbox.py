"""The JSON API around sessions: settings, approvals, unknown outcomes, health."""

from __future__ import annotations

from flask import Blueprint, Response
from pydantic import JsonValue

from celeriac.sessions.errors import StoreUnavailable
from celeriac.sessions.snapshot import ApprovalItem
from celeriac.web.auth import creator, require_operator
from celeriac.web.operators import Role
from celeriac.web.parts import parts
from celeriac.web.responses import json_response
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
    return json_response(
        {
            "agents": [agent.model_dump(mode="json") for agent in agents],
            "models": list(models),
            "default": {
                "agent": default,
                "model": next((a.default_model for a in agents if a.name == default), None),
            },
            "tools": {agent.name: [tool.name for tool in agent.tools] for agent in agents},
            "limits": {
                "message_max_bytes": here.settings.message_max_bytes,
                "queue_max_messages": here.settings.queue_max_messages,
                "request_max_bytes": REQUEST_MAX_BYTES,
                "session_max_bytes": here.settings.session_max_bytes,
                "result_shown_bytes": here.settings.result_shown_bytes,
                "result_kept_bytes": here.settings.result_kept_bytes,
            },
        }
    )


@api_inbox.get("/api/approvals")
def get_approvals() -> Response:
    """Calls that wait for a decision, oldest first."""
    require_operator(Role.VIEWER)
    limit = integer_argument("limit", lowest=1, highest=500) or 100
    return _items("approvals", parts().client.approvals(limit=limit))


@api_inbox.get("/api/unknown")
def get_unknown() -> Response:
    """Calls whose outcome nobody knows."""
    require_operator(Role.VIEWER)
    limit = integer_argument("limit", lowest=1, highest=500) or 100
    return _items("unknown", parts().client.unknown_outcomes(limit=limit))


def _items(name: str, items: tuple[ApprovalItem, ...]) -> Response:
    return json_response({name: [item.model_dump(mode="json") for item in items]})


@api_inbox.get("/healthz")
def healthz() -> Response:
    """The process is up."""
    return json_response({"status": "up"})


@api_inbox.get("/readyz")
def readyz() -> Response:
    """The store answers, and a worker was seen lately that takes work."""
    try:
        parts().client.ping()
        seen = parts().client.workers()
    except StoreUnavailable as error:
        return _ready(
            reason="the session store does not answer",
            store="unreachable",
            workers=None,
            wait=error.retry_after_seconds,
        )
    workers = sum(not worker.stuck for worker in seen)
    if not workers:
        reason = "no worker was seen in the last 15 seconds; sessions are kept and wait for one"
        if seen:
            reason = "no worker takes the work that is queued; see their logs"
        return _ready(reason=reason, store="ok", workers=0)
    return _ready(reason=None, store="ok", workers=workers)


def _ready(*, reason: str | None, store: str, workers: int | None, wait: int = 5) -> Response:
    body: dict[str, JsonValue] = {
        "status": "ready" if reason is None else "not ready",
        "store": store,
        "workers": workers,
    }
    if reason is None:
        return json_response(body)
    response = json_response({**body, "reason": reason}, 503)
    response.headers["Retry-After"] = str(wait)
    return response
