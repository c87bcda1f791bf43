"""An in-memory SessionClient: the same interface and the same refusals, moved by the test itself."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from celeriac.sessions.built_in import parse_choices
from celeriac.sessions.calls import CallRecord, CallStatus, Decision, DecisionVerb, ToolEffect
from celeriac.sessions.errors import Conflict, InvalidRequest, NotFound
from celeriac.sessions.events import EventBatch, EventType, LiveEvent, StoredEvent
from celeriac.sessions.ids import new_call_id, new_message_id, new_session_id
from celeriac.sessions.images import Image, ImageReference, read_image
from celeriac.sessions.messages import CallReference, Message, Role
from celeriac.sessions.plans import Plan, PlanStatus, Todo, execution_text
from celeriac.sessions.snapshot import (
    AgentInfo,
    ApprovalItem,
    MessagePage,
    QueuedMessageView,
    SentMessage,
    SessionCreated,
    SessionPage,
    SessionSummary,
    Snapshot,
    StepRecord,
    StepView,
    ToolInfo,
    TurnView,
    WorkerInfo,
)
from celeriac.sessions.state import SessionStatus, StepName
from tests.web.fake_audit import FakeAudit
from tests.web.fake_session import WAITS, FakeSession
from tests.web.fake_watch import FakeWatch

NOON = 1_796_040_000_000
MESSAGE_MAX = 1000
IMAGE_MAX = 5000


class FakeClient(FakeAudit):
    def __init__(self) -> None:
        super().__init__()
        self.sessions: dict[str, FakeSession] = {}
        self.touched: list[str] = []
        self.worker_names = ["worker-1"]
        self.stuck_workers: set[str] = set()
        self.trimmed_before = 0
        self.images: dict[str, bytes] = {}
        self.tool_names = ["cancel_order"]
        self.missing_tools: list[str] = []
        self._changed = threading.Condition()
        self._clock = itertools.count(NOON, 1000)

    # --- what a test does in place of a worker

    def publish(self, sid: str, kind: EventType, data: Mapping[str, JsonValue]) -> None:
        with self._changed:
            session = self.sessions[sid]
            number = len(session.events) + 1
            session.events.append(StoredEvent(f"{number}-0", LiveEvent(kind, data).encode()))
            self._changed.notify_all()

    def delta(self, sid: str, text: str, *, step: str = "s1", attempt: int = 1) -> None:
        data: dict[str, JsonValue] = {"step_id": step, "attempt": attempt, "text": text}
        self.publish(sid, EventType.TEXT_DELTA, data)

    def say(
        self,
        sid: str,
        text: str,
        *,
        calls: tuple[CallRecord, ...] = (),
        role: Role = Role.ASSISTANT,
        reasoning: str = "",
    ) -> None:
        session = self.sessions[sid]
        references = tuple(CallReference(id=c.id, tool=c.tool, arguments="{}") for c in calls)
        for call in calls:
            session.calls[call.id] = call
        self._add(session, role, text, calls=references, reasoning=reasoning)

    def reply(self, sid: str, text: str) -> None:
        session = self.sessions[sid]
        session.turn_id = None
        self.say(sid, text)
        self.publish(sid, EventType.TURN_ENDED, {"turn_id": "t1", "state": "answered"})

    def ask(
        self,
        sid: str,
        tool: str = "cancel_order",
        arguments: JsonValue = None,
        *,
        effect: ToolEffect = ToolEffect.NON_IDEMPOTENT_WRITE,
        status: CallStatus = CallStatus.AWAITING_APPROVAL,
        text: str = "I would like to do this.",
        **fields: object,
    ) -> CallRecord:
        record = CallRecord.model_validate(
            {
                "id": new_call_id(),
                "tool": tool,
                "arguments": {"order_id": "A-1"} if arguments is None else arguments,
                "effect": effect,
                "turn_id": "t1",
                "created_at": next(self._clock),
                "status": status,
                "requires_approval": True,
                "digest": "d1",
                **fields,
            }
        )
        if not status.settled:
            self.sessions[sid].turn_id = "t1"
        self.say(sid, text, calls=(record,))
        return record

    def question(self, sid: str, text: str, *choices: str) -> CallRecord:
        arguments: dict[str, JsonValue] = {"question": text}
        if choices:
            arguments["choices"] = list(choices)
        status = CallStatus.AWAITING_ANSWER
        return self.ask(
            sid, "ask_user", arguments, effect=ToolEffect.READ, status=status, text="", digest=None
        )

    def wait(self, sid: str, until: int, reason: str = "") -> CallRecord:
        return self.ask(
            sid,
            "durable_wait",
            {"seconds": 600, "reason": reason},
            effect=ToolEffect.READ,
            status=CallStatus.AWAITING_TIMER,
            text="",
            waits_until=until,
        )

    def write_plan(self, sid: str, status: PlanStatus, *todos: Todo) -> Plan:
        session = self.sessions[sid]
        revision = session.plan.revision + 1 if session.plan else 1
        session.plan = Plan(revision=revision, status=status, todos=todos, updated_at=NOON)
        data = {"revision": revision, "status": status.value}
        self.publish(sid, EventType.PLAN_CHANGED, data)
        return session.plan

    def change(self, sid: str, call_id: str, **fields: object) -> CallRecord:
        session = self.sessions[sid]
        record = session.calls[call_id].model_copy(update=fields)
        session.calls[call_id] = record
        data = {"call_id": call_id, "tool": record.tool, "status": record.status.value}
        self.publish(sid, EventType.CALL_UPDATED, data)
        return record

    # --- the interface

    def ping(self) -> None:
        self._check()

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
        self._check()
        if agent not in {None, "demo"}:
            raise InvalidRequest(f"There is no agent {agent!r}.", code="unknown_agent")
        session = FakeSession(new_session_id(), "demo", model or "demo/echo")
        self.sessions[session.id] = session
        sent = None
        if message or images:
            sent = self.send_message(
                session.id,
                message or "",
                message_id=message_id,
                plan_mode=plan_mode,
                images=images,
            )
        return SessionCreated(
            session_id=session.id,
            agent=session.agent,
            model=session.model,
            message_id=sent.message_id if sent else None,
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
        session = self._session(session_id)
        if model is not None and model not in self.agents()[0].models:
            raise InvalidRequest("There is no such model.", code="unknown_model")
        shown = tuple(image.reference for image in images)
        self.images |= {image.reference.id: image.data for image in images}
        if not text.strip() and not images:
            raise InvalidRequest("The message is blank.", code="blank_message")
        if len(text.encode()) > MESSAGE_MAX:
            raise InvalidRequest("The message is too large.", code="message_too_large")
        message_id = message_id or new_message_id()
        if message_id in session.taken_ids:
            return SentMessage(message_id=message_id, queued=False)
        session.taken_ids.add(message_id)
        if session.turn_id is not None:
            queued = QueuedMessageView(
                id=message_id,
                created_at=next(self._clock),
                text=text,
                plan_mode=plan_mode,
                model=model,
                images=shown,
            )
            session.queue.append(queued)
            self.publish(session_id, EventType.QUEUE_CHANGED, {"length": len(session.queue)})
            return SentMessage(message_id=message_id, queued=True)
        session.turn_id = "t1"
        session.turns += 1
        session.planning = plan_mode
        session.model = model or session.model
        self._add(session, Role.USER, text, images=shown)
        return SentMessage(message_id=message_id, queued=False)

    def read_image(self, data: bytes, name: str = "") -> Image:
        return read_image(data, name, max_bytes=IMAGE_MAX)

    def image(self, session_id: str, image_id: str) -> bytes:
        self._session(session_id)
        if image_id not in self.images:
            raise NotFound("This session has no such image.", code="unknown_image")
        return self.images[image_id]

    def delete_queued(self, session_id: str, message_id: str) -> None:
        session = self._session(session_id)
        self._queued(session, message_id)
        session.queue = [item for item in session.queue if item.id != message_id]

    def steer(
        self,
        session_id: str,
        *,
        message_ids: tuple[str, ...] | None = None,
        text: str | None = None,
        by: str | None = None,
    ) -> None:
        session = self._session(session_id)
        if not session.queue and text is None:
            raise Conflict("No message is queued.", code="nothing_to_steer")
        for message_id in message_ids or ():
            item = self._queued(session, message_id)
            session.queue.remove(item)
            self._add(session, Role.USER, item.text)

    def cancel_turn(
        self, session_id: str, *, turn_id: str | None = None, by: str | None = None
    ) -> None:
        session = self._session(session_id)
        if session.turn_id is None:
            raise Conflict("No turn is open.", code="no_open_turn")
        for call in session.asking:
            self.change(
                session_id, call.id, status=CallStatus.CANCELLED, cancelled_while=call.status
            )
        session.turn_id = None
        self._add(session, Role.NOTICE, f"Stopped by {by}.")

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
        call = self.call(session_id, call_id)
        if call.decision is not None:
            if call.decision.verb is verb:
                return call
            did = "Approved" if call.decision.verb is DecisionVerb.APPROVE else "Rejected"
            raise Conflict(f"Already {did.lower()} by {call.decision.by}.", code="already_decided")
        if call.status is not CallStatus.AWAITING_APPROVAL:
            raise Conflict("The call does not wait for approval.", code="not_awaiting_approval")
        if digest is not None and digest != call.digest:
            raise Conflict("The call has changed; look at it again.", code="changed")
        decision = Decision(
            verb=verb, by=by, at=next(self._clock), digest=call.digest or "", note=note
        )
        status = CallStatus.RUNNING if verb is DecisionVerb.APPROVE else CallStatus.REJECTED
        return self.change(session_id, call_id, status=status, decision=decision)

    def answer(self, session_id: str, call_id: str, answer: JsonValue, *, by: str) -> CallRecord:
        call = self.call(session_id, call_id)
        if call.status is not CallStatus.AWAITING_ANSWER:
            raise Conflict(f"Already answered by {call.answered_by}.", code="already_answered")
        if isinstance(answer, str) and len(answer) > MESSAGE_MAX:
            raise InvalidRequest("The answer is too large.", code="answer_too_large")
        choices = parse_choices(call.arguments)
        if choices and answer not in choices:
            raise InvalidRequest("That is none of the choices.", code="not_a_choice")
        return self.change(
            session_id,
            call_id,
            status=CallStatus.SUCCEEDED,
            result=answer,
            answered_by=by,
            settled_at=next(self._clock),
        )

    def execute_plan(self, session_id: str, *, revision: int, by: str | None = None) -> None:
        session = self._session(session_id)
        if session.plan is None or session.plan.revision != revision:
            raise Conflict("The plan has another revision now.", code="stale_plan")
        session.turn_id = "t1"
        session.plan = session.plan.model_copy(update={"status": PlanStatus.ACTIVE})
        self._add(session, Role.USER, execution_text(session.plan))

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
        call = self.call(session_id, call_id)
        if call.status is not CallStatus.OUTCOME_UNKNOWN:
            raise Conflict("The outcome is known.", code="not_unknown")
        status = CallStatus.SUCCEEDED if succeeded else CallStatus.FAILED
        return self.change(
            session_id, call_id, status=status, reconciled_by=by, note=note, result=result
        )

    def check_call(self, session_id: str, call_id: str, *, by: str) -> CallRecord:
        call = self.call(session_id, call_id)
        if not call.checkable:
            unknown = call.status is CallStatus.OUTCOME_UNKNOWN
            raise Conflict("No look-up.", code="not_checkable" if unknown else "not_unknown")
        return self.change(session_id, call_id, checking_at=NOON)

    def snapshot(self, session_id: str) -> Snapshot:
        session = self._session(session_id)
        turn = None
        if session.turn_id is not None:
            turn = TurnView(
                id=session.turn_id,
                state="waiting" if session.asking else "running",
                started_at=NOON,
                model_calls=1,
                plan_mode=session.planning,
                usage=session.usage,
                steps=self._steps(session),
            )
        return Snapshot(
            session_id=session.id,
            agent=session.agent,
            model=session.model,
            title=session.title,
            status=session.status,
            created_at=NOON,
            updated_at=NOON,
            turn=turn,
            messages=tuple(
                session.messages[max(-200, session.oldest_seq - len(session.messages)) :]
            ),
            has_older=len(session.messages) - session.oldest_seq > 200,
            oldest_seq=session.oldest_seq,
            calls=tuple(session.calls.values()),
            unknown_calls=(),
            queue=tuple(session.queue),
            plan=session.plan,
            usage=session.usage,
            resume_token=f"{len(session.events)}-0",
            version=1,
        )

    def messages(
        self, session_id: str, *, before: int | None = None, limit: int = 200
    ) -> MessagePage:
        session = self._session(session_id)
        end = len(session.messages) if before is None else before
        start = max(session.oldest_seq, end - limit)
        return MessagePage(
            messages=tuple(session.messages[start:end]),
            calls=tuple(session.calls.values()),
            has_older=start > session.oldest_seq,
            oldest_seq=session.oldest_seq,
        )

    def call(self, session_id: str, call_id: str) -> CallRecord:
        record = self._session(session_id).calls.get(call_id)
        if record is None:
            raise NotFound("There is no such call.", code="unknown_call")
        return record

    def steps(self, session_id: str) -> tuple[StepRecord, ...]:
        self._session(session_id)
        record = StepRecord(
            id="s1", name=StepName.RUN_MODEL, status="succeeded", started_at=NOON, ended_at=NOON
        )
        return (record,)

    def events(
        self, session_id: str, *, after: str, block_ms: int = 0, limit: int = 200
    ) -> EventBatch:
        session = self._session(session_id)
        number = int(after.split("-", maxsplit=1)[0])
        if number < self.trimmed_before or number > len(session.events):
            return EventBatch(reload=True)
        with self._changed:
            self._changed.wait_for(lambda: len(session.events) > number, timeout=block_ms / 1000)
            return EventBatch(events=tuple(session.events[number : number + limit]))

    def event_watch(self) -> FakeWatch:
        return FakeWatch(self.sessions, self._changed)

    def list_sessions(
        self,
        *,
        status: SessionStatus | None = None,
        agent: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> SessionPage:
        self._check()
        if cursor is not None:
            raise InvalidRequest("That is no cursor.", code="invalid_cursor")
        rows = [
            self._summary(session)
            for session in reversed(self.sessions.values())
            if status in {None, session.status}
        ]
        return SessionPage(sessions=tuple(rows[:limit]), cursor=None)

    def approvals(self, *, limit: int = 100) -> tuple[ApprovalItem, ...]:
        return self._items(CallStatus.AWAITING_APPROVAL)

    def unknown_outcomes(self, *, limit: int = 100) -> tuple[ApprovalItem, ...]:
        return self._items(CallStatus.OUTCOME_UNKNOWN)

    def agents(self) -> tuple[AgentInfo, ...]:
        self._check()
        tools = tuple(
            ToolInfo(name=name, description="", effect="read", approval="always")
            for name in self.tool_names
        )
        agent = AgentInfo(
            name="demo",
            description="The demo agent",
            models=("demo/echo", "demo/slow"),
            default_model="demo/echo",
            tools=tools,
            missing_tools=tuple(self.missing_tools),
            plan_mode_enabled="write_todos" in self.tool_names,
            announced_at=NOON,
        )
        return (agent,)

    def workers(self) -> tuple[WorkerInfo, ...]:
        self._check()
        return tuple(
            WorkerInfo(
                name=name,
                seen_at=NOON,
                pid=1,
                host="here",
                queues=(),
                concurrency=1,
                version="0",
                running=0,
                stuck=name in self.stuck_workers,
            )
            for name in self.worker_names
        )

    # --- inside

    def _session(self, session_id: str) -> FakeSession:
        self.touched.append(session_id)
        self._check()
        if session_id not in self.sessions:
            raise NotFound(f"There is no session {session_id!r}.", code="unknown_session")
        return self.sessions[session_id]

    @staticmethod
    def _queued(session: FakeSession, message_id: str) -> QueuedMessageView:
        for item in session.queue:
            if item.id == message_id:
                return item
        raise NotFound("That message is not queued.", code="unknown_message")

    def _add(
        self,
        session: FakeSession,
        role: Role,
        text: str,
        *,
        calls: tuple[CallReference, ...] = (),
        reasoning: str = "",
        images: tuple[ImageReference, ...] = (),
    ) -> None:
        message = Message(
            seq=len(session.messages),
            role=role,
            text=text,
            created_at=next(self._clock),
            calls=calls,
            reasoning=reasoning,
            images=images,
        )
        session.messages.append(message)
        self.publish(session.id, EventType.MESSAGE_ADDED, {"seq": message.seq, "role": role.value})

    @staticmethod
    def _steps(session: FakeSession) -> tuple[StepView, ...]:
        waiting = [
            (WAITS[call.status], call.id, "waiting", call.waits_until) for call in session.asking
        ]
        steps = waiting or [(StepName.RUN_MODEL, "", "running", None)]
        return tuple(
            StepView(
                id=f"s{number}",
                name=name,
                call_id=call_id or None,
                attempt=1,
                state=state,
                since=NOON,
                next_attempt_at=None,
                due=due,
                owner=None,
                last_error=None,
            )
            for number, (name, call_id, state, due) in enumerate(steps)
        )

    def _summary(self, session: FakeSession) -> SessionSummary:
        asking = session.asking
        return SessionSummary(
            session_id=session.id,
            agent=session.agent,
            model=session.model,
            title=session.title,
            status=session.status,
            created_at=NOON,
            updated_at=NOON,
            turns=session.turns,
            waiting_for=f"approval: {asking[0].tool}" if asking else None,
        )

    def _items(self, status: CallStatus) -> tuple[ApprovalItem, ...]:
        self._check()
        return tuple(
            ApprovalItem(
                session_id=session.id,
                agent=session.agent,
                title=session.title,
                call=call,
                since=NOON,
                explanation="I would like to do this.",
            )
            for session in self.sessions.values()
            for call in session.calls.values()
            if call.status is status
        )
