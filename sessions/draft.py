"""A change in the making: the next state and everything that is committed with it.

`Draft` has the moves that every rule is made of (open a step, end it, append a message, settle a call). It
knows no rule about what happens next; those are in `advance` and its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from pydantic import JsonValue

from celeriac.sessions.calls import CallOutcome, CallRequest, CallStatus, LateResult
from celeriac.sessions.events import EventType, LiveEvent
from celeriac.sessions.images import ImageReference
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.plans import Plan
from celeriac.sessions.snapshot import StepRecord
from celeriac.sessions.state import (
    NEVER_SENT,
    OpenCall,
    SessionState,
    Step,
    StepName,
    StepTiming,
    Turn,
)

__all__ = ["Change", "Draft", "NewMessage", "Rules", "TextSource"]


@dataclass(frozen=True, slots=True)
class Rules:
    """The numbers that the rules use; times in milliseconds."""

    lease_ms: int = 8_000
    resend_ms: int = 3_000
    resend_max_ms: int = 60_000
    model_attempts: int = 3
    retry_base_ms: int = 1_000
    retry_max_ms: int = 30_000
    provider_wait_max_ms: int = 900_000


class TextSource(Enum):
    """Where the text of a new message is, when the change does not carry it."""

    GIVEN = "given"
    OUTCOME = "outcome"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to append; its text may have to be fetched from a call's outcome or from the queue."""

    message: Message
    source: TextSource = TextSource.GIVEN
    shown_bytes: int | None = None


@dataclass(slots=True)
class Change:
    """One commit: all of it is stored, or nothing."""

    state: SessionState
    messages: list[NewMessage] = field(default_factory=list)
    requests: list[CallRequest] = field(default_factory=list)
    outcomes: dict[str, CallOutcome] = field(default_factory=dict)
    late_results: dict[str, LateResult] = field(default_factory=dict)
    history: list[StepRecord] = field(default_factory=list)
    events: list[LiveEvent] = field(default_factory=list)
    queue_texts: dict[str, str] = field(default_factory=dict)
    queue_images: dict[str, tuple[ImageReference, ...]] = field(default_factory=dict)
    queue_dropped: list[str] = field(default_factory=list)
    message_ids: list[str] = field(default_factory=list)
    """Client message ids now taken, so that the same one again changes nothing."""
    snapshot: str | None = None
    """The snapshot of the harness from now on, as it is kept; empty deletes it, None leaves it."""
    send: list[Step] = field(default_factory=list)
    """Steps whose message goes to the broker now."""


