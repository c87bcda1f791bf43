"""Read models: the session as pages, API and CLI show it. Facts only; the words are in `web/`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from celeriac.sessions.calls import CallRecord
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.images import ImageReference
from celeriac.sessions.messages import Message, Usage
from celeriac.sessions.plans import Plan
from celeriac.sessions.state import QueuedMessage, SessionStatus, StepName

__all__ = [
    "AgentInfo",
    "ApprovalItem",
    "MessagePage",
    "ModelInfo",
    "QueuedMessageView",
    "SentMessage",
    "SessionCreated",
    "SessionPage",
    "SessionSummary",
    "Snapshot",
    "StepRecord",
    "StepView",
    "ToolInfo",
    "TurnView",
    "WorkerInfo",
]


class _View(BaseModel):
    model_config = ConfigDict(frozen=True)


class SessionCreated(_View):
    """What starting a session returns."""

    session_id: str
    agent: str
    model: str
    message_id: str | None = None


class SentMessage(_View):
    """What sending a message returns."""

    message_id: str
    queued: bool
    """Whether it waits in the queue, because a turn is running."""


class QueuedMessageView(QueuedMessage):
    """A queued message with its text and images."""

    text: str
    images: tuple[ImageReference, ...] = ()


class StepView(_View):
    """An open step: what the session is doing or waiting for right now. Times in Unix milliseconds."""

    id: str
    name: StepName
    call_id: str | None
    attempt: int
    state: str
    """``ready``, ``running``, ``retrying`` (a wait before the next attempt) or ``waiting``."""
    since: int
    next_attempt_at: int | None
    due: int | None
    owner: str | None
    last_error: str | None
    last_failure: FailureKind | None = None
    """What kind of failure the last attempt of a model call was."""


class TurnView(_View):
    """The open turn."""

    id: str
    state: str
    """``running``, ``waiting``, ``steering`` or ``cancelling``."""
    started_at: int
    model_calls: int
    plan_mode: bool
    usage: Usage
    steps: tuple[StepView, ...]


class Snapshot(_View):
    """Everything a page needs, read in one consistent moment."""

    session_id: str
    agent: str
    model: str
    title: str
    status: SessionStatus
    created_at: int
    updated_at: int
    turn: TurnView | None
    messages: tuple[Message, ...]
    """The latest 200, oldest first."""
    has_older: bool
    oldest_seq: int = 0
    """Seq of the oldest message that is kept. If it is not 0, older ones were summarised and deleted."""
    calls: tuple[CallRecord, ...]
    """Calls of the messages shown, the open turn's included, in call order."""
    unknown_calls: tuple[str, ...]
    """Call IDs whose outcome is unknown and not yet reconciled."""
    queue: tuple[QueuedMessageView, ...]
    plan: Plan | None = None
    usage: Usage
    resume_token: str
    """Position in the event stream at this moment (the web part signs it)."""
    version: int


class MessagePage(_View):
    """Older messages, oldest first."""

    messages: tuple[Message, ...]
    calls: tuple[CallRecord, ...]
    has_older: bool
    oldest_seq: int = 0
    """As in `Snapshot`."""


class StepRecord(_View):
    """One entry of the step history: one attempt, one wait or one transition."""

    id: str
    name: StepName
    status: str
    """``succeeded``, ``failed``, ``retrying``, ``outcome_unknown``, ``cancelled``, ``lost``, …"""
    turn_id: str | None = None
    call_id: str | None = None
    tool: str | None = None
    attempt: int = 1
    started_at: int
    ended_at: int
    worker: str | None = None
    error: str | None = None
    note: str | None = None
    model: str | None = None
    """Of a model call, like the fields below; they mean what they mean in `Message`."""
    reported_model: str | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    first_token_ms: int | None = None
    latency_ms: int | None = None
    failure: FailureKind | None = None
    """What kind of failure of a model call it was."""


class SessionSummary(_View):
    """A row of the session list."""

    session_id: str
    agent: str
    model: str
    title: str
    status: SessionStatus
    created_at: int
    updated_at: int
    turns: int
    waiting_for: str | None
    """A short fact such as ``approval: cancel_order``; None when it waits for nobody."""


class SessionPage(_View):
    """One page of the session list, newest first."""

    sessions: tuple[SessionSummary, ...]
    cursor: str | None
    """Give it back to get the next page; None at the end."""


class ApprovalItem(_View):
    """A call that waits for a person's decision, or whose outcome is unknown."""

    session_id: str
    agent: str
    title: str
    call: CallRecord
    since: int
    """Unix milliseconds."""
    explanation: str
    """What the model wrote with the call; its own words."""


class ToolInfo(_View):
    """A tool as workers announced it."""

    name: str
    description: str
    effect: str
    approval: str
    """``never``, ``always`` or ``depends on the arguments``."""
    source: str | None = None
    original_name: str | None = None


class AgentInfo(_View):
    """An agent as workers announced it."""

    name: str
    description: str
    models: tuple[str, ...]
    default_model: str
    tools: tuple[ToolInfo, ...]
    missing_tools: tuple[str, ...] = ()
    """What is wrong with the sources whose tools cannot be listed now, a line each."""
    plan_mode_enabled: bool
    announced_at: int


class ModelInfo(_View):
    """A model as a worker sees it. Of keys only the names of their variables are told."""

    name: str
    provider: str | None = None
    """None: no service is behind it (the demo model, or a client of an agent's own)."""
    key_variables: tuple[str, ...] = ()
    """Environment variables of which any one may hold the key."""
    key_set: bool | None = None
    """None: no key is needed, or the machine itself may be let in."""
    price_known: bool = False
    context_window_tokens: int | None = None
    """Most tokens that it reads, if that is known."""


class WorkerInfo(_View):
    """A worker that was seen lately."""

    name: str
    seen_at: int
    pid: int
    host: str
    queues: tuple[str, ...]
    concurrency: int
    version: str
    running: int
    """Steps it is running."""
    stuck: bool = False
    """It takes nothing although work is queued that it has room for."""
    models: tuple[ModelInfo, ...] = ()
    """The models of its agents."""
