"""What an error of litellm means: whether to try again, when, and in which words."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping

from celeriac.connectors.redaction import without_secrets
from celeriac.connectors.retry_after import retry_after_seconds, retry_delay_in
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.model import ModelError

__all__ = ["as_model_error"]

_LONGEST = 600
_PASSING = frozenset(
    {FailureKind.BUSY, FailureKind.UNAVAILABLE, FailureKind.TIMEOUT, FailureKind.BROKEN}
)

# What the provider itself says goes before the status: quota that is used up comes as 429, a prompt that is too
# long as 400, and litellm makes up a status where there was none.
_BY_WORDS: tuple[tuple[re.Pattern[str], FailureKind], ...] = tuple(
    (re.compile(words, re.IGNORECASE), kind)
    for words, kind in (
        # Said by the libraries themselves, before any request.
        (r"missing credentials|missing \w+ api key", FailureKind.AUTHENTICATION),
        (r"insufficient_quota|billing_(?:hard_limit|not_active)", FailureKind.QUOTA),
        (r"credit balance is too low|insufficient (?:balance|credits|funds)", FailureKind.QUOTA),
        (r"context_length_exceeded|request_too_large|prompt is too long", FailureKind.TOO_LARGE),
        # More than the account's tokens of a minute in one request: no wait makes it fit.
        (r"request too large for", FailureKind.TOO_LARGE),
        (r"content_policy_violation|content_filter|cyber_policy", FailureKind.CONTENT_POLICY),
        (r"ResponsibleAIPolicyViolation|violating our usage policy", FailureKind.CONTENT_POLICY),
        (r"unsupported_(?:parameter|value)", FailureKind.UNSUPPORTED),
        (r"invalid_api_key|api key not valid|account_deactivated", FailureKind.AUTHENTICATION),
        # No request was made: it is litellm or the provider's client that says so.
        (r"missing (?:credentials|[\w ]*api key)", FailureKind.AUTHENTICATION),
        (r"api_key client option must be set", FailureKind.AUTHENTICATION),
        (r"model_not_found|LLM Provider NOT provided", FailureKind.NOT_FOUND),
        (r"overloaded_error", FailureKind.BUSY),
        # litellm's own words for a stream of responses that was cut.
        (r"before any terminal event", FailureKind.BROKEN),
    )
)
_BY_NAME: Mapping[str, FailureKind] = {
    # The most special first: several are kinds of BadRequestError.
    "ContextWindowExceededError": FailureKind.TOO_LARGE,
    "ContentPolicyViolationError": FailureKind.CONTENT_POLICY,
    "UnsupportedParamsError": FailureKind.UNSUPPORTED,
    "PaymentRequiredError": FailureKind.QUOTA,
    "AuthenticationError": FailureKind.AUTHENTICATION,
    "PermissionDeniedError": FailureKind.AUTHENTICATION,
    "NotFoundError": FailureKind.NOT_FOUND,
    "RateLimitError": FailureKind.BUSY,
    "APITimeoutError": FailureKind.TIMEOUT,
    "TimeoutError": FailureKind.TIMEOUT,
}
_BY_STATUS: Mapping[int, FailureKind] = {
    401: FailureKind.AUTHENTICATION,
    402: FailureKind.QUOTA,
    403: FailureKind.AUTHENTICATION,
    404: FailureKind.NOT_FOUND,
    408: FailureKind.UNAVAILABLE,
    409: FailureKind.UNAVAILABLE,
    413: FailureKind.TOO_LARGE,
    425: FailureKind.UNAVAILABLE,
    429: FailureKind.BUSY,
    529: FailureKind.BUSY,
}
_PREFIX = re.compile(r"^(?:(?:litellm\.)?[A-Z]\w*?(?:Error|Timeout)(?: Error)?: )+")
_PROVIDER = re.compile(r"^([A-Z]\w*?)(?:Exception|Error)[\w ]* - ")
_NAMES = {"Vertex_ai": "Google", "Vertex_ai_beta": "Google", "VertexAI": "Google"}
"""What litellm calls a provider in its errors, where people would not know it."""
_SUFFIX = re.compile(r"\.? Handle with `litellm\.\w+`\.?$")


def as_model_error(error: Exception) -> ModelError:
    """Convert whatever the attempt raised."""
    if isinstance(error, ModelError):
        return error
    inner = _original(error)
    kind = _kind_of(inner)
    began = inner is not error and not getattr(error, "is_pre_first_chunk", False)
    if began and kind is FailureKind.UNAVAILABLE:
        kind = FailureKind.BROKEN
    words = "the model did not answer in time" if type(inner) is TimeoutError else _words_of(inner)
    return ModelError(
        words,
        retryable=kind in _PASSING,
        retry_after_seconds=_wait_of(error, inner) if kind in _PASSING else None,
        context_full=kind is FailureKind.TOO_LARGE,
        kind=kind,
    )


def _original(error: Exception) -> Exception:
    """Return the provider's error; litellm wraps one that comes within a stream."""
    original = getattr(error, "original_exception", None)
    return original if isinstance(original, Exception) else error


