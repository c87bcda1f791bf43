"""Who is asking, and whether they may.

Ways in: the session's own token (header), an operator's bearer token (header), a browser's signed cookie, which
holds an operator's login and the sessions that this browser started itself, or a trusted proxy that names who is
logged in. Everything here
is decided before any session data is read, and refused alike whether a session exists or not.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from dataclasses import dataclass, replace
from http import HTTPStatus

import werkzeug.exceptions
from flask import request, session

from celeriac.sessions.audit import AuditAct
from celeriac.sessions.client import SessionClient
from celeriac.sessions.errors import NotFound
from celeriac.sessions.ids import is_session_id
from celeriac.web.audit import actor, log_refusal
from celeriac.web.logins import consume_login_code, issue_login_code
from celeriac.web.operators import Operator, Role
from celeriac.web.parts import parts
from celeriac.web.problems import Refusal

__all__ = [
    "HOLDER_NAME",
    "LOCAL_OPERATOR",
    "Principal",
    "acting",
    "consume_login_code",
    "creator",
    "csrf_token",
    "hide_malformed_sessions",
    "issue_login_code",
    "listens_on_loopback",
    "log_in",
    "log_out",
    "may_create_openly",
    "own_sessions",
    "page_principal",
    "remember_session",
    "require_csrf",
    "require_operator",
    "require_session",
    "visitor",
]

SESSION_HEADER = "X-Agent-Session-Token"
CSRF_HEADER = "X-CSRF-Token"
HOLDER_NAME = "session user"
LOCAL_OPERATOR = "local"
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_MAX = 20
_FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking. `holds` names the session that its token or cookie opens."""

    name: str
    role: Role = Role.NOBODY
    holds: str | None = None

    def may(self, role: Role) -> bool:
        """Say whether the principal has this role; for its own session a holder counts as approver and sender."""
        return self.role >= role

    @property
    def is_operator(self) -> bool:
        """Whether every operator's action is open."""
        return self.role >= Role.OPERATOR

    @property
    def may_decide(self) -> bool:
        """Whether approvals may be decided."""
        return self.holds is not None or self.role >= Role.APPROVER

    @property
    def may_send(self) -> bool:
        """Whether messages may be sent and turns stopped."""
        return self.holds is not None or self.role >= Role.OPERATOR


_ANONYMOUS = Principal("visitor")


def acting(principal: Principal) -> SessionClient:
    """Return the client whose acts are this principal's, as the audit log says."""
    role = None if principal.role == Role.NOBODY else principal.role.name.lower()
    own = principal.holds is not None
    if role is None:
        return parts().client.acting_as(actor(None, "session" if own else None, own=True))
    return parts().client.acting_as(actor(principal.name, role, own=own))


def require_session(session_id: str, need: Role) -> Principal:
    """Check access to one session over the API.

    Args:
        session_id: The id in the path, not yet trusted to look like one.
        need: The role an operator needs; the holder of the session needs none.

    Returns:
        Who is asking.

    Raises:
        Refusal: 403, the same for a session that exists and one that does not.
        NotFound: An operator named something that can be no session id.
    """
    principal = _session_principal(session_id)
    if principal.holds is None and not principal.may(need):
        raise _no_access()
    if not is_session_id(session_id):
        raise NotFound(f"There is no session {session_id[:64]!r}.", code="unknown_session")
    return principal


def hide_malformed_sessions() -> None:
    """Refuse addresses below a session that no route knows like those of a session without access.

    Else an id with a slash in it would be answered in another way than an id that does not exist.

    Raises:
        Refusal: 403, unless somebody asks who may read every session.
    """
    if not request.path.startswith("/api/sessions/"):
        return
    unknown = isinstance(request.routing_exception, werkzeug.exceptions.NotFound)
    if unknown and not _session_principal("").may(Role.VIEWER):
        raise _no_access()


def _session_principal(session_id: str) -> Principal:
    bearer = _bearer_token()
    token = request.headers.get(SESSION_HEADER)
    if bearer is not None:
        known = _bearer_principal(bearer, session_id)
        # Both: who started a session as a `client` holds it, and acts under that name.
        if known.role > Role.NOBODY and token is not None and parts().key.opens(session_id, token):
            return replace(known, holds=session_id)
        return known
    if token is not None:
        if parts().key.opens(session_id, token):
            return Principal(HOLDER_NAME, holds=session_id)
        log_refusal(AuditAct.TOKEN_REFUSED, "not the token of this session", session_id)
        return _ANONYMOUS
    return _cookie_session_principal(session_id, visitor())


def _bearer_principal(token: str, session_id: str | None = None) -> Principal:
    operator = parts().operators.find(token)
    if operator is not None:
        return Principal(operator.name, operator.role)
    log_refusal(AuditAct.TOKEN_REFUSED, "no operator's token", session_id)
    return _ANONYMOUS


def _cookie_session_principal(session_id: str, known: Principal) -> Principal:
    if known.role == Role.NOBODY and session_id not in dict(own_sessions()):
        return _ANONYMOUS
    if request.method not in _SAFE_METHODS:
        require_csrf()
    holds = session_id if session_id in dict(own_sessions()) else None
    name = HOLDER_NAME if known.role == Role.NOBODY else known.name
    return Principal(name, known.role, holds)


def _no_access() -> Refusal:
    return Refusal(
        HTTPStatus.FORBIDDEN,
        f"No access to this session. Send its token in {SESSION_HEADER}, or an operator's bearer token; "
        "in a browser, log in.",
        code="no_session_access",
    )


