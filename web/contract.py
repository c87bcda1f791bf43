"""The HTTP contract: what each route of the API takes, answers and asks for. Docs and tests are made of it.

A route that is not here is refused by a test, so none can be forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import BaseModel, JsonValue

from celeriac.sessions.audit import AuditPage
from celeriac.sessions.calls import CallRecord
from celeriac.sessions.operations import Operations
from celeriac.sessions.snapshot import MessagePage, SentMessage, SessionPage, Snapshot
from celeriac.sessions.state import SessionStatus
from celeriac.web import answers
from celeriac.web.api_chat import ChatRequest
from celeriac.web.operators import Role
from celeriac.web.schemas import (
    Answer,
    CancelTurn,
    CreateSession,
    Decide,
    ExecutePlan,
    Reconcile,
    SendMessage,
    Steer,
)

__all__ = ["CONTRACT", "EVENT_STREAM", "Access", "Query", "Route"]

EVENT_STREAM = "text/event-stream"


class Access(StrEnum):
    """Who may use a route."""

    OPEN = "open"
    """Everybody."""
    CREATOR = "creator"
    """Bearers of role ``client`` and more; anybody on this machine while no operators are configured."""
    SESSION = "session"
    """The holder of the session's token, and operators of the route's role."""
    OPERATOR = "operator"
    """Operators of the route's role."""


@dataclass(frozen=True, slots=True)
class Query:
    """An argument of the query string."""

    name: str
    schema: Mapping[str, JsonValue]
    about: str


@dataclass(frozen=True, slots=True)
class Route:
    """One route.

    Args:
        about: What it does, in a line.
        access: Who may use it.
        role: The role that an operator needs.
        body: The JSON body; None takes none.
        body_optional: Whether no body at all is taken for an empty object.
        answer: The JSON answer; None is none, and a text is the media type of another one.
        status: Status when all is well.
        may_be_empty: Whether it may also answer 204 and nothing.
        errors: Statuses of its own errors, with the codes that come with them.
        query: Arguments of the query string.
        example: An example of the body.
    """

    about: str
    access: Access
    role: Role = Role.NOBODY
    body: type[BaseModel] | None = None
    body_optional: bool = False
    answer: type[BaseModel] | str | None = None
    status: int = 200
    may_be_empty: bool = False
    errors: Mapping[int, str] = field(default_factory=dict)
    query: tuple[Query, ...] = ()
    example: JsonValue = None


def _whole(lowest: int, highest: int) -> Mapping[str, JsonValue]:
    return {"type": "integer", "minimum": lowest, "maximum": highest}


_LIMIT = Query("limit", _whole(1, 500), "Most entries to return.")
_MESSAGE = "Read my order 1001 and cancel it if it has not been shipped."

