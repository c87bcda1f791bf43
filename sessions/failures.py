"""Why a model call failed, sorted by what can be done about it."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["FailureKind"]


class FailureKind(StrEnum):
    """Kinds of failed model calls. The first four may pass by themselves and are tried again."""

    BUSY = "busy"
    """The provider asks for patience: 429, 529."""
    UNAVAILABLE = "unavailable"
    """It cannot be reached, or has a fault of its own: connection errors, 408, 409, 425, 5xx."""
    TIMEOUT = "timeout"
    """It did not answer in time."""
    BROKEN = "broken"
    """The stream was cut, or the response cannot be used."""
    AUTHENTICATION = "authentication"
    """The key is missing, wrong or not allowed to do this: 401, 403."""
    QUOTA = "quota"
    """The account has no money or quota left: 402, and 429 with such a code."""
    NOT_FOUND = "not_found"
    """There is no such model: 404."""
    UNSUPPORTED = "unsupported"
    """The model does not take a parameter of the request."""
    BAD_REQUEST = "bad_request"
    """The request is refused as it is: 400, 422."""
    CONTENT_POLICY = "content_policy"
    """A filter or policy of the provider stopped the request or the answer."""
    REFUSAL = "refusal"
    """The model refused to answer."""
    TOO_LARGE = "too_large"
    """The conversation is longer than the model can read."""