def require_operator(need: Role) -> Principal:
    """Check that an operator of at least this role is asking.

    Args:
        need: The role.

    Returns:
        The operator.

    Raises:
        Refusal: 401 without a valid token or login, 403 when the role is too small.
    """
    token = _bearer_token()
    if token is None:
        principal = visitor()
        if principal.role > Role.NOBODY and request.method not in _SAFE_METHODS:
            require_csrf()
    else:
        principal = _bearer_principal(token)
    if principal.role == Role.NOBODY:
        raise Refusal(
            HTTPStatus.UNAUTHORIZED,
            "This needs an operator: send `Authorization: Bearer <token>`, or log in with a browser.",
            code="operator_needed",
            headers={"WWW-Authenticate": "Bearer"},
        )
    if not principal.may(need):
        raise Refusal(
            HTTPStatus.FORBIDDEN,
            f"This needs the role {need.name.lower()!r}; {principal.name} has {principal.role.name.lower()!r}.",
            code="role_too_small",
        )
    return principal


def creator() -> Principal:
    """Check that whoever is asking may start a session, and return them.

    Raises:
        Refusal: 401 or 403, as in `require_operator`.
    """
    if _bearer_token() is None and visitor().role == Role.NOBODY and may_create_openly():
        return _ANONYMOUS
    return require_operator(Role.CLIENT)


def may_create_openly() -> bool:
    """Say whether anybody may start sessions: only without operators, and only from this machine."""
    known = parts().operators or parts().proxies.user_header
    if known or not listens_on_loopback(parts().settings.host):
        return False
    # A proxy on this machine makes the whole world look local.
    if any(name in request.headers for name in _FORWARDED):
        return False
    return listens_on_loopback(request.remote_addr or "")


def listens_on_loopback(host: str) -> bool:
    """Say whether an address or host name is this machine's loopback."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bearer_token() -> str | None:
    header = request.headers.get("Authorization")
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    # Another scheme is a credential that we cannot check, so it opens nothing.
    return token.strip() if scheme.lower() == "bearer" else ""


# --- the browser's cookie


def log_in(operator: Operator | None) -> None:
    """Remember in the browser's cookie who logged in.

    Args:
        operator: Whose token was given; None for the person who used a one-time code.
    """
    own = own_sessions()
    session.clear()
    session.permanent = True
    session["own"] = own
    session["operator"] = operator.name if operator else LOCAL_OPERATOR
    if operator:
        session["proof"] = parts().key.fingerprint(operator.token_digest)


def log_out() -> None:
    """Forget everything in the browser's cookie."""
    session.clear()


def visitor() -> Principal:
    """Return who a trusted proxy or the cookie says is asking; nobody in particular without a login.

    The operator's entry is looked up each time: a removed or changed token ends its logins.
    """
    proxied = parts().proxies.operator_of(request)
    if proxied is not None:
        return Principal(proxied.name, proxied.role)
    name = session.get("operator")
    if not isinstance(name, str):
        return _ANONYMOUS
    proof = session.get("proof")
    if proof is None:
        return Principal(LOCAL_OPERATOR, Role.OPERATOR) if name == LOCAL_OPERATOR else _ANONYMOUS
    for operator in parts().operators:
        fingerprint = parts().key.fingerprint(operator.token_digest)
        if operator.name == name and hmac.compare_digest(fingerprint, str(proof)):
            return Principal(operator.name, operator.role)
    return _ANONYMOUS


def page_principal(session_id: str, need: Role) -> Principal:
    """Check access of a browser to one session's page.

    Args:
        session_id: The id in the path.
        need: The role an operator needs.

    Returns:
        Who is asking.

    Raises:
        Refusal: 403, the same for a session that exists and one that does not.
        NotFound: An operator named something that can be no session id.
    """
    principal = _cookie_session_principal(session_id, visitor())
    if principal.holds is None and not principal.may(need):
        raise Refusal(
            HTTPStatus.FORBIDDEN,
            "This page is open to the browser that started the session and to operators. Log in to see it.",
            code="no_session_access",
        )
    if not is_session_id(session_id):
        raise NotFound(f"There is no session {session_id[:64]!r}.", code="unknown_session")
    return principal


def own_sessions() -> list[tuple[str, str]]:
    """Return id and title of the sessions that this browser started, latest first."""
    stored = session.get("own")
    if not isinstance(stored, list):
        return []
    return [(str(entry[0]), str(entry[1])) for entry in stored]


def remember_session(session_id: str, title: str) -> None:
    """Let this browser's cookie open a session that it has just started.

    Args:
        session_id: The new session.
        title: A few words for the list of the browser's own sessions.
    """
    session.permanent = True
    session["own"] = [(session_id, title[:48]), *own_sessions()][:_OWN_MAX]


def csrf_token() -> str:
    """Return this browser's token for forms; it lives in the signed cookie."""
    token = session.get("csrf")
    if not isinstance(token, str):
        token = secrets.token_urlsafe(24)
        session["csrf"] = token
    return token


def require_csrf() -> None:
    """Check that the request was sent from one of our own pages.

    Raises:
        Refusal: 403; the form was sent from elsewhere or the login has changed meanwhile.
    """
    given = request.headers.get(CSRF_HEADER) or request.form.get("csrf_token", "")
    expected = session.get("csrf")
    if isinstance(expected, str) and hmac.compare_digest(expected.encode(), given.encode()):
        return
    raise Refusal(
        HTTPStatus.FORBIDDEN,
        "This form is from another login, or from another site, so nothing was done. "
        "Reload the page and send it again.",
        code="form_expired",
    )
