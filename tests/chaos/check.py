"""What must be true after the storm, of every session, call, effect, index and key."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from celeriac.connectors.history import problems_of
from celeriac.sessions.calls import CallRecord, CallStatus
from celeriac.sessions.client import SessionClient
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.model import ModelRequest
from celeriac.sessions.snapshot import Snapshot, StepRecord
from celeriac.sessions.state import SessionStatus, StepName
from tests.chaos.check_calls import attempt_faults, effect_faults, person_faults, result_faults
from tests.chaos.ledger import Entry, Ledger
from tests.chaos.people import Talk
from tests.chaos.providers import booked

__all__ = ["Books", "Fault", "Story", "faults_of", "read_story"]

_FAILED_TURN = re.compile(
    r"This turn failed: the model call failed 3 times; .*(was lost|planned: )"
)


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that must not be."""

    session_id: str
    what: str
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Books:
    """The ledger, by call."""

    entered: dict[str, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    effects: dict[str, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    booked: dict[str, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    """What is in the database of bookings, by label."""

    def of(self, call: CallRecord) -> tuple[Sequence[Entry], Sequence[Entry]]:
        """Return the attempts that were entered for a call, and its effects."""
        if call.tool == "sql_book":
            arguments = call.arguments if isinstance(call.arguments, dict) else {}
            parameters = arguments.get("parameters")
            label = parameters.get("label") if isinstance(parameters, dict) else None
            rows = [replace(row, key=call.id) for row in self.booked[str(label)]]
            return rows, rows
        return self.entered[call.id], self.effects[call.id]

    @staticmethod
    def read(ledger: Ledger, bookings: Path | None = None) -> Books:
        """Read it as it is now."""
        books = Books()
        for booking in booked(bookings) if bookings else ():
            books.booked[booking.label].append(booking)
        for entry in ledger.entered():
            books.entered[entry.call_id].append(entry)
        for effect in ledger.effects():
            books.effects[effect.call_id].append(effect)
        return books


@dataclass(frozen=True, slots=True)
class Story:
    """All that is stored of one session, and what its person knows."""

    talk: Talk
    snapshot: Snapshot
    messages: Sequence[Message]
    calls: Sequence[CallRecord]
    steps: Sequence[StepRecord]


def read_story(client: SessionClient, talk: Talk) -> Story:
    """Read a session as a whole, however long it is."""
    messages: list[Message] = []
    calls: list[CallRecord] = []
    before: int | None = None
    while True:
        page = client.messages(talk.session_id, before=before)
        messages[:0], calls[:0] = page.messages, page.calls
        if not page.has_older:
            break
        before = page.messages[0].seq
    snapshot = client.snapshot(talk.session_id)
    return Story(talk, snapshot, messages, calls, client.steps(talk.session_id))


def faults_of(story: Story, books: Books) -> list[Fault]:
    """List what is wrong with a session that has come to its end."""
    session_id = story.talk.session_id
    faults = [Fault(session_id, what) for check in _CHECKS for what in check(story)]
    attempts = defaultdict(list)
    for step in story.steps:
        if step.call_id is not None:
            attempts[step.call_id].append(step)
    for call in story.calls:
        found = [
            *effect_faults(call, *books.of(call)),
            *person_faults(story.talk, call),
            *attempt_faults(call, attempts[call.id]),
            *result_faults(call, attempts[call.id]),
        ]
        faults += [Fault(session_id, what, call.id) for what in found]
    return faults


# --- sessions


def _end_faults(story: Story) -> Iterator[str]:
    snapshot = story.snapshot
    if snapshot.status is not SessionStatus.IDLE or snapshot.queue:
        yield f"it ended {snapshot.status.value} with {len(snapshot.queue)} queued messages"
    unknown = {call.id for call in story.calls if call.status is CallStatus.OUTCOME_UNKNOWN}
    if unknown != set(snapshot.unknown_calls):
        yield f"its unknown calls are {unknown}, but it lists {set(snapshot.unknown_calls)}"
    unsettled = [call.id for call in story.calls if not call.status.settled]
    if unsettled:
        yield f"it is idle and has unsettled calls: {unsettled}"


def _said_faults(story: Story) -> Iterator[str]:
    """Each acknowledged message is there once, in order, unless its person deleted it."""
    talk = story.talk
    found = [m for m in story.messages if m.role is Role.USER and m.message_id is not None]
    counts = Counter(str(message.message_id) for message in found)
    yield from (f"message {one} is there {n} times" for one, n in counts.items() if n > 1)
    yield from (f"deleted message {one} is there" for one in talk.deleted & counts.keys())
    missing = talk.said.keys() - counts.keys() - talk.deleted - talk.maybe_deleted
    if missing:
        yield f"acknowledged messages are lost: {sorted(missing)}"
    for message in found:
        if talk.said.get(str(message.message_id)) != message.text:
            yield f"message {message.message_id} was never said so: {message.text!r}"
    kept = [one for one in counts if one not in talk.steered]
    if kept != [one for one in talk.said if one in set(kept)]:
        yield f"messages are out of order: {kept}"


def _history_faults(story: Story) -> Iterator[str]:
    if [message.seq for message in story.messages] != list(range(len(story.messages))):
        yield f"its messages are numbered {[message.seq for message in story.messages]}"
    if not story.messages:
        return
    covered = [m.covers_before for m in story.messages if m.covers_before is not None]
    if covered != sorted(set(covered)):
        yield f"its summaries cover what is before {covered}"
    request = ModelRequest(
        model=story.snapshot.model,
        instructions="",
        # A summary stands for what is before it, in requests alone; the story has all of it.
        messages=[message for message in story.messages if message.role is not Role.SUMMARY],
        tools=(),
        session_id=story.snapshot.session_id,
        turn_id="",
        attempt=1,
        timeout_seconds=1,
    )
    yield from problems_of(request)
    referred = [call.id for message in story.messages for call in message.calls]
    if sorted(referred) != sorted(call.id for call in story.calls):
        yield "the calls of its messages are not the calls of its records"


def _turn_faults(story: Story) -> Iterator[str]:
    controlled = {s.turn_id for s in story.steps if s.name is StepName.APPLY_TURN_CONTROL}
    last: dict[str, Message] = {}
    for message in story.messages:
        if message.turn_id is None:
            yield f"message {message.seq} belongs to no turn"
            continue
        if message.turn_id not in last and len(last) + 1 != int(message.turn_id[1:]):
            yield f"turn {message.turn_id} is the {len(last) + 1}th"
        last[message.turn_id] = message
        if message.text.startswith("This turn failed") and not _FAILED_TURN.match(message.text):
            yield message.text
    for turn_id, message in last.items():
        answered = message.role is Role.NOTICE or (
            message.role is Role.ASSISTANT and not message.calls
        )
        if not answered and turn_id not in controlled:
            yield f"turn {turn_id} ends with message {message.seq}, a {message.role.value} message"


def _step_faults(story: Story) -> Iterator[str]:
    """Within the history each step has its attempts once each, in order."""
    attempts: dict[str, list[StepRecord]] = defaultdict(list)
    for record in story.steps:
        if record.ended_at < record.started_at:
            yield f"step {record.id} ended before it began"
        if record.status != "returned":
            attempts[record.id].append(record)
    for step_id, records in attempts.items():
        if len({record.name for record in records}) > 1:
            yield f"step {step_id} is of several kinds"
        numbers = [record.attempt for record in records]
        if numbers != sorted(set(numbers)):
            yield f"step {step_id} has the attempts {numbers}"
    begun = sum(record.name is StepName.AWAIT_USER_MESSAGE for record in story.steps)
    turns = len({message.turn_id for message in story.messages})
    if begun != turns:
        yield f"{begun} turns began, {turns} have messages"


def _count_faults(story: Story) -> Iterator[str]:
    """What is summed up over the session agrees with its parts."""
    recorded = sum(step.usage is not None for step in story.steps)
    counted = story.snapshot.usage.model_calls
    if counted != recorded:
        yield f"its usage counts {counted} model calls; {recorded} are in its history"
    plans = sum(
        call.tool == "write_todos" and call.status is CallStatus.SUCCEEDED for call in story.calls
    )
    revision = story.snapshot.plan.revision if story.snapshot.plan else 0
    if plans != revision:
        yield f"{plans} plans were written, and the plan has revision {revision}"


def _told_faults(story: Story) -> Iterator[str]:
    """Who was told that an outcome is unknown is told at the next turn how it ended after all."""
    told = {
        message.call_id: message
        for message in story.messages
        if message.status is CallStatus.OUTCOME_UNKNOWN
    }
    notices = [message.text for message in story.messages if message.role is Role.NOTICE]
    began = [s.started_at for s in story.steps if s.name is StepName.AWAIT_USER_MESSAGE]
    for call in story.calls:
        if call.reconciled_by is None or call.id not in told or call.settled_at is None:
            continue
        next_turn = any(at > call.settled_at for at in began)
        if next_turn and not any(call.id in notice for notice in notices):
            yield f"the model was never told how {call.id} ended"


_CHECKS = (
    _end_faults,
    _said_faults,
    _history_faults,
    _turn_faults,
    _step_faults,
    _count_faults,
    _told_faults,
)
