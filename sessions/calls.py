"""Calls: what a tool call is, how it may end, and what the model is told about it.

A call's *request* (tool, arguments, digest) never changes once made. Its *outcome* is written once when it
settles; only an ``outcome_unknown`` may later be reconciled into ``succeeded`` or ``failed``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, JsonValue

from celeriac.sessions.jsonsafe import dump_json

__all__ = [
    "DID_NOT_RUN",
    "CallOutcome",
    "CallRecord",
    "CallRequest",
    "CallStatus",
    "Decision",
    "DecisionVerb",
    "LateResult",
    "ToolEffect",
    "result_text",
]

DID_NOT_RUN = "the tool did not run, so it is safe to call again: "
"""How the error of a call begins whose tool certainly never started."""


class ToolEffect(StrEnum):
    """What a call does to the world; it decides what may happen after a crash."""

    READ = "read"
    IDEMPOTENT_WRITE = "idempotent_write"
    NON_IDEMPOTENT_WRITE = "non_idempotent_write"

    def is_stricter_than(self, other: ToolEffect) -> bool:
        """Whether less may be done after a crash than with the other effect."""
        order = list(ToolEffect)
        return order.index(self) > order.index(other)


class CallStatus(StrEnum):
    """Where a call is. The first six are open, the others are settled."""

    PENDING = "pending"
    AWAITING_APPROVAL = "awaiting_approval"
    AWAITING_ANSWER = "awaiting_answer"
    AWAITING_TIMER = "awaiting_timer"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    OUTCOME_UNKNOWN = "outcome_unknown"
    REJECTED = "rejected"
    CANCELLED = "cancelled"

    @property
    def settled(self) -> bool:
        """Whether the call has an outcome."""
        return self in _SETTLED


_SETTLED = frozenset(
    {
        CallStatus.SUCCEEDED,
        CallStatus.FAILED,
        CallStatus.OUTCOME_UNKNOWN,
        CallStatus.REJECTED,
        CallStatus.CANCELLED,
    }
)


class DecisionVerb(StrEnum):
    """What a person decided about a call that needed approval."""

    APPROVE = "approve"
    REJECT = "reject"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Decision(_Record):
    """Who decided what, when, on which digest, with which note."""

    verb: DecisionVerb
    by: str
    at: int
    """Unix milliseconds."""
    digest: str
    note: str | None = None

    def describe(self) -> str:
        """Say who decided what and when (UTC), for an error message."""
        at = datetime.fromtimestamp(self.at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        word = "approved" if self.verb is DecisionVerb.APPROVE else "rejected"
        return f"{word} by {self.by} at {at} UTC"


class CallRequest(_Record):
    """What the model asked for, as it was understood when the response was committed."""

    id: str
    tool: str
    arguments: JsonValue
    """The validated arguments, or the model's raw text when they were no JSON object."""
    effect: ToolEffect
    source: str | None = None
    """Connector or MCP server the tool comes from; None for a plain tool."""
    original_name: str | None = None
    """The tool's name there, when it differs."""
    description: str | None = None
    """The beginning of what the source says of the tool; of a call that asks."""
    turn_id: str
    created_at: int
    """Unix milliseconds."""


class CallOutcome(_Record):
    """How a call ended."""

    status: CallStatus
    result: JsonValue = None
    error: str | None = None
    skipped: bool = False
    """Not run because an earlier ordered write of the same response did not succeed."""
    reconciled_by: str | None = None
    """Who settled an unknown outcome later: a person's name, or ``late result``."""
    note: str | None = None
    """What that person said about it."""
    answered_by: str | None = None
    """Who answered the question."""
    cancelled_while: CallStatus | None = None
    """Where a cancelled call was."""
    attempts: int = 0
    settled_at: int
    """Unix milliseconds."""
    decision: Decision | None = None
    token: int = 0
    """Fencing token of the claim whose report settled it; 0 when it was no worker's report."""


class LateResult(_Record):
    """What a worker that was thought dead said of a call after it had been settled otherwise."""

    succeeded: bool
    result: JsonValue = None
    error: str | None = None
    at: int
    """Unix milliseconds."""
    token: int
    """Fencing token of its claim."""


