"""What the web part writes in the audit log itself: logins, logouts, and whoever was turned away."""

from __future__ import annotations

import logging

from flask import request

from celeriac.sessions.audit import Actor, AuditAct, AuditEntry, Way
from celeriac.sessions.errors import CeleriacError, RateLimited
from celeriac.sessions.ids import is_session_id
from celeriac.sessions.store.limits import Limited
from celeriac.web.parts import parts

__all__ = ["actor", "client_address", "log_access", "log_refusal"]

_log = logging.getLogger(__name__)


def client_address() -> str:
    """Return the address that this request comes from, as far as it can be trusted."""
    return parts().proxies.address_of(request)


def actor(name: str | None, role: str | None, *, own: bool) -> Actor:
    """Return who sends this request, for the audit log.

    Args:
        name: Their name; None when nobody knows.
        role: Their role.
        own: Whether they act in a session of their own.
    """
    return Actor(name=name, role=role, way=_way(), address=client_address(), own=own)


def _way() -> Way:
    return "api" if request.path.startswith("/api/") else "page"


def log_access(act: AuditAct, name: str, role: str) -> None:
    """Log that somebody logged in or out.

    Args:
        act: Which of both.
        name: Who.
        role: Their role.

    Raises:
        StoreUnavailable: It may not have been logged.
    """
    entry = AuditEntry(act=act, by=name, role=role, way=_way(), address=client_address())
    parts().client.record(entry)


def log_refusal(act: AuditAct, detail: str, session_id: str | None = None) -> None:
    """Log that somebody was turned away; never fails, for they are turned away in any case.

    Args:
        act: What was refused.
        detail: Why; nothing of the token itself.
        session_id: The session that they named, as they wrote it.
    """
    named = session_id if session_id is not None and is_session_id(session_id) else None
    address = client_address()
    try:
        parts().client.check_rate(Limited.REFUSALS, address)
        entry = AuditEntry(act=act, way=_way(), address=address, session_id=named, detail=detail)
        parts().client.record(entry)
    except RateLimited:
        return  # the log has enough of this address
    except CeleriacError as error:
        _log.warning("Not in the audit log: %s from %s (%s): %s", act.value, address, detail, error)
