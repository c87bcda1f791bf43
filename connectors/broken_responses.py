"""What is said of responses that cannot be used, whichever API they came over."""

from __future__ import annotations

from celeriac.sessions.failures import FailureKind
from celeriac.sessions.jsonsafe import clean_text, truncate_text
from celeriac.sessions.model import ModelError

__all__ = ["broken", "filtered", "refused"]

_REFUSAL_BYTES = 2_000


def broken(what: str) -> ModelError:
    """Return the error of a response that is cut or cannot be used; another attempt may do better."""
    return ModelError(what, retryable=True, kind=FailureKind.BROKEN)


def filtered() -> ModelError:
    """Return the error of a response that the provider's filter stopped."""
    return ModelError(
        "the provider's content filter stopped the answer",
        retryable=False,
        kind=FailureKind.CONTENT_POLICY,
    )


def refused(words: str) -> ModelError:
    """Return the error of a model that refuses to answer, with its own words."""
    said = truncate_text(clean_text(words).strip(), _REFUSAL_BYTES)
    why = f"the model refused to answer: {said}" if said else "the model refused to answer"
    return ModelError(why, retryable=False, kind=FailureKind.REFUSAL)
