"""`SessionClient`: what people and programs can do with sessions. Flask, the CLI and users call this."""

from __future__ import annotations

from pydantic import JsonValue

from celeriac.sessions.calls import CallRecord, DecisionVerb
from celeriac.sessions.events import EventBatch
from celeriac.sessions.snapshot import (
    AgentInfo,
    ApprovalItem,
    MessagePage,
    SentMessage,
    SessionCreated,
    SessionPage,
    Snapshot,
    StepRecord,
    WorkerInfo,
)
from celeriac.sessions.state import SessionStatus

__all__ = ["SessionClient"]


class SessionClient:
    """(being implemented; the signatures are the contract)

    Every method may raise `StoreUnavailable`; those with a session id raise `NotFound` (code
    ``unknown_session``) for one that does not exist.
    """

    def ping(self) -> None: ...

    def create_session(
        self,
        *,
        agent: str | None = None,
        model: str | None = None,
        message: str | None = None,
        message_id: str | None = None,
        plan_mode: bool = False,
    ) -> SessionCreated:
        """InvalidRequest: unknown_agent, unknown_model, blank_message, message_too_large, invalid_message_id, no_agents."""
        raise NotImplementedError

    def send_message(
        self, session_id: str, text: str, *, message_id: str | None = None, plan_mode: bool = False
    ) -> SentMessage:
        """InvalidRequest as above; Conflict code queue_full. Same message_id again: same answer, no change."""
        raise NotImplementedError

    def delete_queued(self, session_id: str, message_id: str) -> None:
        """NotFound code unknown_message: not (or no longer) queued."""
        raise NotImplementedError

    def steer(
        self,
        session_id: str,
        *,
        message_ids: tuple[str, ...] | None = None,
        text: str | None = None,
        by: str | None = None,
    ) -> None:
        """Conflict codes nothing_to_steer, ...; NotFound unknown_message."""
        raise NotImplementedError

    def cancel_turn(self, session_id: str, *, turn_id: str | None = None, by: str | None = None) -> None:
        """Conflict code no_open_turn / turn_ended (turn_id names another turn)."""
        raise NotImplementedError

    def decide(
        self,
        session_id: str,
        call_id: str,
        verb: DecisionVerb,
        *,
        by: str,
        note: str | None = None,
        digest: str | None = None,
    ) -> CallRecord:
        """Same decision again: returns the call unchanged. Conflict codes already_decided (message says who, what, when),
        changed (digest is another), not_awaiting_approval; NotFound unknown_call; InvalidRequest note_too_long."""
        raise NotImplementedError

    def reconcile(
        self,
        session_id: str,
        call_id: str,
        *,
        succeeded: bool,
        by: str,
        note: str | None = None,
        result: JsonValue = None,
    ) -> CallRecord:
        """Conflict code not_unknown."""
        raise NotImplementedError

    def snapshot(self, session_id: str) -> Snapshot:
        raise NotImplementedError

    def messages(self, session_id: str, *, before: int | None = None, limit: int = 200) -> MessagePage:
        raise NotImplementedError

    def call(self, session_id: str, call_id: str) -> CallRecord:
        raise NotImplementedError

    def steps(self, session_id: str) -> tuple[StepRecord, ...]:
        raise NotImplementedError

    def events(self, session_id: str, *, after: str, block_ms: int = 0, limit: int = 200) -> EventBatch:
        """Events after the position `after` (a Snapshot.resume_token or StoredEvent.id); waits up to block_ms for one."""
        raise NotImplementedError

    def list_sessions(
        self,
        *,
        status: SessionStatus | None = None,
        agent: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> SessionPage:
        """InvalidRequest code invalid_cursor."""
        raise NotImplementedError

    def approvals(self, *, limit: int = 100) -> tuple[ApprovalItem, ...]:
        """Oldest first."""
        raise NotImplementedError

    def unknown_outcomes(self, *, limit: int = 100) -> tuple[ApprovalItem, ...]:
        raise NotImplementedError

    def agents(self) -> tuple[AgentInfo, ...]:
        raise NotImplementedError

    def workers(self) -> tuple[WorkerInfo, ...]:
        """Those seen in the last 15 seconds."""
        raise NotImplementedError
