"""What can happen to a session: the inputs of `advance`.

Those that end a step carry the fencing token of its claim, so a result of a lost claim is recognised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from celeriac.sessions.built_in import BuiltInTool
from celeriac.sessions.calls import (
    CallOutcome,
    CallRequest,
    DecisionVerb,
    LateResult,
    ToolEffect,
)
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.images import ImageReference
from celeriac.sessions.messages import CallReference, ItemsApi, Usage

__all__ = [
    "ApprovalDecided",
    "CallReconciled",
    "CheckRequested",
    "ContextCompacted",
    "ContextFull",
    "Input",
    "MessageSent",
    "ModelInterrupted",
    "ModelReplied",
    "OutcomeFound",
    "PlanExecuted",
    "PlannedCall",
    "QuestionAnswered",
    "QueuedMessageDeleted",
    "SettledCall",
    "StepFailed",
    "StepReport",
    "StepReturned",
    "ToolChanged",
    "ToolEnded",
    "TurnCancelled",
    "TurnSteered",
    "WokenUp",
]


@dataclass(frozen=True, slots=True)
class MessageSent:
    """A person sent a message."""

    message_id: str
    text: str
    plan_mode: bool = False
    model: str | None = None
    """The model of the session from this message's turn on; None leaves it."""
    images: tuple[ImageReference, ...] = ()


@dataclass(frozen=True, slots=True)
class QueuedMessageDeleted:
    """A person took a message out of the queue."""

    message_id: str


@dataclass(frozen=True, slots=True)
class TurnSteered:
    """A person wants queued messages applied at the next safe step boundary."""

    message_ids: tuple[str, ...]
    by: str | None = None


@dataclass(frozen=True, slots=True)
class TurnCancelled:
    """A person stopped the open turn."""

    by: str | None = None
    turn_id: str | None = None
    """The turn that is meant; None is whichever is open."""


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call of a response, resolved against the agent's tools when the response came."""

    reference: CallReference
    request: CallRequest
    refused: str | None = None
    """Why it cannot run at all (no such tool, wrong arguments); None when it can."""
    requires_approval: bool = False
    digest: str = ""
    shown: Mapping[str, str] = field(default_factory=dict)
    """See `OpenCall.shown`."""
    max_attempts: int = 1
    backoff_seconds: float | None = None
    queue: str | None = None
    ordered: bool = False
    shown_bytes: int | None = None
    approval_timeout_ms: int | None = None
    idempotency_valid_ms: int | None = None
    reconcile_after_ms: int | None = None
    built_in: BuiltInTool | None = None
    """Set for Celeriac's own tools: no worker runs them."""


@dataclass(frozen=True, slots=True)
class SettledCall:
    """What is recorded of a call that is settled, and perhaps long out of the control state."""

    request: CallRequest
    outcome: CallOutcome
    late: LateResult | None = None


@dataclass(frozen=True, slots=True)
class ModelReplied:
    """`RunModel` got a complete response."""

    step_id: str
    token: int
    text: str
    calls: Sequence[PlannedCall] = ()
    reasoning: str = ""
    items: Sequence[JsonValue] = ()
    items_api: ItemsApi = "chat"
    usage: Usage = field(default_factory=Usage)
    finish_reason: str | None = None
    model: str | None = None
    reported_model: str | None = None
    first_token_ms: int | None = None
    latency_ms: int | None = None
    missing_tools: Sequence[str] = ()
    """What was wrong with the sources of tools that the model had to do without."""
    context_full: bool = False
    """The context was over the threshold, but nothing (more) could be done about it."""
    snapshot: str | None = None
    """What the harness wants back at the next step: `Change.snapshot`."""


@dataclass(frozen=True, slots=True)
class ModelInterrupted:
    """`RunModel` was aborted because the turn was stopped; the text so far is kept."""

    step_id: str
    token: int
    text: str


@dataclass(frozen=True, slots=True)
class ContextFull:
    """`RunModel` found that older messages must be summarised before the model is called."""

    step_id: str
    token: int
    compact_before: int
    """Seq of the first message that stays as it is."""
    reason: str
    refused: bool = False
    """Whether the provider said so, rather than our own estimate."""


