"""What Celeriac raises.

CeleriacError
├── ConfigurationError        a setting or a definition is wrong; the process cannot start with it
│   └── DefinitionError       an agent or tool definition is wrong
├── Refused                   the request cannot be done; nothing was changed (has a stable `code`)
│   ├── InvalidRequest        the input itself is wrong
│   ├── NotFound              no such session, call, message or agent
│   ├── Conflict              the session is in another state than the request assumes
│   └── RateLimited           the client did this too often within a minute
├── StoreUnavailable          the session store did not answer; nothing is lost, try again
├── ToolFailed                raised by a tool: it is certain that the call failed (final)
├── ToolNotRun                raised by a tool: it is certain that nothing was done, so it may be tried again
└── ToolOutcomeUnknown        raised by a tool: it was handed on, and nobody knows whether it happened

A message says what is wrong, which value, and what to do about it.
"""

from __future__ import annotations

__all__ = [
    "CeleriacError",
    "ConfigurationError",
    "Conflict",
    "DefinitionError",
    "InvalidRequest",
    "NotFound",
    "RateLimited",
    "Refused",
    "StoreUnavailable",
    "ToolFailed",
    "ToolNotRun",
    "ToolOutcomeUnknown",
]


class CeleriacError(Exception):
    """Base of everything Celeriac raises on purpose."""


class ConfigurationError(CeleriacError):
    """A setting is missing or wrong; the message names it."""


class DefinitionError(ConfigurationError):
    """An agent or tool definition is wrong; found when it is defined, not when it runs."""


class Refused(CeleriacError):
    """The request was refused at the edge and changed nothing.

    Args:
        message: What, which value, what to do; shown to the caller as it is.
        code: Stable machine-readable word for this refusal, e.g. ``unknown_agent``.
    """

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class InvalidRequest(Refused):
    """The input is wrong: too large, blank, of the wrong type, or naming something unknown."""


class NotFound(Refused):
    """The session, call, message or agent does not exist."""


class Conflict(Refused):
    """The session has moved on, or somebody else decided first; the message says who and what."""


class RateLimited(Refused):
    """Too many within a minute, so this one was not done.

    Args:
        message: What there was too much of, and the limit.
        retry_after_seconds: When there is room again.
    """

    def __init__(self, message: str, *, retry_after_seconds: int) -> None:
        super().__init__(message, code="too_many_requests")
        self.retry_after_seconds = retry_after_seconds


class StoreUnavailable(CeleriacError):
    """The session store cannot be reached or refuses writes.

    Args:
        message: What was tried and what went wrong.
        retry_after_seconds: When trying again is reasonable.
    """

    def __init__(self, message: str, *, retry_after_seconds: int = 2) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class ToolFailed(CeleriacError):
    """Raise it in a tool to say: this call failed, I know it, and trying again would not help.

    The call is recorded as ``failed`` whatever its effect, and the model reads the message. Any other
    exception means only that the attempt broke; for a write the outcome may then be unknown.
    """


class ToolNotRun(CeleriacError):
    """Raise it in a tool or a source to say: nothing was sent, or it was turned away before it did anything.

    The attempt does not count as one that may have had an effect: it is made again as far as the call has
    attempts left, and then the call is recorded as ``failed`` and as safe to make again, whatever its effect.

    Args:
        message: Why it did not run.
        retry_after_seconds: How long the provider asks to wait; None is the tool's own backoff.
    """

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class ToolOutcomeUnknown(CeleriacError):
    """Raise it in a tool or a source to say: the request was handed on, and whether it was carried out is not known.

    A read or an idempotent write is tried again; any other write is recorded as ``outcome_unknown``. Every other
    exception means the same, without a wait.

    Args:
        message: What is known.
        retry_after_seconds: How long the provider asks to wait; None is the tool's own backoff.
        repeatable: Whether trying again may tell more; if not, it is the last attempt.
    """

    def __init__(
        self, message: str, *, retry_after_seconds: float | None = None, repeatable: bool = True
    ) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.repeatable = repeatable
