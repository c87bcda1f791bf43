"""The control state of a session: what is open, and what happens next. Ids and statuses, never payloads.

`SessionState` is what one commit replaces by another. It is small (a few kB) whatever the length of the
conversation. The timing of its steps (`StepTiming`) is kept beside the JSON, in hash fields that the claim
script can read, and is merged in on load.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from celeriac.sessions.calls import CallStatus, Decision, ToolEffect
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.messages import Usage
from celeriac.sessions.plans import Plan

__all__ = [
    "MOST_COMPACTIONS",
    "NEVER_SENT",
    "SCHEMA_VERSION",
    "STATE_TEXT_BYTES",
    "Control",
    "ControlVerb",
    "OpenCall",
    "QueuedMessage",
    "SessionState",
    "SessionStatus",
    "Step",
    "StepName",
    "StepTiming",
    "Turn",
    "UnknownCall",
]

SCHEMA_VERSION = 1

MOST_COMPACTIONS = 2
"""So many compactions of a turn may fail to help; then the model is called with what there is."""

STATE_TEXT_BYTES = 2_000
"""How much of an error the control state keeps; history and records have all of it."""

NEVER_SENT = -1
"""`StepTiming.sends` of a wait: there is no message for it, and no worker can claim it."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def evolve(self, **values: object) -> Self:
        """Return a copy with some fields replaced, for the rules; the values are not validated.

        A step makes a dozen of these copies. `model_copy` does the same six times slower, because it also
        copies what these models never have: extra fields and private attributes.
        """
        new = object.__new__(type(self))
        object.__setattr__(new, "__dict__", {**self.__dict__, **values})
        object.__setattr__(new, "__pydantic_fields_set__", self.__pydantic_fields_set__)
        object.__setattr__(new, "__pydantic_extra__", None)
        object.__setattr__(new, "__pydantic_private__", None)
        return new


class SessionStatus(StrEnum):
    """What a session is doing, as people are told."""

    IDLE = "idle"
    RUNNING = "running"
    WAITING = "waiting"


class StepName(StrEnum):
    """Every kind of step; the names are the public words for them."""

    START_AGENT_SESSION = "StartAgentSession"
    AWAIT_USER_MESSAGE = "AwaitUserMessage"
    RUN_MODEL = "RunModel"
    COMPACT_CONTEXT = "CompactContext"
    CALL_TOOL = "CallTool"
    CALL_SINGLE_ATTEMPT_TOOL = "CallSingleAttemptTool"
    AWAIT_TOOL_APPROVAL = "AwaitToolApproval"
    AWAIT_QUESTION_ANSWER = "AwaitQuestionAnswer"
    AWAIT_TIMER = "AwaitTimer"
    RESUME_TURN = "ResumeTurn"
    APPLY_TURN_CONTROL = "ApplyTurnControl"
    RECORD_TURN_FAILURE = "RecordTurnFailure"
    RECONCILE_CALL = "ReconcileCall"

    @property
    def waits(self) -> bool:
        """Whether the step is a wait: nobody claims it, somebody or the time ends it."""
        return self in _WAITS

    @property
    def background(self) -> bool:
        """Whether the step belongs to no turn: nothing waits for it, and no steer or stop touches it."""
        return self is StepName.RECONCILE_CALL


_WAITS = frozenset(
    {
        StepName.AWAIT_USER_MESSAGE,
        StepName.AWAIT_TOOL_APPROVAL,
        StepName.AWAIT_QUESTION_ANSWER,
        StepName.AWAIT_TIMER,
    }
)


class StepTiming(_Part):
    """When a step may run, when somebody must look at it, and who runs it. Times in Unix milliseconds."""

    not_before: int
    """Not claimable earlier (a retry's wait)."""
    due: int | None = None
    """When somebody must look: lease end, resend, timer or expiry. None: only a person ends it."""
    sends: int = 0
    """How often its message was sent to the broker."""
    token: int = 0
    """Fencing token of the claim; 0 means unclaimed."""
    claimed_at: int = 0
    owner: str = ""

    @property
    def claimed(self) -> bool:
        """Whether a worker has it."""
        return self.token != 0


class Step(_Part):
    """A step that is ready, running or waiting. A finished one is only in the history."""

    id: str
    name: StepName
    call_id: str | None = None
    attempt: int = 1
    """The attempt that is running or comes next."""
    queue: str | None = None
    created_at: int
    last_error: str | None = None
    last_failure: FailureKind | None = None
    timing: StepTiming = Field(exclude=True, default=StepTiming(not_before=0))


class OpenCall(_Part):
    """A call of the response that the turn is working on."""

    id: str
    tool: str
    effect: ToolEffect
    status: CallStatus
    """PENDING covers ready, running and retrying: the step and its claim tell which."""
    max_attempts: int = 1
    backoff_seconds: float | None = None
    queue: str | None = None
    requires_approval: bool = False
    digest: str = ""
    """Digest of tool, arguments and definition: what an approval is bound to."""
    shown: Mapping[str, str] = Field(default_factory=dict)
    """Of a call that asks: short digests of the definition's parts, to say which of them changed."""
    approval_reason: str | None = None
    approval_timeout_ms: int | None = None
    decision: Decision | None = None
    ordered: bool = False
    """A write that runs only when the ordered writes before it in the response have succeeded."""
    shown_bytes: int | None = None
    """How much of the result the model reads; None is the worker's default."""
    idempotency_valid_ms: int | None = None
    """How long after the first attempt the provider knows the key: nothing is tried again later."""
    reconcile_after_ms: int | None = None
    """When its source can look up an unknown outcome; None is never."""
    attempts: int = 0
    """Attempts that were handed to the tool, or may have been."""
    first_attempt_at: int | None = None
    """When the first of them began."""

    def key_is_valid_at(self, now: int) -> bool:
        """Whether the provider still knows the key of the first attempt, if there was one."""
        if self.idempotency_valid_ms is None or self.first_attempt_at is None:
            return True
        return now <= self.first_attempt_at + self.idempotency_valid_ms