CONTRACT: Mapping[str, Route] = {
    "api_sessions.create_session": Route(
        "Start a session; the server picks its id.",
        Access.CREATOR,
        Role.CLIENT,
        body=CreateSession,
        body_optional=True,
        answer=answers.SessionStarted,
        status=201,
        errors={
            400: "unknown_agent, unknown_model, blank_message, invalid_message_id, plan_mode_unavailable, "
            "not_an_image, too_many_images",
            413: "message_too_large, image_too_large",
            429: "too_many_requests",
            503: "no_agents",
        },
        example={"message": _MESSAGE},
    ),
    "api_sessions.list_sessions": Route(
        "List sessions, newest first.",
        Access.OPERATOR,
        Role.VIEWER,
        answer=SessionPage,
        errors={400: "invalid_argument, invalid_cursor"},
        query=(
            Query("state", {"type": "string", "enum": list(SessionStatus)}, "Only these."),
            Query("agent", {"type": "string"}, "Only sessions of this agent."),
            Query("cursor", {"type": "string"}, "The `cursor` of the page before."),
            Query("limit", _whole(1, 200), "Most entries to return."),
        ),
    ),
    "api_sessions.get_snapshot": Route(
        "Read a session in one consistent moment.",
        Access.SESSION,
        Role.VIEWER,
        answer=Snapshot,
    ),
    "api_sessions.get_messages": Route(
        "Read older messages.",
        Access.SESSION,
        Role.VIEWER,
        answer=MessagePage,
        errors={400: "invalid_argument"},
        query=(
            Query("before", _whole(0, 10**12), "Only messages with a lower `seq`."),
            Query("limit", _whole(1, 200), "Most messages to return."),
        ),
    ),
    "api_sessions.send_message": Route(
        "Send a message; it starts a turn or waits in the queue. The same `message_id` again changes nothing.",
        Access.SESSION,
        Role.OPERATOR,
        body=SendMessage,
        answer=SentMessage,
        status=202,
        errors={
            400: "blank_message, invalid_message_id, plan_mode_unavailable, unknown_model, not_an_image, too_many_images",
            409: "queue_full",
            413: "message_too_large, image_too_large",
            429: "too_many_requests",
        },
        example={"text": _MESSAGE, "message_id": "order-1001-1"},
    ),
    "api_images.get_image": Route(
        "Read an image of a message.",
        Access.SESSION,
        Role.VIEWER,
        answer="image/*",
        errors={404: "unknown_image"},
    ),
    "api_sessions.delete_queued": Route(
        "Take a message out of the queue.",
        Access.SESSION,
        Role.OPERATOR,
        status=204,
        errors={404: "unknown_message"},
    ),
    "api_sessions.steer": Route(
        "Apply queued messages, or a new one, at the next safe step boundary.",
        Access.SESSION,
        Role.OPERATOR,
        body=Steer,
        body_optional=True,
        answer=answers.Accepted,
        status=202,
        errors={
            404: "unknown_message",
            409: "nothing_to_steer",
            413: "message_too_large",
            429: "too_many_requests",
        },
        example={"text": "Use the blue one instead."},
    ),
    "api_sessions.cancel": Route(
        "Stop the open turn.",
        Access.SESSION,
        Role.OPERATOR,
        body=CancelTurn,
        body_optional=True,
        answer=answers.Accepted,
        status=202,
        errors={409: "no_open_turn, turn_ended"},
        example={"turn_id": "t3"},
    ),
    "api_sessions.execute_plan": Route(
        "Carry out the plan, as it was reviewed.",
        Access.SESSION,
        Role.OPERATOR,
        body=ExecutePlan,
        answer=answers.Accepted,
        status=202,
        errors={409: "stale_plan, no_plan, plan_completed, turn_running"},
        example={"revision": 2},
    ),
    "api_sessions.get_steps": Route(
        "Read the step history.", Access.SESSION, Role.VIEWER, answer=answers.Steps
    ),
    "api_events.events": Route(
        "Stream live events, from a position or from now on.",
        Access.SESSION,
        Role.VIEWER,
        answer=EVENT_STREAM,
        errors={400: "invalid_resume_token", 503: "streams_full"},
        query=(Query("resume_token", {"type": "string"}, "Where to start; `Last-Event-ID` wins."),),
    ),
    "api_calls.decide": Route(
        "Approve or reject a call that waits for it.",
        Access.SESSION,
        Role.APPROVER,
        body=Decide,
        answer=CallRecord,
        errors={
            404: "unknown_call",
            409: "already_decided, changed, not_awaiting_approval",
        },
        example={"decision": "approve", "note": "Within the limit.", "digest": "68f57856"},
    ),
    "api_calls.answer": Route(
        "Answer a question of the agent.",
        Access.SESSION,
        Role.OPERATOR,
        body=Answer,
        answer=CallRecord,
        errors={
            400: "no_answer, not_a_choice",
            404: "unknown_call",
            409: "already_answered, not_awaiting_answer",
            413: "answer_too_large",
        },
        example={"answer": "blue"},
    ),
    "api_calls.check": Route(
        "Have an unknown outcome looked up at its provider now.",
        Access.OPERATOR,
        Role.OPERATOR,
        answer=CallRecord,
        status=202,
        errors={404: "unknown_session, unknown_call", 409: "not_unknown, not_checkable"},
    ),
    "api_calls.reconcile": Route(
        "Settle an unknown outcome: it happened, or it did not.",
        Access.OPERATOR,
        Role.OPERATOR,
        body=Reconcile,
        answer=CallRecord,
        errors={404: "unknown_session, unknown_call", 409: "not_unknown"},
        example={"outcome": "succeeded", "note": "Seen at the provider."},
    ),
    "api_inbox.get_settings": Route(
        "Read what a new session can choose from.",
        Access.CREATOR,
        Role.CLIENT,
        answer=answers.SettingsView,
    ),
    "api_inbox.get_approvals": Route(
        "List calls that wait for a decision, oldest first.",
        Access.OPERATOR,
        Role.VIEWER,
        answer=answers.Approvals,
        errors={400: "invalid_argument"},
        query=(_LIMIT,),
    ),
    "api_inbox.get_unknown": Route(
        "List calls whose outcome nobody knows.",
        Access.OPERATOR,
        Role.VIEWER,
        answer=answers.UnknownOutcomes,
        errors={400: "invalid_argument"},
        query=(_LIMIT,),
    ),
    "api_audit.get_audit": Route(
        "Read the audit log: decisions, operators' acts, logins and refusals, newest first.",
        Access.OPERATOR,
        Role.OPERATOR,
        answer=AuditPage,
        errors={400: "invalid_argument, invalid_cursor"},
        query=(
            Query("session_id", {"type": "string"}, "Only entries about this session."),
            Query("cursor", {"type": "string"}, "The `cursor` of the page before."),
            _LIMIT,
        ),
    ),
    "api_chat.post_chat": Route(
        "AI SDK: send the last message, or the decisions and answers in it, and stream the turn.",
        Access.SESSION,
        Role.OPERATOR,
        body=ChatRequest,
        answer=EVENT_STREAM,
        errors={
            400: "no_regenerate, not_an_image, too_many_images, blank_message",
            409: "unknown_call, queue_full",
            413: "message_too_large",
            429: "too_many_requests",
            503: "streams_full",
        },
        example={
            "id": "ses_000000000000000000000000",
            "messages": [
                {"id": "m1", "role": "user", "parts": [{"type": "text", "text": _MESSAGE}]}
            ],
        },
    ),
    "api_chat.resume_chat": Route(
        "AI SDK: stream the open turn from its beginning; 204 when nothing runs.",
        Access.SESSION,
        Role.VIEWER,
        answer=EVENT_STREAM,
        may_be_empty=True,
        errors={503: "streams_full"},
    ),
    "api_chat.get_chat": Route(
        "AI SDK: the latest messages as UI messages.",
        Access.SESSION,
        Role.VIEWER,
        answer=answers.ChatConversation,
    ),
    "api_operations.get_operations": Route(
        "Read what goes on: workers, queues, counts, and sessions at work that have not moved for long.",
        Access.OPERATOR,
        Role.VIEWER,
        answer=Operations,
    ),
    "api_operations.get_reasons": Route(
        "Read why a session is where it is.",
        Access.OPERATOR,
        Role.VIEWER,
        answer=answers.SessionReasons,
        errors={404: "unknown_session"},
    ),
    "api_operations.get_metrics": Route(
        "Metrics in Prometheus' text format.",
        Access.OPERATOR,
        Role.VIEWER,
        answer="text/plain",
    ),
    "api_inbox.healthz": Route("The process is up.", Access.OPEN, answer=answers.Health),
    "api_inbox.readyz": Route(
        "The store answers, and a worker takes work.",
        Access.OPEN,
        answer=answers.Readiness,
    ),
    "api_openapi.get_openapi": Route("This document.", Access.OPEN, answer="application/json"),
}
