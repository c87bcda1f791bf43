"""`SessionClient`: what people and programs can do with sessions. Flask, the CLI and users call this."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from celeriac.sessions.audit import Actor, AuditEntry, AuditPage
from celeriac.sessions.built_in import parse_choices
from celeriac.sessions.calls import CallRecord, CallStatus, DecisionVerb
from celeriac.sessions.errors import Conflict, InvalidRequest, NotFound
from celeriac.sessions.events import EventBatch
from celeriac.sessions.ids import MESSAGE_ID_PATTERN, new_message_id, new_session_id
from celeriac.sessions.images import Image, read_image
from celeriac.sessions.inputs import (
    ApprovalDecided,
    CallReconciled,
    CheckRequested,
    Input,
    MessageSent,
    PlanExecuted,
    QuestionAnswered,
    QueuedMessageDeleted,
    TurnCancelled,
    TurnSteered,
)
from celeriac.sessions.jsonsafe import bounded_value, clean_text, dump_json, to_json_value
from celeriac.sessions.settings import Settings
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
from celeriac.sessions.state import SessionState, SessionStatus
from celeriac.sessions.store.audit import AuditLog
from celeriac.sessions.store.connection import store_errors
from celeriac.sessions.store.limits import Limited, RateLimits
from celeriac.sessions.store.lists import SessionLists
from celeriac.sessions.store.operations import SessionOperations
from celeriac.sessions.store.reader import SessionReader
from celeriac.sessions.store.sessions import SessionStore
from celeriac.sessions.store.watch import EventWatch

__all__ = ["SessionClient"]

_NOTE_MAX_CHARACTERS = 2_000


class SessionClient:
    """Start sessions, send messages, decide, and read. Thread-safe.

    Every method may raise `StoreUnavailable`; those with a session id raise `NotFound` (code
    ``unknown_session``) for one that does not exist.

    Args:
        store: The session store.
        settings: Sizes and defaults.
        actor: Who acts, for the audit log.
    """

    def __init__(self, store: SessionStore, settings: Settings, actor: Actor | None = None) -> None:
        self._store = store
        self._settings = settings
        self._reader = SessionReader(store, settings)
        self._lists = SessionLists(store, self._reader, settings)
        self.operations = SessionOperations(store, self._lists)
        """What goes on now, and why a session does not move."""
        self._audit = AuditLog(store.client, settings)
        self._limits = RateLimits(store.client, settings)
        self._actor = actor or Actor()

    def acting_as(self, actor: Actor) -> SessionClient:
        """Return a client whose acts the audit log says are this one's."""
        return SessionClient(self._store, self._settings, actor)

    def ping(self) -> None:
        """Raise `StoreUnavailable` unless the store answers."""
        with store_errors():
            self._store.client.ping()

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
    ) -> SessionCreated:
        """Start a session, with its first message if there is one.

        Args:
            agent: Its agent; None is the default one.
            model: Its model; None is the agent's default.
            message: The first message.
            message_id: The client's id for it.
            plan_mode: Whether its turn may only plan.
            images: What the first message shows, each from `read_image`.

        Returns:
            The session's id, agent and model.

        Raises:
            InvalidRequest: Codes ``unknown_agent``, ``unknown_model``, ``no_agents``, ``blank_message``,
                ``message_too_large``, ``invalid_message_id``, ``plan_mode_unavailable``, ``too_many_images``,
                ``image_too_large``.
        """
        chosen = self._choose_agent(agent)
        name = chosen.default_model if model is None else model
        _require_model(chosen.name, chosen, name)
        if plan_mode:
            _require_planning(chosen.name, chosen)
        first = None
        if message is not None or images:
            first = self._message(message or "", message_id, images, plan_mode=plan_mode)
        session_id = new_session_id()
        self._store.create(
            session_id, chosen.name, name, first, _bytes_of(images), actor=self._actor
        )
        return SessionCreated(
            session_id=session_id,
            agent=chosen.name,
            model=name,
            message_id=first.message_id if first else None,
        )

    def _choose_agent(self, name: str | None) -> AgentInfo:
        agents = {agent.name: agent for agent in self.agents()}
        if not agents:
            raise InvalidRequest(
                "No agent is known yet: start a worker with CELERIAC_AGENTS first.",
                code="no_agents",
            )
        wanted = name or self._settings.default_agent or next(iter(agents))
        if wanted not in agents:
            raise InvalidRequest(
                f"There is no agent {wanted!r}; there are {', '.join(agents)}.",
                code="unknown_agent",
            )
        return agents[wanted]

    def read_image(self, data: bytes, name: str = "") -> Image:
        """Check an image that somebody sent, as to its kind and size.

        Raises:
            InvalidRequest: Codes ``not_an_image`` and ``image_too_large``.
        """
        return read_image(data, name, max_bytes=self._settings.image_max_bytes)

    def image(self, session_id: str, image_id: str) -> bytes:
        """Return the bytes of an image that a message of the session shows.

        Raises:
            NotFound: Code ``unknown_image``.
        """
        data = self._store.images(session_id, [image_id]).get(image_id)
        if data is None:
            raise NotFound("This session has no such image.", code="unknown_image")
        return data

    def _message(
        self,
        text: str,
        message_id: str | None,
        images: Sequence[Image],
        *,
        plan_mode: bool,
        model: str | None = None,
    ) -> MessageSent:
        cleaned = clean_text(text)
        self._check_images(images)
        if not cleaned.strip() and not images:
            raise InvalidRequest("The message is blank; write something.", code="blank_message")
        size = len(cleaned.encode())
        if size > self._settings.message_max_bytes:
            raise InvalidRequest(
                f"The message has {size:,} bytes; the limit is {self._settings.message_max_bytes:,}.",
                code="message_too_large",
            )
        if message_id is not None and MESSAGE_ID_PATTERN.fullmatch(message_id) is None:
            raise InvalidRequest(
                "message_id must be 1 to 64 letters, digits, '.', '_' or '-'.",
                code="invalid_message_id",
            )
        references = tuple({one.reference.id: one.reference for one in images}.values())
        return MessageSent(message_id or new_message_id(), cleaned, plan_mode, model, references)

    def _check_images(self, images: Sequence[Image]) -> None:
        most, size = self._settings.images_max_per_message, self._settings.images_max_bytes
        if len(images) > most:
            raise InvalidRequest(
                f"The message has {len(images)} images; the limit is {most}. Send the others in another.",
                code="too_many_images",
            )
        total = sum(len(image.data) for image in images)
        if total > size:
            raise InvalidRequest(
                f"The images have {total:,} bytes together; the limit is {size:,}. Send fewer at once.",
                code="image_too_large",
            )

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
        """Send a message; while a turn runs it waits in the queue.

        Args:
            session_id: The session.
            text: The message.
            message_id: The client's id; the same one again changes nothing and gets the same answer.
            plan_mode: Whether its turn may only plan.
            model: The session's model from this message's turn on; None leaves it.
            images: What it shows, each from `read_image`.

        Returns:
            The message's id, and whether it waits.

        Raises:
            InvalidRequest: As for `create_session`.
            Conflict: Code ``queue_full``.
        """
        message = self._message(text, message_id, images, plan_mode=plan_mode, model=model)
        if plan_mode or model is not None:
            name = self._store.load(session_id).state.agent
            agents = {agent.name: agent for agent in self.agents()}
            if plan_mode:
                _require_planning(name, agents.get(name))
            if model is not None:
                _require_model(name, agents.get(name), model)
        while True:
            loaded = self._store.load(session_id)
            if message_id is not None and self._store.records.message_known(session_id, message_id):
                # Read again: it may have been stored after `loaded`.
                return _sent(self._store.load(session_id).state, message_id)
            if len(loaded.state.queue) >= self._settings.queue_max_messages:
                raise Conflict(
                    f"{len(loaded.state.queue)} messages wait already; wait or delete some.",
                    code="queue_full",
                )
            state = self._store.try_apply(message, loaded, _bytes_of(images), self._actor)
            if state is not None:
                return _sent(state, message.message_id)

    def delete_queued(self, session_id: str, message_id: str) -> None:
        """Take a message out of the queue.

        Raises:
            NotFound: Code ``unknown_message``: it does not wait (any more).
        """
        self._apply(session_id, QueuedMessageDeleted(message_id))

    # --- control

    def steer(
        self,
        session_id: str,
        *,
        message_ids: tuple[str, ...] | None = None,
        text: str | None = None,
        by: str | None = None,
    ) -> None:
        """End the turn at the next safe step boundary and go on with these messages.

        Args:
            session_id: The session.
            message_ids: Queued messages to go on with; None is all of them.
            text: A further message, queued first.
            by: Who steers.

        Raises:
            NotFound: Code ``unknown_message``.
            Conflict: Code ``nothing_to_steer``.
        """
        sent = None
        if text is not None:
            sent = self.send_message(session_id, text)
            if not sent.queued:
                return
        while True:
            loaded = self._store.load(session_id)
            waiting = tuple(item.id for item in loaded.state.queue)
            if sent is not None and sent.message_id not in waiting:
                return  # The turn ended meanwhile, and the next one has taken the text up.
            chosen = waiting if message_ids is None else message_ids
            if message_ids is not None and sent is not None:
                chosen = (*chosen, sent.message_id)
            steered = TurnSteered(chosen, by)
            if self._store.try_apply(steered, loaded, actor=self._actor) is not None:
                return

    def cancel_turn(
        self, session_id: str, *, turn_id: str | None = None, by: str | None = None
    ) -> None:
        """Stop the open turn at the next safe step boundary.

        Raises:
            Conflict: Codes ``no_open_turn`` and ``turn_ended`` (`turn_id` names another turn).
        """
        self._apply(session_id, TurnCancelled(by=by, turn_id=turn_id))

    # --- decisions

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
        """Approve or reject a call. The first decision wins; the same again changes nothing.

        Args:
            session_id: The session.
            call_id: The call.
            verb: Approve or reject.
            by: Who decides.
            note: Reaches the model with a rejection.
            digest: Digest of what was shown; None is whatever is asked now.

        Returns:
            The call after the decision.

        Raises:
            NotFound: Code ``unknown_call``.
            Conflict: Codes ``already_decided``, ``changed``, ``not_awaiting_approval``.
            InvalidRequest: Code ``note_too_long``.
        """
        note = _checked_note(note)
        while True:
            loaded = self._store.load(session_id)
            call = loaded.state.call(call_id)
            if call is None:
                return self._decided_earlier(session_id, call_id, verb)
            decided = ApprovalDecided(call_id, verb, by, digest or call.digest, note)
            state = self._store.try_apply(decided, loaded, actor=self._actor)
            if state is not None:
                return self._reader.calls(state, [call_id])[0]

    def _decided_earlier(self, session_id: str, call_id: str, verb: DecisionVerb) -> CallRecord:
        record = self._reader.call(session_id, call_id)
        if record.decision is None:
            raise Conflict(
                f"Call {call_id} is not waiting for an approval; it is {record.status.value}.",
                code="not_awaiting_approval",
            )
        if record.decision.verb is not verb:
            raise Conflict(
                f"Call {call_id} was already {record.decision.describe()}.", code="already_decided"
            )
        return record

    def answer(self, session_id: str, call_id: str, answer: JsonValue, *, by: str) -> CallRecord:
        """Answer a question of the agent. The first answer wins.

        Args:
            session_id: The session.
            call_id: The call of ``ask_user``.
            answer: A text, a number, true or false, or any other JSON value but null. One of the choices
                where the question offers some.
            by: Who answers.

        Returns:
            The call with its answer.

        Raises:
            NotFound: Code ``unknown_call``.
            Conflict: Codes ``already_answered``, ``not_awaiting_answer``.
            InvalidRequest: Codes ``no_answer``, ``not_a_choice``, ``answer_too_large``.
        """
        record = self._reader.call(session_id, call_id)
        if record.status is not CallStatus.AWAITING_ANSWER:
            raise _not_to_be_answered(record)
        event = QuestionAnswered(call_id, self._checked_answer(record, answer), by)
        try:
            state = self._apply(session_id, event)
        except NotFound:
            raise _not_to_be_answered(self._reader.call(session_id, call_id)) from None
        return self._reader.calls(state, [call_id])[0]

    def _checked_answer(self, record: CallRecord, answer: JsonValue) -> JsonValue:
        value = to_json_value(answer)
        if value is None:
            raise InvalidRequest("The answer is null; send a value.", code="no_answer")
        size, limit = len(dump_json(value).encode()), self._settings.message_max_bytes
        if size > limit:
            raise InvalidRequest(
                f"The answer has {size:,} bytes; the limit is {limit:,}.", code="answer_too_large"
            )
        choices = parse_choices(record.arguments)
        if choices and value not in choices:
            raise InvalidRequest(
                f"The answer must be one of: {', '.join(choices)}.", code="not_a_choice"
            )
        return value

    def execute_plan(self, session_id: str, *, revision: int, by: str | None = None) -> None:
        """Let the agent carry out its plan, as it was reviewed.

        Args:
            session_id: The session.
            revision: The revision that was reviewed.
            by: Who has it executed.

        Raises:
            Conflict: Codes ``stale_plan`` (the plan has another revision now), ``no_plan``,
                ``plan_completed``, ``turn_running``.
        """
        self._apply(session_id, PlanExecuted(revision, by))

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
        """Say how a call with an unknown outcome ended.

        Raises:
            NotFound: Code ``unknown_call``.
            Conflict: Code ``not_unknown``.
            InvalidRequest: Code ``note_too_long``.
        """
        self._reader.call(session_id, call_id)
        kept = bounded_value(to_json_value(result), self._settings.result_kept_bytes)
        event = CallReconciled(call_id, succeeded, by, kept, _checked_note(note))
        state = self._apply(session_id, event)
        return self._reader.calls(state, [call_id])[0]

    def check_call(self, session_id: str, call_id: str, *, by: str) -> CallRecord:
        """Have a call with an unknown outcome looked up at its provider now; one look-up goes on at a time.

        Raises:
            NotFound: Code ``unknown_call``.
            Conflict: Codes ``not_unknown`` and ``not_checkable``.
        """
        self._reader.call(session_id, call_id)
        state = self._apply(session_id, CheckRequested(call_id, by))
        return self._reader.calls(state, [call_id])[0]

    def _apply(self, session_id: str, event: Input) -> SessionState:
        return self._store.apply(session_id, event, actor=self._actor)[0]

    # --- audit log

    def record(self, entry: AuditEntry) -> None:
        """Log an act that changes no session (a login, a refusal) in the audit log."""
        self._audit.record(entry)

    def audit(
        self, *, session_id: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> AuditPage:
        """Read the audit log, newest first; `InvalidRequest` (``invalid_cursor``) for a bad cursor."""
        return self._audit.page(session_id, cursor, limit)

    def check_rate(self, what: Limited, who: str) -> None:
        """Count something that a client does over the web; `RateLimited` when it is too much."""
        self._limits.check(what, who)

    # --- reading

    def snapshot(self, session_id: str) -> Snapshot:
        """Read everything a page needs, in one consistent moment."""
        return self._reader.snapshot(session_id)

    def messages(
        self, session_id: str, *, before: int | None = None, limit: int = 200
    ) -> MessagePage:
        """Read the `limit` messages before seq `before`, oldest first."""
        return self._reader.messages(session_id, before, limit)

    def call(self, session_id: str, call_id: str) -> CallRecord:
        """Read one call; `NotFound` (``unknown_call``) when there is none."""
        return self._reader.call(session_id, call_id)

    def steps(self, session_id: str) -> tuple[StepRecord, ...]:
        """Read the step history, oldest first."""
        return self._reader.steps(session_id)

    def events(
        self, session_id: str, *, after: str, block_ms: int = 0, limit: int = 200
    ) -> EventBatch:
        """Read live events after a position, waiting up to `block_ms` for the first.

        Args:
            session_id: The session; it is not checked to exist.
            after: A snapshot's position or a stored event's id.
            block_ms: Milliseconds to wait, at most 5,000.
            limit: Most events to return.
        """
        return self._reader.events(session_id, after, min(block_ms, 5_000), limit)

    def event_watch(self) -> EventWatch:
        """Make what waits for events of many sessions on one connection; one thread may wait with it."""
        return EventWatch(self._store.client)

    def list_sessions(
        self,
        *,
        status: SessionStatus | None = None,
        agent: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> SessionPage:
        """List sessions, the last active first; `InvalidRequest` (``invalid_cursor``) for a bad cursor."""
        return self._lists.sessions(status, agent, cursor, limit)

    def approvals(self, *, limit: int = 100) -> tuple[ApprovalItem, ...]:
        """List the calls that wait for a decision, the oldest first."""
        return self._lists.approvals(limit)

    def unknown_outcomes(self, *, limit: int = 100) -> tuple[ApprovalItem, ...]:
        """List the calls whose outcome is unknown, the oldest first."""
        return self._lists.unknown_outcomes(limit)

    def agents(self) -> tuple[AgentInfo, ...]:
        """List the agents that workers announced."""
        return self._lists.agents()

    def workers(self) -> tuple[WorkerInfo, ...]:
        """List the workers seen in the last 15 seconds."""
        with store_errors():
            seconds, _ = self._store.client.time()
        return self._lists.workers(seconds * 1000)


def _checked_note(note: str | None) -> str | None:
    note = clean_text(note).strip() if note else None
    if note and len(note) > _NOTE_MAX_CHARACTERS:
        raise InvalidRequest(
            f"The note has {len(note)} characters; the limit is {_NOTE_MAX_CHARACTERS}.",
            code="note_too_long",
        )
    return note or None


def _require_model(name: str, agent: AgentInfo | None, model: str) -> None:
    models = () if agent is None else agent.models
    if model not in models:
        has = ", ".join(models) or "none, for no worker has announced it"
        raise InvalidRequest(
            f"Agent {name} has no model {model!r}; it has {has}.", code="unknown_model"
        )


def _require_planning(name: str, agent: AgentInfo | None) -> None:
    if agent is None or not agent.plan_mode_enabled:
        raise InvalidRequest(
            f"Agent {name} has no plan mode; send the message without plan_mode.",
            code="plan_mode_unavailable",
        )


def _not_to_be_answered(record: CallRecord) -> Conflict:
    if record.answered_by is not None:
        return Conflict(
            f"Question {record.id} was answered already, by {record.answered_by}.",
            code="already_answered",
        )
    return Conflict(
        f"Call {record.id} is not waiting for an answer; it is {record.status.value}.",
        code="not_awaiting_answer",
    )


def _sent(state: SessionState, message_id: str) -> SentMessage:
    return SentMessage(
        message_id=message_id, queued=any(item.id == message_id for item in state.queue)
    )


def _bytes_of(images: Sequence[Image]) -> dict[str, bytes]:
    return {image.reference.id: image.data for image in images}
