"""The wire of `HttpSessionClient`: requests, what may be sent twice, and problems as the exceptions they were."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeVar

import httpx
from pydantic import BaseModel, JsonValue, ValidationError

from celeriac.sessions.errors import (
    CeleriacError,
    ConfigurationError,
    Conflict,
    InvalidRequest,
    NotFound,
    RateLimited,
    Refused,
    StoreUnavailable,
)
from celeriac.sessions.jsonsafe import dump_json, to_json_value
from celeriac.web.answers import ProblemDetails

__all__ = ["Request", "Wire", "read_model"]

_PAUSE_SECONDS = 0.2
_STREAM_SILENCE_SECONDS = 45.0  # three heartbeats
_KEEP_ALIVE_SECONDS = 1.0
"""Shorter than servers keep idle connections, so that an act is not sent on one that is just being closed."""

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_LOST = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT})


@dataclass(frozen=True, slots=True)
class Request:
    """A request.

    Args:
        method: The HTTP method.
        path: Below the base URL.
        session_id: The session that it is about, whose token goes with it.
        body: The JSON body; a GET has none. What is None in it is left out.
        query: Arguments of the query string; None is left out.
        repeatable: Whether a second one changes nothing: a read, or an act with a key.
        headers: Further headers.
        may_be_unready: Whether a 503 without a problem is an answer too, as that of ``/readyz`` is.
    """

    method: str
    path: str
    session_id: str | None = None
    body: Mapping[str, object] | None = None
    query: Mapping[str, str | int | None] = field(default_factory=dict)
    repeatable: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    may_be_unready: bool = False


class Wire:
    """Sends requests to one server. Thread-safe.

    Args:
        base_url: Where the server is.
        token: An operator's bearer token.
        session_tokens: Tokens of sessions, by session id.
        timeout_seconds: Longest silence of the server while it answers.
        retries: How often a request is sent again after a lost connection.

    Raises:
        ConfigurationError: One of them cannot be used; tokens are never shown.
    """

    def __init__(
        self,
        base_url: str,
        token: str | None,
        session_tokens: Mapping[str, str],
        timeout_seconds: float,
        retries: int,
    ) -> None:
        self.base_url = _checked_url(base_url)
        if not 0 < timeout_seconds <= 3600:
            raise ConfigurationError(
                f"timeout_seconds must be above 0 and at most 3600, not {timeout_seconds!r}."
            )
        if not 0 <= retries <= 10:
            raise ConfigurationError(f"retries must be 0 to 10, not {retries!r}.")
        self._token = None if token is None else _checked_token(token, "token")
        self._session_tokens = {
            session_id: _checked_token(one, f"session_tokens[{session_id!r}]")
            for session_id, one in session_tokens.items()
        }
        self._retries = retries
        self._never = threading.Event()
        self._http = httpx.Client(
            timeout=timeout_seconds,
            limits=httpx.Limits(max_connections=None, keepalive_expiry=_KEEP_ALIVE_SECONDS),
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def remember(self, session_id: str, token: str) -> None:
        """Send this token with what is about the session from now on."""
        self._session_tokens[session_id] = token

    def pause(self, seconds: float) -> None:
        """Wait before something is sent again."""
        self._never.wait(seconds)

    def send(self, request: Request) -> httpx.Response:
        """Send a request, again after a lost connection where that can do nothing twice.

        Returns:
            The answer, of a status below 300.

        Raises:
            Refused: The server refused it, as the exception that a local client would raise.
            StoreUnavailable: Neither server nor store answered.
            CeleriacError: The server failed.
        """
        for attempt in range(self._retries + 1):
            answer, fault, sent = self._try(request)
            if answer is not None:
                unready = request.may_be_unready and _problem(answer) is None
                if answer.status_code < 300 or (unready and answer.status_code == 503):
                    return answer
                raise _error_of(answer)
            if attempt == self._retries or (sent and not request.repeatable):
                raise self._unanswered(request, fault, sent=sent)
            self.pause(_PAUSE_SECONDS * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _try(self, request: Request) -> tuple[httpx.Response | None, str, bool]:
        """Return the answer, else what went wrong and whether the request may have arrived."""
        # What httpx raises holds the request with its tokens, so it is not passed on, not even as a cause.
        try:
            answer = self._http.send(self._built(request))
        except _NOT_SENT as error:
            return None, type(error).__name__, False
        except httpx.RequestError as error:
            return None, type(error).__name__, True
        if answer.status_code in _LOST and _problem(answer) is None:
            return None, f"status {answer.status_code}", True
        return answer, "", True

    def _unanswered(self, request: Request, fault: str, *, sent: bool) -> StoreUnavailable:
        if not sent:
            return StoreUnavailable(
                f"The server {self.base_url} cannot be reached ({fault}), so nothing was done. Try again."
            )
        known = (
            "The same again is safe."
            if request.repeatable
            else "Whether it was done is not known: read the session before you do it again."
        )
        return StoreUnavailable(
            f"{request.method} {request.path} got no answer from {self.base_url} ({fault}). {known}"
        )

    def _built(self, request: Request, timeout: httpx.Timeout | None = None) -> httpx.Request:
        headers = {"Accept": "application/json", **request.headers}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        own = self._session_tokens.get(request.session_id or "")
        if own is not None:
            headers["X-Agent-Session-Token"] = own
        content = None
        if request.body is not None:
            headers["Content-Type"] = "application/json"
            content = _encoded(request.body)
        return self._http.build_request(
            request.method,
            self.base_url + request.path,
            params={key: value for key, value in request.query.items() if value is not None},
            headers=headers,
            content=content,
            timeout=timeout or self._http.timeout,
        )

    @contextmanager
    def stream(self, request: Request) -> Iterator[Iterator[bytes]]:
        """Open a stream; it ends when the connection does, in whichever way.

        Yields:
            Its pieces.

        Raises:
            Refused: The server refused it.
            StoreUnavailable: The server cannot be reached, or has no place for a stream.
        """
        timeout = httpx.Timeout(self._http.timeout.connect, read=_STREAM_SILENCE_SECONDS)
        answer, fault = None, ""
        try:
            answer = self._http.send(self._built(request, timeout), stream=True)
            if answer.status_code != HTTPStatus.OK:
                answer.read()
        except httpx.RequestError as error:
            fault = type(error).__name__
        if answer is None or fault:
            raise self._unanswered(request, fault, sent=True)
        try:
            if answer.status_code != HTTPStatus.OK:
                raise _error_of(answer)
            yield _pieces(answer)
        finally:
            answer.close()


def _pieces(answer: httpx.Response) -> Iterator[bytes]:
    try:
        yield from answer.iter_bytes()
    except httpx.RequestError:
        return  # A cut stream is resumed, like one that has ended.


def _encoded(body: Mapping[str, object]) -> bytes:
    sent: dict[str, JsonValue] = {
        key: to_json_value(value) for key, value in body.items() if value is not None
    }
    return dump_json(sent).encode()


def _checked_url(text: str) -> str:
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, TypeError):
        url = httpx.URL("")
    plain = not (url.userinfo or url.query or url.fragment)
    if url.scheme not in {"http", "https"} or not url.host or not plain:
        # Not shown: it may hold a password.
        raise ConfigurationError(
            "base_url must be http:// or https:// with a host, and without user, query or fragment."
        )
    return text.rstrip("/")


def _checked_token(token: str, name: str) -> str:
    if not (token.isascii() and token.isprintable() and token and " " not in token):
        raise ConfigurationError(f"{name} must be printable ASCII without blanks, and not empty.")
    return token


class _Problem(ProblemDetails):
    """A problem as somebody sent it."""

    type: str = ""
    title: str = ""
    instance: str = ""


def _problem(answer: httpx.Response) -> _Problem | None:
    if not answer.headers.get("content-type", "").startswith("application/problem+json"):
        return None
    try:
        return _Problem.model_validate_json(answer.content)
    except ValidationError:
        return None


_CLASSES: Mapping[int, type[Refused]] = {
    HTTPStatus.UNAUTHORIZED: Refused,
    HTTPStatus.FORBIDDEN: Refused,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
}


def _error_of(answer: httpx.Response) -> CeleriacError:
    """Return the exception that a local client would raise for this problem."""
    status = answer.status_code
    problem = _problem(answer)
    if problem is None:
        return CeleriacError(
            f"The server answered with status {status} and no words of Celeriac's; check base_url and any proxy."
        )
    wait = answer.headers.get("retry-after", "")
    seconds = min(int(wait), 3600) if wait.isascii() and wait.isdigit() else 2
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return RateLimited(problem.detail, retry_after_seconds=seconds)
    if problem.code == "no_agents":
        return InvalidRequest(problem.detail, code=problem.code)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return StoreUnavailable(problem.detail, retry_after_seconds=seconds)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return CeleriacError(problem.detail)
    return _CLASSES.get(status, InvalidRequest)(problem.detail, code=problem.code)


Model = TypeVar("Model", bound=BaseModel)


def read_model(model: type[Model], answer: httpx.Response) -> Model:
    """Read an answer.

    Args:
        model: What it must look like.
        answer: The answer.

    Raises:
        CeleriacError: It looks otherwise.
    """
    try:
        return model.model_validate_json(answer.content)
    except ValidationError as error:
        faults = error.error_count()
    raise CeleriacError(
        f"The server's answer is no {model.__name__} ({faults} faults); client and server may be of different versions."
    )
