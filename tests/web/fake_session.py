"""A session that a test moves by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

from celeriac.sessions.calls import CallRecord, CallStatus
from celeriac.sessions.events import StoredEvent
from celeriac.sessions.messages import Message, Usage
from celeriac.sessions.plans import Plan
from celeriac.sessions.snapshot import QueuedMessageView
from celeriac.sessions.state import SessionStatus, StepName

__all__ = ["WAITS", "FakeSession"]

WAITS = {
    CallStatus.AWAITING_APPROVAL: StepName.AWAIT_TOOL_APPROVAL,
    CallStatus.AWAITING_ANSWER: StepName.AWAIT_QUESTION_ANSWER,
    CallStatus.AWAITING_TIMER: StepName.AWAIT_TIMER,
}


@dataclass
class FakeSession:
    id: str
    agent: str
    model: str
    messages: list[Message] = field(default_factory=list)
    calls: dict[str, CallRecord] = field(default_factory=dict)
    queue: list[QueuedMessageView] = field(default_factory=list)
    events: list[StoredEvent] = field(default_factory=list)
    taken_ids: set[str] = field(default_factory=set)
    turn_id: str | None = None
    turns: int = 0
    usage: Usage = field(default_factory=Usage)
    plan: Plan | None = None
    planning: bool = False
    oldest_seq: int = 0

    @property
    def asking(self) -> list[CallRecord]:
        return [call for call in self.calls.values() if call.status in WAITS]

    @property
    def title(self) -> str:
        return self.messages[0].text[:60] if self.messages else ""

    @property
    def status(self) -> SessionStatus:
        if self.turn_id is None:
            return SessionStatus.IDLE
        return SessionStatus.WAITING if self.asking else SessionStatus.RUNNING