class ControlVerb(StrEnum):
    """What a person told a running turn."""

    STEER = "steer"
    CANCEL = "cancel_turn"


class Control(_Part):
    """A stored steer or cancel_turn, waiting for the next safe step boundary."""

    verb: ControlVerb
    message_ids: tuple[str, ...] = ()
    by: str | None = None
    at: int


class Turn(_Part):
    """The open turn."""

    id: str
    started_at: int
    message_ids: tuple[str, ...]
    plan_mode: bool = False
    model_calls: int = 0
    response_seq: int | None = None
    """Seq of the assistant message whose calls are open."""
    executes_plan: bool = False
    """Whether a person had the plan executed: once, a corrective turn follows if it stalls."""
    calls: tuple[OpenCall, ...] = ()
    control: Control | None = None
    usage: Usage = Usage()
    compact_before: int = 0
    """Seq of the first message that the open `CompactContext` leaves as it is."""
    compactions: int = 0
    """Compactions since a model call last found the context small enough."""
    refused_as_too_large: bool = False
    """Whether the provider refused the context since then; it is compacted for that once."""

    @property
    def may_compact(self) -> bool:
        """Whether one more compaction may help."""
        return self.compactions < MOST_COMPACTIONS


class QueuedMessage(_Part):
    """A message sent while a turn runs; its text is kept beside the state."""

    id: str
    plan_mode: bool = False
    model: str | None = None
    """The model of the session from this message's turn on; None leaves it."""
    created_at: int


class UnknownCall(_Part):
    """A call whose outcome nobody knows yet."""

    id: str
    tool: str
    attempts: int = 0
    decision: Decision | None = None
    token: int = 0
    """Fencing token of the claim that left it unknown; 0 when that was not a claim's end."""
    told_model: bool = False
    queue: str | None = None
    reconcile_after_ms: int | None = None
    """See `OpenCall.reconcile_after_ms`."""
    checked_at: int | None = None
    """When it was last looked up without learning how it ended."""
    checked_note: str | None = None
    """What was found then."""


class SessionState(_Part):
    """The control state; see the module's docstring."""

    schema_version: int
    session_id: str
    agent: str
    model: str
    title: str = ""
    created_at: int
    updated_at: int
    turn: Turn | None = None
    turns: int = 0
    steps: tuple[Step, ...] = ()
    steps_made: int = 0
    queue: tuple[QueuedMessage, ...] = ()
    next_seq: int = 0
    context_from: int = 0
    """Seq of the first message that no summary covers. The summary of what is before it comes later in the
    log, so everything before `context_from` is read by people only."""
    unknown: tuple[UnknownCall, ...] = ()
    notices: tuple[str, ...] = ()
    """What the model must be told at the beginning of the next turn."""
    usage: Usage = Usage()
    plan: Plan | None = None

    @property
    def status(self) -> SessionStatus:
        """Idle without a turn; waiting when every open step waits; else running."""
        if self.turn is None:
            return SessionStatus.IDLE
        steps = self.turn_steps
        if steps and all(step.name.waits for step in steps):
            return SessionStatus.WAITING
        return SessionStatus.RUNNING

    @property
    def turn_steps(self) -> tuple[Step, ...]:
        """The open steps of the turn."""
        return tuple(step for step in self.steps if not step.name.background)

    @property
    def background_steps(self) -> tuple[Step, ...]:
        """The open steps that belong to no turn."""
        return tuple(step for step in self.steps if step.name.background)

    @property
    def wake_at(self) -> int | None:
        """When somebody must next look at the session; None when only a person can move it."""
        dues = [step.timing.due for step in self.steps if step.timing.due is not None]
        return min(dues, default=None)

    @property
    def busy(self) -> bool:
        """Whether somebody must look at it some time: a turn is open, or a look-up goes on beside it."""
        return self.turn is not None or bool(self.steps)

    def step(self, step_id: str) -> Step | None:
        """Return the open step of that id, if there is one."""
        return next((step for step in self.steps if step.id == step_id), None)

    def call(self, call_id: str | None) -> OpenCall | None:
        """Return the open turn's call of that id, if there is one."""
        calls = self.turn.calls if self.turn else ()
        return next((call for call in calls if call.id == call_id), None)

    def unknown_call(self, call_id: str | None) -> UnknownCall | None:
        """Return the call of that id whose outcome nobody knows, if there is one."""
        return next((entry for entry in self.unknown if entry.id == call_id), None)

    def waits_its_turn(self, call: OpenCall) -> bool:
        """Whether an open call is an ordered write that others come before: it has no step yet."""
        open_and_ordered = call.ordered and not call.status.settled
        return open_and_ordered and all(step.call_id != call.id for step in self.steps)
