"""The words for people about entries of the audit log."""

from __future__ import annotations

from celeriac.sessions.audit import AuditAct, AuditEntry

__all__ = ["act_words", "way_words"]

_ACTS = {
    AuditAct.CREATE_SESSION: "started a session",
    AuditAct.SEND_MESSAGE: "sent a message",
    AuditAct.DELETE_QUEUED: "deleted a waiting message",
    AuditAct.STEER: "steered the turn",
    AuditAct.CANCEL_TURN: "stopped the turn",
    AuditAct.EXECUTE_PLAN: "had the plan carried out",
    AuditAct.APPROVE: "approved",
    AuditAct.REJECT: "rejected",
    AuditAct.ANSWER: "answered a question",
    AuditAct.CHECK: "had an outcome looked up",
    AuditAct.LOGIN: "logged in",
    AuditAct.LOGOUT: "logged out",
    AuditAct.LOGIN_REFUSED: "was refused a login",
    AuditAct.TOKEN_REFUSED: "was refused access",
}
_WAYS = {
    "api": "over the API",
    "page": "on a page",
    "cli": "on a command line",
    "python": "in code",
}


def act_words(entry: AuditEntry) -> str:
    """Say what somebody did; the name comes before it."""
    if entry.act is AuditAct.RECONCILE:
        happened = "did happen" if entry.detail == "succeeded" else "did not happen"
        return f"said that {entry.tool or 'a call'} {happened}"
    words = _ACTS[entry.act]
    decided = entry.act in {AuditAct.APPROVE, AuditAct.REJECT}
    return f"{words} {entry.tool or 'a call'}" if decided else words


def way_words(entry: AuditEntry) -> str:
    """Say from where somebody acted."""
    words = _WAYS[entry.way]
    return f"{words}, from {entry.address}" if entry.address else words
