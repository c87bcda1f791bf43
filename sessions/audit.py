"""The audit log: which decision or operator's act was done, by whom, on what, when and from where.

An act that changes a session is logged in the very commit that does it, so neither is there without the other.
What a session's own user does in the conversation (messages, images) is the conversation, not an act of
somebody else: of the session's user only decisions and controls are logged. No arguments, texts or tokens are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict

from celeriac.sessions.calls import DecisionVerb
from celeriac.sessions.inputs import (
    ApprovalDecided,
    CallReconciled,
    CheckRequested,
    Input,
    MessageSent,
    PlanExecuted,
    QuestionAnswered,
    QueuedMessageDeleted,
    TurnCancelled,
    TurnSteered,
)
from celeriac.sessions.state import SessionState

__all__ = ["Actor", "AuditAct", "AuditEntry", "AuditPage", "Way", "creation_entry", "entry_of"]

Way = Literal["api", "page", "cli", "python"]
"""How somebody reached us."""


class AuditAct(StrEnum):
    """What was done."""

    CREATE_SESSION = "create_session"
    SEND_MESSAGE = "send_message"
    DELETE_QUEUED = "delete_queued"
    STEER = "steer"
    CANCEL_TURN = "cancel_turn"
    EXECUTE_PLAN = "execute_plan"
    APPROVE = "approve"
    REJECT = "reject"
    ANSWER = "answer"
    RECONCILE = "reconcile"
    CHECK = "check"
    LOGIN = "login"
    LOGOUT = "logout"
    LOGIN_REFUSED = "login_refused"
    TOKEN_REFUSED = "token_refused"  # noqa: S105 - the word for it

    @property
    def refused(self) -> bool:
        """Whether somebody without a right tried, so that nothing was done."""
        return self in {AuditAct.LOGIN_REFUSED, AuditAct.TOKEN_REFUSED}


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, and from where.

    Args:
        name: Their name; None when the act itself says it, or nobody knows.
        role: Their role; ``session`` is the holder of the session's token, None an unchecked caller.
        way: How they reached us.
        address: Their network address, or the host that the command was given on.
        own: Whether the session is their own, so that its messages are no act of somebody else.
    """

    name: str | None = None
    role: str | None = None
    way: Way = "python"
    address: str | None = None
    own: bool = True


class AuditEntry(BaseModel):
    """One act."""

    model_config = ConfigDict(frozen=True)

    id: str = ""
    """Its place in the log: milliseconds, number in that millisecond, and part of the log."""
    at: int = 0
    """Unix milliseconds, by the store's clock."""
    act: AuditAct
    by: str | None = None
    role: str | None = None
    way: Way
    address: str | None = None
    session_id: str | None = None
    turn_id: str | None = None
    call_id: str | None = None
    tool: str | None = None
    digest: str | None = None
    """Of an approval: digest of what was shown."""
    detail: str | None = None
    """A short fact: the outcome, the plan's revision, the message's id, why a token was refused."""


class AuditPage(BaseModel):
    """One page of the audit log, newest first."""

    model_config = ConfigDict(frozen=True)

    entries: tuple[AuditEntry, ...]
    cursor: str | None
    """Give it back to get the next page; None at the end."""


def creation_entry(state: SessionState, actor: Actor) -> AuditEntry | None:
    """Return the entry for a new session; None when nobody in particular starts one.

    Args:
        state: The new session.
        actor: Who starts it.
    """
    if actor.name is None:
        return None
    return _entry(AuditAct.CREATE_SESSION, actor, state, detail=state.agent)


def entry_of(event: Input, before: SessionState, actor: Actor) -> AuditEntry | None:
    """Return the entry for something that somebody does to a session.

    Args:
        event: What happens.
        before: The session before it.
        actor: Who does it.

    Returns:
        The entry; None for what is not logged.
    """
    match event:
        case ApprovalDecided():
            act = AuditAct.APPROVE if event.verb is DecisionVerb.APPROVE else AuditAct.REJECT
            entry = _call_entry(act, actor, before, event.call_id, event.by)
            return entry.model_copy(update={"digest": event.digest})
        case QuestionAnswered() | CheckRequested():
            act = AuditAct.ANSWER if isinstance(event, QuestionAnswered) else AuditAct.CHECK
            return _call_entry(act, actor, before, event.call_id, event.by)
        case CallReconciled():
            entry = _call_entry(AuditAct.RECONCILE, actor, before, event.call_id, event.by)
            outcome = "succeeded" if event.succeeded else "failed"
            return entry.model_copy(update={"detail": outcome})
        case TurnCancelled():
            return _entry(AuditAct.CANCEL_TURN, actor, before, by=event.by)
        case TurnSteered():
            detail = ", ".join(event.message_ids)
            return _entry(AuditAct.STEER, actor, before, by=event.by, detail=detail)
        case PlanExecuted():
            detail = f"revision {event.revision}"
            return _entry(AuditAct.EXECUTE_PLAN, actor, before, by=event.by, detail=detail)
        case MessageSent() | QueuedMessageDeleted() if not actor.own:
            sent = isinstance(event, MessageSent)
            act = AuditAct.SEND_MESSAGE if sent else AuditAct.DELETE_QUEUED
            return _entry(act, actor, before, detail=event.message_id)
        case _:
            return None


def _call_entry(
    act: AuditAct, actor: Actor, state: SessionState, call_id: str, by: str
) -> AuditEntry:
    known = state.call(call_id) or state.unknown_call(call_id)
    entry = _entry(act, actor, state, by=by)
    return entry.model_copy(update={"call_id": call_id, "tool": known.tool if known else None})


def _entry(
    act: AuditAct,
    actor: Actor,
    state: SessionState,
    *,
    by: str | None = None,
    detail: str | None = None,
) -> AuditEntry:
    return AuditEntry(
        act=act,
        by=by or actor.name,
        role=actor.role,
        way=actor.way,
        address=actor.address,
        session_id=state.session_id,
        turn_id=state.turn.id if state.turn else None,
        detail=detail,
    )
