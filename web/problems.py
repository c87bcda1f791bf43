"""Errors as people and programs read them: a page for browsers, RFC 9457 ``problem+json`` for the API.

Both say the same: what happened, whether anything is lost, what to do.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from http import HTTPStatus

from flask import Flask, Response, render_template, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed, RequestEntityTooLarge

from celeriac.sessions.errors import (
    CeleriacError,
    Conflict,
    NotFound,
    RateLimited,
    Refused,
    StoreUnavailable,
)
from celeriac.web.answers import ProblemDetails
from celeriac.web.request_log import request_id

__all__ = [
    "ENHANCED_HEADER",
    "Problem",
    "Refusal",
    "forbidden",
    "problem_of",
    "register_problems",
    "wants_json",
]

_log = logging.getLogger(__name__)

ENHANCED_HEADER = "X-Enhanced"
"""Sent by our own scripts with a form they submit: they want a short answer, not a page."""

_CODE_STATUS = {
    "message_too_large": HTTPStatus(413),
    "answer_too_large": HTTPStatus(413),
    "image_too_large": HTTPStatus(413),
    # The agents are announced by workers, so this passes as soon as one is up.
    "no_agents": HTTPStatus.SERVICE_UNAVAILABLE,
}

_HTTP_CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "request_too_large",
    415: "unsupported_media_type",
}

_HTTP_DETAILS = {
    404: "There is nothing at this address. Check it for a typing mistake.",
    405: "This address does not answer to that method.",
    413: "The request is larger than this server takes, so nothing was stored. Send less at once.",
}


class Refusal(Exception):
    """The web part refuses a request before it reaches a session.

    Args:
        status: The HTTP status.
        detail: What is wrong and what to do; shown to the caller as it is.
        code: Stable machine-readable word.
        headers: Further response headers.
    """

    def __init__(
        self, status: HTTPStatus, detail: str, *, code: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.code = code
        self.headers = headers or {}


def forbidden(detail: str, *, code: str) -> Refusal:
    """Return a refusal for want of rights (403)."""
    return Refusal(HTTPStatus.FORBIDDEN, detail, code=code)


@dataclass(frozen=True, slots=True)
class Problem:
    """An error, ready to be shown."""

    status: HTTPStatus
    code: str
    detail: str
    headers: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> Response:
        """Return it as problem+json. `instance` is the path only: a query may hold secrets."""
        details = ProblemDetails(
            type=f"urn:celeriac:problem:{self.code}",
            title=self.status.phrase,
            status=int(self.status),
            detail=self.detail,
            code=self.code,
            instance=request.path,
        )
        return Response(
            details.model_dump_json(),
            int(self.status),
            headers=self.headers,
            content_type="application/problem+json",
        )

    def as_page(self) -> Response:
        """Return it as a page with the same words."""
        html = render_template("error.html", problem=self)
        return Response(html, int(self.status), headers=self.headers)


def problem_of(error: Exception) -> Problem:
    """Say what an exception means over HTTP.

    Args:
        error: Whatever was raised while a request was answered.

    Returns:
        The problem; an unexpected exception becomes a 500 that tells nothing but a reference.
    """
    if isinstance(error, Refusal):
        return Problem(error.status, error.code, error.detail, error.headers)
    if isinstance(error, StoreUnavailable):
        detail = (
            "The session store cannot be reached. Nothing is lost; what was acknowledged is kept, "
            "and work goes on by itself when the store is back."
        )
        headers = {"Retry-After": str(error.retry_after_seconds)}
        return Problem(HTTPStatus.SERVICE_UNAVAILABLE, "store_unavailable", detail, headers)
    if isinstance(error, Refused):
        return _refused(error)
    if isinstance(error, HTTPException) and error.code is not None:
        return _http(error, error.code)
    return _unexpected(error)


def _refused(error: Refused) -> Problem:
    if isinstance(error, RateLimited):
        headers = {"Retry-After": str(error.retry_after_seconds)}
        return Problem(HTTPStatus.TOO_MANY_REQUESTS, error.code, str(error), headers)
    status = _CODE_STATUS.get(error.code)
    if status is None and isinstance(error, NotFound):
        status = HTTPStatus.NOT_FOUND
    if status is None and isinstance(error, Conflict):
        status = HTTPStatus.CONFLICT
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        return Problem(status, error.code, str(error), {"Retry-After": "2"})
    return Problem(status or HTTPStatus.BAD_REQUEST, error.code, str(error))


def _http(error: HTTPException, status: int) -> Problem:
    headers = {}
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        headers["Allow"] = ", ".join(sorted(error.valid_methods))
    if isinstance(error, RequestEntityTooLarge):
        headers["Connection"] = "close"
    detail = _HTTP_DETAILS.get(status) or error.description or HTTPStatus(status).phrase
    return Problem(HTTPStatus(status), _HTTP_CODES.get(status, "http_error"), detail, headers)


def _unexpected(error: Exception) -> Problem:
    reference = request_id()
    _log.error("Request %s failed: %s", reference, request.path, exc_info=error)
    detail = (
        "Something went wrong on our side. What was acknowledged before is kept. "
        f"If it happens again, give this reference to whoever runs the server: {reference}"
    )
    return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error", detail)


def wants_json() -> bool:
    """Say whether this request is answered to a program rather than shown to a person."""
    is_program = request.path.startswith("/api/") or request.path in {
        "/healthz",
        "/readyz",
        "/metrics",
    }
    return is_program or request.headers.get(ENHANCED_HEADER) == "1"


def _answer(error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.code is not None and error.code < 400:
        # A redirect that the router asks for is no error.
        return Response(headers=error.get_headers(), status=error.code)
    problem = problem_of(error)
    if wants_json():
        return problem.as_json()
    try:
        return problem.as_page()
    except Exception:  # noqa: BLE001 - the error page itself failed; plain words still reach the person
        _log.exception("The error page could not be shown")
        return Response(problem.detail, int(problem.status), mimetype="text/plain")


def register_problems(app: Flask) -> None:
    """Answer every error of `app` in these words."""
    app.register_error_handler(HTTPException, _answer)
    app.register_error_handler(CeleriacError, _answer)
    app.register_error_handler(Exception, _answer)
