"""What every request must pass and every response carries."""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus

from flask import Flask, Response, request
from flask.sessions import SecureCookieSessionInterface

from celeriac.web.auth import hide_malformed_sessions, listens_on_loopback
from celeriac.web.keys import WebKey
from celeriac.web.problems import Refusal

__all__ = ["REQUEST_MAX_BYTES", "register_security"]

REQUEST_MAX_BYTES = 1024 * 1024

_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types fragment"
)
_TOKEN_NAMES = frozenset(
    {
        "token",
        "session_token",
        "access_token",
        "operator_token",
        "bearer",
        "authorization",
        "x_agent_session_token",
        "agent_session_token",
    }
)
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class _CookieSessions(SecureCookieSessionInterface):
    def get_cookie_secure(self, app: Flask) -> bool:  # noqa: ARG002 - the signature is Flask's
        # A proxy that ends TLS says so; believing a false claim only makes the cookie stricter.
        return request.is_secure or request.headers.get("X-Forwarded-Proto") == "https"


def register_security(app: Flask, key: WebKey, *, host: str, port: int) -> None:
    """Set up checks, headers and the signed cookie.

    Args:
        app: The application.
        key: Signs the cookie.
        host: The address we listen on; on loopback only loopback names are answered.
        port: Part of the cookie's name, because browsers share cookies between ports.
    """
    app.secret_key = key.cookie_secret()
    app.session_interface = _CookieSessions()
    app.config.update(
        SESSION_COOKIE_NAME=f"celeriac_{port}",
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Lax",
        SESSION_REFRESH_EACH_REQUEST=False,
        PERMANENT_SESSION_LIFETIME=timedelta(days=14),
        MAX_CONTENT_LENGTH=REQUEST_MAX_BYTES,
        MAX_FORM_MEMORY_SIZE=REQUEST_MAX_BYTES,
    )
    if listens_on_loopback(host):
        app.before_request(_check_host)
    app.before_request(_check_origin)
    app.before_request(_refuse_tokens_in_query)
    app.before_request(hide_malformed_sessions)
    app.after_request(_add_headers)


def _check_host() -> None:
    """Refuse names that another site made to point at this machine (DNS rebinding)."""
    name = request.host.rsplit(":", 1)[0] if not request.host.endswith("]") else request.host
    if name.lower() not in {"127.0.0.1", "localhost", "[::1]"}:
        raise Refusal(
            HTTPStatus.BAD_REQUEST,
            "This server listens on this machine only and answers to 127.0.0.1, localhost and [::1].",
            code="unknown_host",
        )


def _check_origin() -> None:
    site = request.headers.get("Sec-Fetch-Site", "none")
    if request.method not in _SAFE_METHODS and site not in {"same-origin", "none"}:
        raise Refusal(
            HTTPStatus.FORBIDDEN,
            "Another site sent this request with your browser, so nothing was done.",
            code="cross_site",
        )


def _refuse_tokens_in_query() -> None:
    """Addresses end up in logs, history and referrers, so a token in one is refused, right or wrong."""
    if any(name.lower().replace("-", "_") in _TOKEN_NAMES for name in request.args):
        raise Refusal(
            HTTPStatus.FORBIDDEN,
            "Tokens are not accepted in an address, where logs keep them. Send a header instead.",
            code="token_in_query",
        )


def _add_headers(response: Response) -> Response:
    response.headers.setdefault("Content-Security-Policy", _CONTENT_SECURITY_POLICY)
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    response.headers.setdefault("Referrer-Policy", "same-origin")
    response.headers.setdefault("Cross-Origin-Opener-Policy", "same-origin")
    response.headers.setdefault("Cache-Control", "no-store")
    return response