@dataclass(frozen=True, slots=True)
class ContextCompacted:
    """`CompactContext` got a summary of the messages before the turn's `compact_before`."""

    step_id: str
    token: int
    text: str
    usage: Usage = field(default_factory=Usage)
    model: str | None = None
    reported_model: str | None = None
    finish_reason: str | None = None
    first_token_ms: int | None = None
    latency_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """A tool returned, or said for certain that it failed."""

    step_id: str
    token: int
    call_id: str
    succeeded: bool
    result: JsonValue = None
    error: str | None = None
    settled: SettledCall | None = None
    """The call's records, when the call is no longer open: this result is late."""


@dataclass(frozen=True, slots=True)
class StepFailed:
    """An attempt broke."""

    step_id: str
    token: int
    error: str
    call_id: str | None = None
    retryable: bool = True
    entered: bool = True
    """Whether the tool was entered, or may have been. For `RunModel` it does not matter."""
    delay_ms: int | None = None
    """The wait that the provider asked for."""
    kind: FailureKind | None = None
    """What kind of failure of a model call it was."""
    usage: Usage | None = None
    """What a failed model call used all the same."""


@dataclass(frozen=True, slots=True)
class StepReturned:
    """A worker gives a claimed step back that it certainly did not start."""

    step_id: str
    token: int
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ToolChanged:
    """What would run is no longer what the person saw; the call must ask again."""

    step_id: str
    token: int
    digest: str
    reason: str
    effect: ToolEffect | None = None
    """The stricter effect that it now has; None when its effect holds. A change never loosens one."""
    shown: Mapping[str, str] = field(default_factory=dict)
    """See `OpenCall.shown`."""


@dataclass(frozen=True, slots=True)
class ApprovalDecided:
    """A person approved or rejected a call."""

    call_id: str
    verb: DecisionVerb
    by: str
    digest: str
    note: str | None = None


@dataclass(frozen=True, slots=True)
class QuestionAnswered:
    """A person answered a question of `ask_user`."""

    call_id: str
    answer: JsonValue
    """Any JSON value but null; false, 0 and the empty text are answers."""
    by: str


@dataclass(frozen=True, slots=True)
class PlanExecuted:
    """A person wants the plan carried out, as it is at this revision."""

    revision: int
    by: str | None = None


@dataclass(frozen=True, slots=True)
class CallReconciled:
    """Somebody found out how a call with an unknown outcome ended."""

    call_id: str
    succeeded: bool
    by: str
    result: JsonValue = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class CheckRequested:
    """A person wants a call with an unknown outcome looked up at its provider."""

    call_id: str
    by: str


@dataclass(frozen=True, slots=True)
class OutcomeFound:
    """`ReconcileCall` looked up what became of a call."""

    step_id: str
    token: int
    call_id: str
    happened: bool | None
    """None when what was found does not tell."""
    by: str
    """Who was asked."""
    result: JsonValue = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class WokenUp:
    """The wake index says that somebody must look at the session."""

    backlogged: frozenset[str | None] = frozenset()
    """Queues with a backlog, where a step's message is late rather than lost."""
    after_outage: bool = False
    """The store was away: every lease looks expired, so each is given its time once more."""
    dead_owners: Mapping[str, str] = field(default_factory=dict)
    """Owners of claims that certainly run nothing any more, each with what became of it: their leases
    count as over."""


StepReport = (
    ModelReplied
    | ModelInterrupted
    | ContextFull
    | ContextCompacted
    | ToolEnded
    | StepFailed
    | StepReturned
    | ToolChanged
    | OutcomeFound
)
"""What a worker says of the step that it claimed."""

Input = (
    MessageSent
    | QueuedMessageDeleted
    | TurnSteered
    | TurnCancelled
    | ApprovalDecided
    | QuestionAnswered
    | PlanExecuted
    | CallReconciled
    | CheckRequested
    | WokenUp
    | StepReport
)
