"""Who is limited in what: sessions by who starts them, messages by their session, logins by address."""

from __future__ import annotations

from celeriac.sessions.store.limits import Limited
from celeriac.web.audit import client_address
from celeriac.web.auth import Principal
from celeriac.web.operators import Role
from celeriac.web.parts import parts

__all__ = ["limit_logins", "limit_messages", "limit_sessions"]


def limit_sessions(principal: Principal) -> None:
    """Count a session that somebody starts.

    Args:
        principal: Who; somebody without a name is counted by address.

    Raises:
        RateLimited: They started too many.
    """
    named = principal.role != Role.NOBODY
    who = f"name {principal.name}" if named else f"address {client_address()}"
    parts().client.check_rate(Limited.SESSIONS, who)


def limit_messages(session_id: str) -> None:
    """Count a message to a session.

    Raises:
        RateLimited: It got too many.
    """
    parts().client.check_rate(Limited.MESSAGES, session_id)


def limit_logins() -> None:
    """Count an attempt to log in.

    Raises:
        RateLimited: There were too many from this address.
    """
    parts().client.check_rate(Limited.LOGINS, client_address())