class CallRecord(_Record):
    """One call as pages, API and CLI show it: request, live status and outcome in one."""

    id: str
    tool: str
    arguments: JsonValue
    effect: ToolEffect
    source: str | None = None
    original_name: str | None = None
    description: str | None = None
    turn_id: str
    created_at: int
    status: CallStatus
    attempts: int = 0
    max_attempts: int | None = None
    requires_approval: bool = False
    digest: str | None = None
    """What a decision must carry while the call awaits approval."""
    approval_reason: str | None = None
    """Why it asks (again), e.g. that the tool's definition changed."""
    next_attempt_at: int | None = None
    waits_until: int | None = None
    """When an open wait ends by itself: a timer's time, or the expiry of an approval."""
    last_error: str | None = None
    waits_its_turn: bool = False
    """An ordered write that has not begun, because those before it in its response have not ended."""
    skipped: bool = False
    result: JsonValue = None
    error: str | None = None
    reconciled_by: str | None = None
    note: str | None = None
    """What the person said who settled an unknown outcome."""
    answered_by: str | None = None
    cancelled_while: CallStatus | None = None
    settled_at: int | None = None
    checkable: bool = False
    """Of an unknown outcome: whether it can be looked up at the provider."""
    checking_at: int | None = None
    """When that will be done, or was begun."""
    checked_at: int | None = None
    """When it was last looked up without learning how the call ended."""
    checked_note: str | None = None
    """What was found then."""
    late_result: LateResult | None = None
    """A result that came after the call had been settled otherwise; it is kept, and changes nothing."""
    decision: Decision | None = None


def result_text(tool: str, outcome: CallOutcome) -> str:
    """Say to the model how a call ended; each kind of ending has words of its own.

    Args:
        tool: The tool's name, for the sentence.
        outcome: The settled outcome.

    Returns:
        The text of the tool message. A result that is text is given as it is, any other as JSON.
    """
    if outcome.reconciled_by is not None and outcome.result is None:
        return _reconciled_text(tool, outcome)
    if outcome.status is CallStatus.SUCCEEDED:
        if outcome.answered_by is not None and outcome.result == "":
            return "(The user gave an empty answer.)"
        return _success_text(outcome.result)
    if outcome.status is CallStatus.FAILED:
        return f"Error: {outcome.error or f'{tool} failed without a message'}"
    if outcome.status is CallStatus.REJECTED:
        note = outcome.decision.note if outcome.decision else None
        said = f" They said: {note}" if note else ""
        return f"A person rejected this call of {tool}. It did not run.{said}"
    if outcome.status is CallStatus.CANCELLED:
        return f"{_cancelled_words(tool, outcome)} {outcome.error or ''}".rstrip()
    why = f" ({outcome.error})" if outcome.error else ""
    return (
        f"Outcome unknown: {tool} may or may not have taken effect{why}. "
        "Do not call it again for the same purpose before the outcome is known; tell the user so."
    )


def _cancelled_words(tool: str, outcome: CallOutcome) -> str:
    match outcome.cancelled_while:
        case CallStatus.AWAITING_ANSWER:
            return "The question was cancelled before anybody answered it."
        case CallStatus.AWAITING_TIMER:
            return "The wait was cancelled before its time was over."
        case CallStatus.AWAITING_APPROVAL if outcome.attempts == 0:
            return (
                f"This call of {tool} was cancelled while it waited for approval; it did not run."
            )
        case _ if outcome.attempts == 0:
            return f"This call of {tool} was cancelled before it ran."
        case _:
            return f"This call of {tool} was cancelled before it gave a result."


def _reconciled_text(tool: str, outcome: CallOutcome) -> str:
    said = outcome.note or outcome.error
    source = f"{outcome.reconciled_by}: {said}" if said else outcome.reconciled_by
    if outcome.status is CallStatus.SUCCEEDED:
        return f"{tool} took effect ({source})."
    return f"Error: {tool} did not take effect ({source})."


def _success_text(result: JsonValue) -> str:
    if isinstance(result, str):
        return result
    return dump_json(result)
