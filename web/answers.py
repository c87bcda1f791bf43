"""What the API answers when all is well, where that is not a read model of `sessions`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from celeriac.sessions.operations import Reason
from celeriac.sessions.snapshot import AgentInfo, ApprovalItem, SessionCreated, StepRecord
from celeriac.sessions.state import SessionStatus

__all__ = [
    "Accepted",
    "Approvals",
    "ChatConversation",
    "ChoicesDefault",
    "Health",
    "Limits",
    "ProblemDetails",
    "Readiness",
    "SessionReasons",
    "SessionStarted",
    "SettingsView",
    "Steps",
    "UnknownOutcomes",
]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class ProblemDetails(_Answer):
    """An error (RFC 9457). `code` is stable; `detail` says what, which value, and what to do."""

    type: str = Field(examples=["urn:celeriac:problem:unknown_session"])
    title: str
    status: int
    detail: str
    code: str = Field(examples=["unknown_session"])
    instance: str
    """The path of the request."""


class SessionStarted(SessionCreated):
    """A new session, and the token that opens it; it is given only here."""

    session_token: str = Field(repr=False)


class Accepted(_Answer):
    """It is stored; what comes of it is in the snapshot."""

    accepted: Literal[True] = True


class Steps(_Answer):
    """The step history, oldest first."""

    steps: tuple[StepRecord, ...]


class Approvals(_Answer):
    """Calls that wait for a decision, oldest first."""

    approvals: tuple[ApprovalItem, ...]


class SessionReasons(_Answer):
    """Why a session is where it is."""

    session_id: str
    status: SessionStatus
    reasons: tuple[Reason, ...]


class UnknownOutcomes(_Answer):
    """Calls whose outcome nobody knows, oldest first."""

    unknown: tuple[ApprovalItem, ...]


class ChoicesDefault(_Answer):
    """What a session gets that names nothing; None when no worker has announced an agent."""

    agent: str | None
    model: str | None


class Limits(_Answer):
    """Sizes in bytes, and how many messages may wait."""

    message_max_bytes: int
    queue_max_messages: int
    request_max_bytes: int
    session_max_bytes: int
    result_shown_bytes: int
    result_kept_bytes: int


class SettingsView(_Answer):
    """What a new session can choose from."""

    agents: tuple[AgentInfo, ...]
    models: tuple[str, ...]
    default: ChoicesDefault
    tools: dict[str, tuple[str, ...]]
    """Names of the tools of each agent."""
    limits: Limits


class Health(_Answer):
    """The process is up."""

    status: Literal["up"] = "up"


class Readiness(_Answer):
    """Whether the store answers and a worker takes work."""

    status: Literal["ready", "not ready"]
    store: Literal["ok", "unreachable"]
    workers: int | None
    reason: str | None = None


class ChatConversation(_Answer):
    """A session as UI messages of the AI SDK."""

    id: str
    messages: list[JsonValue]
