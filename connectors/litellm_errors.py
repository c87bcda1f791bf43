"""What an error of litellm means: whether to try again, when, and in which words."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping

from celeriac.connectors.retry_after import retry_after_seconds
from celeriac.sessions.model import ModelError

__all__ = ["as_model_error", "without_secrets"]

_LONGEST = 600
_RETRYABLE_STATUS = frozenset({408, 409, 425, 429})
_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)$", re.IGNORECASE)
# Providers quote keys in their errors, some of them masked in the middle.
_SECRET_SHAPE = re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_*.-]{3,}|Bearer\s+\S+", re.IGNORECASE)
_PREFIX = re.compile(r"\blitellm\.(?=[A-Z])")
# Their status says otherwise, or is missing, but trying again gives the same answer.
_FINAL_NAMES = frozenset(
    {
        "AuthenticationError",
        "BadRequestError",
        "ContentPolicyViolationError",
        "ContextWindowExceededError",
        "NotFoundError",
        "PermissionDeniedError",
        "UnprocessableEntityError",
        "UnsupportedParamsError",
    }
)


def as_model_error(error: Exception) -> ModelError:
    """Convert whatever the attempt raised."""
    if isinstance(error, ModelError):
        return error
    if isinstance(error, TimeoutError):
        return ModelError("the model did not answer in time", retryable=True)
    return ModelError(
        without_secrets(_PREFIX.sub("", str(error)) or type(error).__name__),
        retryable=_is_retryable(error),
        retry_after_seconds=retry_after_seconds(_headers_of(error), time.time()),
        context_full="ContextWindowExceededError" in _names_of(error),
    )


def without_secrets(text: str) -> str:
    """Remove everything that is or looks like a key, and shorten the rest."""
    for name, value in os.environ.items():
        if len(value) >= 8 and _SECRET_NAME.search(name):
            text = text.replace(value, "[removed]")
    text = _SECRET_SHAPE.sub("[removed]", text)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _names_of(error: Exception) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def _is_retryable(error: Exception) -> bool:
    if _names_of(error) & _FINAL_NAMES:
        return False
    status = getattr(error, "status_code", None)
    if not isinstance(status, int):
        # Without an answer of the provider it was the way there, or a stream that broke.
        return True
    return status in _RETRYABLE_STATUS or status >= 500


def _headers_of(error: Exception) -> Mapping[str, str]:
    found = getattr(error, "litellm_response_headers", None)
    if not found:
        found = getattr(getattr(error, "response", None), "headers", None)
    if not isinstance(found, Mapping):
        return {}
    return {str(name): str(value) for name, value in found.items()}
