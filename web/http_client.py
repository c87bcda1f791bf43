"""`HttpSessionClient`: the `SessionClient` of a program that has neither the store nor the broker."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from pydantic import JsonValue

from celeriac.sessions.audit import AuditPage
from celeriac.sessions.calls import CallRecord, DecisionVerb
from celeriac.sessions.errors import InvalidRequest, NotFound, StoreUnavailable
from celeriac.sessions.events import EventBatch
from celeriac.sessions.ids import (
    CALL_ID_PATTERN,
    IMAGE_ID_PATTERN,
    MESSAGE_ID_PATTERN,
    is_session_id,
    new_message_id,
)
from celeriac.sessions.images import Image, read_image
from celeriac.sessions.jsonsafe import clean_text, to_json_value
from celeriac.sessions.operations import Operations
from celeriac.sessions.snapshot import (
    AgentInfo,
    ApprovalItem,
    MessagePage,
    SentMessage,
    SessionPage,
    Snapshot,
    StepRecord,
    WorkerInfo,
)
from celeriac.sessions.state import SessionStatus
from celeriac.web.answers import (
    Approvals,
    Readiness,
    SessionReasons,
    SessionStarted,
    SettingsView,
    Steps,
    UnknownOutcomes,
)
from celeriac.web.http_events import follow
from celeriac.web.http_wire import Request, Wire, read_model

__all__ = ["HttpSessionClient"]


class HttpSessionClient:
    """Start sessions, send messages, decide, and read, over HTTP. Thread-safe; a context manager.

    Its methods are those of `SessionClient`, with the same arguments, results and exceptions. What differs:

    - Who acts is whom the token belongs to: the server never believes a name, so `by` is not sent.
    - A refusal for want of rights is a `Refused`, with codes such as ``no_session_access``.
    - After a lost connection a request is sent again only if it cannot have arrived, or a second one changes
      nothing: reads, `send_message` (its message id is the key) and `decide` with a `digest`. Any other act raises
      `StoreUnavailable`, and its message says that it may have been done.
    - `follow` reads live events, `read_operations` and `session_reasons` what `SessionClient.operations` reads.
      What the API does not offer is not here: `acting_as`, `call`, `check_rate`, `event_watch`, `events`, `record`.

    Args:
        base_url: Where the server is, such as ``https://agents.example.org``.
        token: An operator's bearer token.
        session_tokens: Tokens of sessions, by session id. Those of sessions that this client starts are
            remembered by itself.
        timeout_seconds: Longest silence of the server while it answers.
        retries: How often a request is sent again after a lost connection, 0 to 10.

    Raises:
        ConfigurationError: An argument cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str | None = None,
        session_tokens: Mapping[str, str] | None = None,
        timeout_seconds: float = 30.0,
        retries: int = 2,
    ) -> None:
        self._wire = Wire(base_url, token, session_tokens or {}, timeout_seconds, retries)

    def __repr__(self) -> str:
        return f"HttpSessionClient({self._wire.base_url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._wire.close()

    def ping(self) -> None:
        """Raise `StoreUnavailable` unless the server and its store answer."""
        answer = self._wire.send(Request("GET", "/readyz", repeatable=True, may_be_unready=True))
        if read_model(Readiness, answer).store != "ok":
            raise StoreUnavailable(f"The store behind {self._wire.base_url} does not answer.")

    # --- starting and talking

    def create_session(
        self,
        *,
        agent: str | None = None,
        model: str | None = None,
        message: str | None = None,
        message_id: str | None = None,
        plan_mode: bool = False,
        images: Sequence[Image] = (),
    ) -> SessionStarted:
        """Start a session, as `SessionClient.create_session` does; the result holds the session's token too."""
        if message is not None or images:
            _check_message(message or "", message_id, images)
        body = {
            "agent": agent,
            "model": model,
            "message": message,
            "message_id": message_id,
            "plan_mode": plan_mode,
            "images": _sent_images(images),
        }
        answer = self._wire.send(Request("POST", "/api/sessions", body=body))
        started = read_model(SessionStarted, answer)
        self._wire.remember(started.session_id, started.session_token)
        return started

    def read_image(self, data: bytes, name: str = "") -> Image:
        """Check an image as to its kind; the server checks its size when it is sent.

        Raises:
            InvalidRequest: Code ``not_an_image``.
        """
        return read_image(data, name, max_bytes=len(data))

    def image(self, session_id: str, image_id: str) -> bytes:
        """Return the bytes of an image, as `SessionClient.image` does."""
        if IMAGE_ID_PATTERN.fullmatch(image_id) is None:
            raise NotFound("This session has no such image.", code="unknown_image")
        return self._wire.send(_read(session_id, f"/images/{image_id}")).content

    def send_message(
        self,
        session_id: str,
        text: str,
        *,
        message_id: str | None = None,
        plan_mode: bool = False,
        model: str | None = None,
        images: Sequence[Image] = (),
    ) -> SentMessage:
        """Send a message, as `SessionClient.send_message` does."""
        _check_message(text, message_id, images)
        body = {
            "text": text,
            "message_id": message_id or new_message_id(),
            "plan_mode": plan_mode,
            "model": model,
            "images": _sent_images(images),
        }
        request = _act(session_id, "/messages", body, repeatable=True)
        return read_model(SentMessage, self._wire.send(request))

    def delete_queued(self, session_id: str, message_id: str) -> None:
        """Take a message out of the queue, as `SessionClient.delete_queued` does."""
        path = _session_path(session_id)
        if MESSAGE_ID_PATTERN.fullmatch(message_id) is None:
            raise NotFound("No such message is in the queue.", code="unknown_message")
        if not message_id.strip("."):
            raise InvalidRequest(
                f"A message with the id {message_id!r} cannot be named in an address.",
                code="invalid_message_id",
            )
        self._wire.send(Request("DELETE", f"{path}/queue/{message_id}", session_id))

    # --- control

    def steer(
        self,
        session_id: str,
        *,
        message_ids: tuple[str, ...] | None = None,
        text: str | None = None,
        by: str | None = None,  # noqa: ARG002 - the token says it
    ) -> None:
        """End the turn at the next safe step boundary, as `SessionClient.steer` does."""
        ids = None if message_ids is None else list(message_ids)
        self._wire.send(_act(session_id, "/steer", {"message_ids": ids, "text": text}))

    def cancel_turn(
        self,
        session_id: str,
        *,
        turn_id: str | None = None,
        by: str | None = None,  # noqa: ARG002 - the token says it
    ) -> None:
        """Stop the open turn, as `SessionClient.cancel_turn` does."""
        self._wire.send(_act(session_id, "/cancel", {"turn_id": turn_id}))

    # --- decisions

    def decide(
        self,
        session_id: str,
        call_id: str,
        verb: DecisionVerb,
        *,
        by: str,  # noqa: ARG002 - the token says it
        note: str | None = None,
        digest: str | None = None,
    ) -> CallRecord:
        """Approve or reject a call, as `SessionClient.decide` does."""
        body = {"decision": verb.value, "note": note, "digest": digest}
        # Without a digest, a second one could approve what the call was changed into after the first.
        again = digest is not None
        return self._call(_of_call(session_id, call_id, "decision", body, repeatable=again))

    def answer(
        self,
        session_id: str,
        call_id: str,
        answer: JsonValue,
        *,
        by: str,  # noqa: ARG002 - the token says it
    ) -> CallRecord:
        """Answer a question of the agent, as `SessionClient.answer` does."""
        if to_json_value(answer) is None:
            raise InvalidRequest("The answer is null; send a value.", code="no_answer")
        return self._call(_of_call(session_id, call_id, "answer", {"answer": answer}))

    def execute_plan(
        self,
        session_id: str,
        *,
        revision: int,
        by: str | None = None,  # noqa: ARG002 - the token says it
    ) -> None:
        """Let the agent carry out its plan, as `SessionClient.execute_plan` does."""
        self._wire.send(_act(session_id, "/plan/execute", {"revision": revision}))

    def reconcile(
        self,
        session_id: str,
        call_id: str,
        *,
        succeeded: bool,
        by: str,  # noqa: ARG002 - the token says it
        note: str | None = None,
        result: JsonValue = None,
    ) -> CallRecord:
        """Say how a call with an unknown outcome ended, as `SessionClient.reconcile` does."""
        outcome = "succeeded" if succeeded else "failed"
        body = {"outcome": outcome, "note": note, "result": result}
        return self._call(_of_call(session_id, call_id, "reconcile", body))

    def check_call(
        self,
        session_id: str,
        call_id: str,
        *,
        by: str,  # noqa: ARG002 - the token says it
    ) -> CallRecord:
        """Have a call with an unknown outcome looked up, as `SessionClient.check_call` does."""
        return self._call(_of_call(session_id, call_id, "check", None))

    def _call(self, request: Request) -> CallRecord:
        return read_model(CallRecord, self._wire.send(request))

    # --- reading

    def audit(
        self, *, session_id: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> AuditPage:
        """Read the audit log, as `SessionClient.audit` does."""
        query = {"session_id": session_id, "cursor": cursor, "limit": limit}
        return read_model(AuditPage, self._wire.send(_list("/api/audit", query)))

    def snapshot(self, session_id: str) -> Snapshot:
        """Read everything a page needs; its `resume_token` is where `follow` starts."""
        return read_model(Snapshot, self._wire.send(_read(session_id)))

    def messages(
        self, session_id: str, *, before: int | None = None, limit: int = 200
    ) -> MessagePage:
        """Read the `limit` messages before seq `before`, oldest first."""
        query = {"before": before, "limit": limit}
        return read_model(MessagePage, self._wire.send(_read(session_id, "/messages", query)))

    def steps(self, session_id: str) -> tuple[StepRecord, ...]:
        """Read the step history, oldest first."""
        return read_model(Steps, self._wire.send(_read(session_id, "/steps"))).steps

    def follow(self, session_id: str, *, after: str) -> Iterator[EventBatch]:
        """Read live events after a position, on one stream that is resumed after lost connections.

        Closing the iterator closes the stream; it cancels nothing.

        Args:
            session_id: The session.
            after: The `resume_token` of a snapshot, or the id of an event.

        Returns:
            Batches without an end: an empty one at least every 15 seconds, and one with `reload` as the last
            when the position can no longer be resumed: read the snapshot and go on from its token.

        Raises:
            InvalidRequest: Code ``invalid_resume_token``.
            StoreUnavailable: The server was not reached, or had no place for a stream, five times in a row.
        """
        _session_path(session_id)
        return follow(self._wire, session_id, after)

    def list_sessions(
        self,
        *,
        status: SessionStatus | None = None,
        agent: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> SessionPage:
        """List sessions, as `SessionClient.list_sessions` does."""
        state = None if status is None else status.value
        query = {"state": state, "agent": agent, "cursor": cursor, "limit": limit}
        return read_model(SessionPage, self._wire.send(_list("/api/sessions", query)))

    def approvals(self, *, limit: int = 100) -> tuple[ApprovalItem, ...]:
        """List the calls that wait for a decision, the oldest first."""
        answer = self._wire.send(_list("/api/approvals", {"limit": limit}))
        return read_model(Approvals, answer).approvals

    def unknown_outcomes(self, *, limit: int = 100) -> tuple[ApprovalItem, ...]:
        """List the calls whose outcome is unknown, the oldest first."""
        answer = self._wire.send(_list("/api/unknown", {"limit": limit}))
        return read_model(UnknownOutcomes, answer).unknown

    def settings(self) -> SettingsView:
        """Read what a new session can choose from, and the server's limits."""
        return read_model(SettingsView, self._wire.send(_list("/api/settings")))

    def agents(self) -> tuple[AgentInfo, ...]:
        """List the agents that workers announced."""
        return self.settings().agents

    def read_operations(self) -> Operations:
        """Read what goes on now: workers, queues, counts, and sessions that have not moved for long."""
        return read_model(Operations, self._wire.send(_list("/api/operations")))

    def session_reasons(self, session_id: str) -> SessionReasons:
        """Read why a session is where it is."""
        _session_path(session_id)
        answer = self._wire.send(_list(f"/api/operations/sessions/{session_id}"))
        return read_model(SessionReasons, answer)

    def workers(self) -> tuple[WorkerInfo, ...]:
        """List the workers seen in the last 15 seconds."""
        return self.read_operations().workers


def _session_path(session_id: str) -> str:
    if not is_session_id(session_id):
        raise NotFound(f"There is no session {session_id[:64]!r}.", code="unknown_session")
    return f"/api/sessions/{session_id}"


def _list(path: str, query: Mapping[str, str | int | None] | None = None) -> Request:
    return Request("GET", path, query=query or {}, repeatable=True)


def _read(
    session_id: str, below: str = "", query: Mapping[str, str | int | None] | None = None
) -> Request:
    path = _session_path(session_id) + below
    return Request("GET", path, session_id, query=query or {}, repeatable=True)


def _act(
    session_id: str, below: str, body: Mapping[str, object] | None, *, repeatable: bool = False
) -> Request:
    path = _session_path(session_id) + below
    return Request("POST", path, session_id, body, repeatable=repeatable)


def _of_call(
    session_id: str,
    call_id: str,
    act: str,
    body: Mapping[str, object] | None,
    *,
    repeatable: bool = False,
) -> Request:
    if CALL_ID_PATTERN.fullmatch(call_id) is None:
        raise NotFound("There is no such call in this session.", code="unknown_call")
    return _act(session_id, f"/calls/{call_id}/{act}", body, repeatable=repeatable)


def _check_message(text: str, message_id: str | None, images: Sequence[Image]) -> None:
    if not clean_text(text).strip() and not images:
        raise InvalidRequest("The message is blank; write something.", code="blank_message")
    if message_id is not None and MESSAGE_ID_PATTERN.fullmatch(message_id) is None:
        raise InvalidRequest(
            "message_id must be 1 to 64 letters, digits, '.', '_' or '-'.",
            code="invalid_message_id",
        )


def _sent_images(images: Sequence[Image]) -> list[dict[str, str]]:
    return [
        {"data": b64encode(image.data).decode(), "name": image.reference.name} for image in images
    ]