class Draft:
    """Builds a `Change` from a state.

    Args:
        state: The state before.
        now: Unix milliseconds.
        rules: The numbers that the rules use.
    """

    def __init__(self, state: SessionState, now: int, rules: Rules) -> None:
        self.now = now
        self.rules = rules
        self.state = state
        self.change = Change(state)

    def finish(self) -> Change:
        """Return the change."""
        self.change.state = self.state
        return self.change

    def update(self, **values: object) -> None:
        """Replace fields of the state."""
        self.state = self.state.evolve(**values)

    # --- turn and calls

    @property
    def turn(self) -> Turn:
        """The open turn; only for rules that know there is one."""
        turn = self.state.turn
        if turn is None:
            raise AssertionError("a rule of an open turn was applied without one")
        return turn

    def update_turn(self, **values: object) -> None:
        """Replace fields of the open turn."""
        self.update(turn=self.turn.evolve(**values))

    def update_call(self, call_id: str, **values: object) -> OpenCall:
        """Replace fields of an open call and return it."""
        calls = tuple(
            call.evolve(**values) if call.id == call_id else call for call in self.turn.calls
        )
        self.update_turn(calls=calls)
        call = self.state.call(call_id)
        if call is None:
            raise AssertionError(f"no open call {call_id}")
        return call

    def settle(
        self,
        call: OpenCall,
        status: CallStatus,
        *,
        result: JsonValue = None,
        error: str | None = None,
        skipped: bool = False,
        token: int = 0,
        answered_by: str | None = None,
        cancelled_while: CallStatus | None = None,
    ) -> None:
        """Record how a call ended; the fields are those of `CallOutcome`."""
        self.change.outcomes[call.id] = CallOutcome(
            status=status,
            result=result,
            error=error,
            skipped=skipped,
            token=token,
            answered_by=answered_by,
            cancelled_while=cancelled_while,
            attempts=call.attempts,
            settled_at=self.now,
            decision=call.decision,
        )
        self.update_call(call.id, status=status)
        self.call_event(call.id, call.tool, status)

    def set_plan(self, plan: Plan) -> None:
        """Replace the plan."""
        self.update(plan=plan)
        self.event(EventType.PLAN_CHANGED, revision=plan.revision, status=plan.status.value)

    # --- steps

    def open_step(
        self,
        name: StepName,
        *,
        call_id: str | None = None,
        queue: str | None = None,
        attempt: int = 1,
        due: int | None = None,
        delay_ms: int = 0,
    ) -> Step:
        """Open a step: a wait (with the time it ends, if any) or work that is sent now, or after a delay."""
        number = self.state.steps_made + 1
        if name.waits:
            timing = StepTiming(not_before=self.now, due=due, sends=NEVER_SENT)
        elif delay_ms:
            at = self.now + delay_ms
            timing = StepTiming(not_before=at, due=at)
        else:
            timing = self.sent_now()
        step = Step(
            id=f"s{number}",
            name=name,
            call_id=call_id,
            attempt=attempt,
            queue=queue,
            created_at=self.now,
            timing=timing,
        )
        self.update(steps=(*self.state.steps, step), steps_made=number)
        if timing.sends > 0:
            self.change.send.append(step)
        return step

    def sent_now(self) -> StepTiming:
        """Return the timing of a step whose message goes to the broker with this commit."""
        return StepTiming(not_before=self.now, due=self.now + self.rules.resend_ms, sends=1)

    def replace_step(self, step: Step) -> None:
        """Put a changed step in the place of the one with its id."""
        self.update(steps=tuple(step if old.id == step.id else old for old in self.state.steps))

    def end_step(
        self,
        step: Step,
        status: str,
        *,
        error: str | None = None,
        note: str | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        """Close a step and write it into the history."""
        self.update(steps=tuple(old for old in self.state.steps if old.id != step.id))
        self.attempt_ended(step, status, error=error, note=note, facts=facts)

    def attempt_ended(
        self,
        step: Step,
        status: str,
        *,
        error: str | None = None,
        note: str | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        """Write one attempt (or wait) of a step into the history, with the facts of its model call if any."""
        record = StepRecord(
            id=step.id,
            name=step.name,
            status=status,
            turn_id=self.state.turn.id if self.state.turn else None,
            call_id=step.call_id,
            tool=self._tool_of(step.call_id),
            attempt=step.attempt,
            started_at=step.timing.claimed_at or step.created_at,
            ended_at=self.now,
            worker=step.timing.owner or None,
            error=error,
            note=note,
        )
        self.change.history.append(record.model_copy(update=facts) if facts else record)
        self.event(
            EventType.STEP_ENDED,
            step_id=step.id,
            name=step.name.value,
            call_id=step.call_id,
            status=status,
            error=error,
        )

    def _tool_of(self, call_id: str | None) -> str | None:
        if call_id is None:
            return None
        known = self.state.call(call_id) or self.state.unknown_call(call_id)
        return known.tool if known else None

    def transition(
        self, name: StepName, *, status: str = "succeeded", note: str | None = None
    ) -> None:
        """Write a step that takes no time (it is decided in this very commit) into the history."""
        number = self.state.steps_made + 1
        self.update(steps_made=number)
        self.change.history.append(
            StepRecord(
                id=f"s{number}",
                name=name,
                status=status,
                turn_id=self.state.turn.id if self.state.turn else None,
                started_at=self.now,
                ended_at=self.now,
                note=note,
            )
        )

    # --- messages and events

    def append(
        self,
        role: Role,
        *,
        text: str = "",
        source: TextSource = TextSource.GIVEN,
        shown_bytes: int | None = None,
        **fields: object,
    ) -> Message:
        """Append a message to the conversation."""
        values: dict[str, object] = {
            "seq": self.state.next_seq,
            "role": role,
            "text": text,
            "created_at": self.now,
            "turn_id": self.state.turn.id if self.state.turn else None,
            **fields,
        }
        message = Message.model_validate(values)
        self.change.messages.append(NewMessage(message, source, shown_bytes))
        self.update(next_seq=message.seq + 1, updated_at=self.now)
        self.event(EventType.MESSAGE_ADDED, seq=message.seq, role=role.value)
        return message

    def tell_model(self, notice: str) -> None:
        """Keep a notice for the beginning of the next turn."""
        self.update(notices=(*self.state.notices, notice))

    def event(self, kind: EventType, **data: JsonValue) -> None:
        """Publish a live event with the commit."""
        self.change.events.append(LiveEvent(kind, data))

    def call_event(self, call_id: str, tool: str, status: CallStatus) -> None:
        """Tell pages that a call moved on."""
        self.event(EventType.CALL_UPDATED, call_id=call_id, tool=tool, status=status.value)