def _kind_of(error: Exception) -> FailureKind:
    codes = " ".join(_codes_of(error))
    said = f"{codes} {error}"
    for words, kind in _BY_WORDS:
        if words.search(said):
            return kind
    names = {one.__name__ for one in type(error).__mro__}
    for name, kind in _BY_NAME.items():
        if name in names:
            return kind
    status = getattr(error, "provider_status_code", None) or getattr(error, "status_code", None)
    if not isinstance(status, int):
        # Without an answer of the provider it was the way there, or a stream that broke.
        return FailureKind.UNAVAILABLE
    by_status = FailureKind.UNAVAILABLE if status >= 500 else FailureKind.BAD_REQUEST
    return _BY_STATUS.get(status, by_status)


def _codes_of(error: Exception) -> Iterator[str]:
    """Yield the codes of the provider's own error object, if litellm kept it."""
    body = getattr(error, "body", None)
    if isinstance(body, Mapping):
        inner = body.get("error")
        for part in (body, inner if isinstance(inner, Mapping) else {}):
            yield from (str(part[name]) for name in ("code", "type") if part.get(name))


def _words_of(error: Exception) -> str:
    """Return the provider's own words, without the names of Python's errors around them."""
    text = without_secrets(str(error)).partition("\nTraceback (most recent call last):")[0]
    text = _SUFFIX.sub("", _PREFIX.sub("", text))
    provider = _PROVIDER.match(text)
    said = text[provider.end() :] if provider else text
    said = _message_in(said) or said
    whole = f"{_NAMES.get(provider.group(1), provider.group(1))}: {said}" if provider else said
    whole = whole.strip() or type(error).__name__
    return whole if len(whole) <= _LONGEST else whole[:_LONGEST] + "…"


def _message_in(text: str) -> str | None:
    """Return the message of an error object that a text holds, as bytes or as JSON."""
    begin, end = text.find("{"), text.rfind("}")
    try:
        found = json.loads(text[begin : end + 1])
    except ValueError:
        return None
    for holder in (found.get("error"), found):
        if isinstance(holder, dict) and isinstance(message := holder.get("message"), str):
            return message
    return None


def _wait_of(*errors: Exception) -> float | None:
    waits = (retry_after_seconds(_headers_of(error), time.time()) for error in errors)
    wait = next((found for found in waits if found is not None), None)
    return retry_delay_in(str(errors[-1])) if wait is None else wait


def _headers_of(error: Exception) -> Mapping[str, str]:
    found = getattr(error, "litellm_response_headers", None)
    if not found:
        found = getattr(getattr(error, "response", None), "headers", None)
    if not isinstance(found, Mapping):
        return {}
    return {str(name): str(value) for name, value in found.items()}
