"""What must be true after the storm, of every session, call, effect, index and key."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from celeriac.connectors.history import problems_of
from celeriac.sessions.calls import DID_NOT_RUN, CallRecord, CallStatus, DecisionVerb, ToolEffect
from celeriac.sessions.client import SessionClient
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.model import ModelRequest
from celeriac.sessions.snapshot import Snapshot, StepRecord
from celeriac.sessions.state import SessionStatus, StepName
from tests.chaos.hands import PERSON
from tests.chaos.ledger import Entry, Ledger
from tests.chaos.people import Talk

__all__ = ["Books", "Fault", "Story", "faults_of", "read_story"]

_CALL_STEPS = {StepName.CALL_TOOL, StepName.CALL_SINGLE_ATTEMPT_TOOL}
_LATE = "late result"
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

    @staticmethod
    def read(ledger: Ledger) -> Books:
        """Read it as it is now."""
        books = Books()
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
    faults = [
        Fault(session_id, what)
        for check in (_end_faults, _said_faults, _history_faults, _turn_faults, _step_faults)
        for what in check(story)
    ]
    attempts = defaultdict(list)
    for step in story.steps:
        if step.call_id is not None:
            attempts[step.call_id].append(step)
    for call in story.calls:
        found = [
            *_effect_faults(call, books.entered[call.id], books.effects[call.id]),
            *_person_faults(story.talk, call),
            *_attempt_faults(call, attempts[call.id]),
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


# --- calls


def _effect_faults(
    call: CallRecord, entered: Sequence[Entry], effects: Sequence[Entry]
) -> Iterator[str]:
    """Compare what is recorded with what really happened."""
    writes = call.effect is not ToolEffect.READ
    if call.effect is ToolEffect.NON_IDEMPOTENT_WRITE and max(len(entered), len(effects)) > 1:
        yield f"DOUBLE: a single-attempt write was entered {len(entered)} times, and happened {len(effects)} times"
    if {entry.key for entry in (*entered, *effects)} - {call.id}:
        yield f"its attempts have other keys: {[entry.key for entry in entered]}"
    status = call.status
    by_person = call.reconciled_by not in {None, _LATE}
    if status is CallStatus.SUCCEEDED and entered and not (effects or not writes):
        yield "it succeeded, and nothing happened"
    if status is CallStatus.SUCCEEDED and not entered and not _is_built_in(call):
        yield "it succeeded, and its tool was never entered"
    if status is CallStatus.FAILED:
        yield from _failed_faults(call, entered, effects, by_person=by_person)
    if status is CallStatus.REJECTED and entered:
        yield "it was rejected, and its tool was entered"
    if status is CallStatus.CANCELLED and writes and entered:
        yield "the write was cancelled as not run, and its tool was entered"
    if call.requires_approval and entered and not _approved(call):
        yield f"it ran without an approval: {call.decision}"


def _failed_faults(
    call: CallRecord, entered: Sequence[Entry], effects: Sequence[Entry], *, by_person: bool
) -> Iterator[str]:
    error = call.error or ""
    if error.startswith(DID_NOT_RUN) and entered:
        yield "it says that the tool did not run, and the tool was entered"
    if not error.startswith(DID_NOT_RUN) and call.attempts == 0 and not by_person:
        yield f"no attempt of it was made, and it does not say so: {error}"
    if effects and not by_person:
        yield f"it is recorded as failed, and it happened: {error}"
    writes = call.effect is not ToolEffect.READ
    if writes and not by_person and not error.startswith((DID_NOT_RUN, "planned: ")):
        yield f"a write was recorded as failed that may have happened: {error}"


def _is_built_in(call: CallRecord) -> bool:
    return call.tool in {"ask_user", "durable_wait", "write_todos"}


def _approved(call: CallRecord) -> bool:
    return call.decision is not None and call.decision.verb is DecisionVerb.APPROVE


def _person_faults(talk: Talk, call: CallRecord) -> Iterator[str]:
    verdict = talk.verdicts.get(call.id)
    if verdict is not None and (call.decision is None or _approved(call) is not verdict):
        yield f"its person's decision (approved: {verdict}) is not on record: {call.decision}"
    if verdict is False and call.status is not CallStatus.REJECTED:
        yield f"it was rejected, and is {call.status.value}"
    if call.reconciled_by == PERSON:
        said = talk.reconciled.get(call.id)
        if said is not (call.status is CallStatus.SUCCEEDED):
            yield f"its person said that it happened: {said}; it is {call.status.value}"
    elif call.reconciled_by not in {None, _LATE}:
        yield f"it was reconciled by {call.reconciled_by}"


def _attempt_faults(call: CallRecord, records: Sequence[StepRecord]) -> Iterator[str]:
    """Compare a call's record with the history of its steps."""
    made = [one for one in records if one.name in _CALL_STEPS and one.status != "returned"]
    claimed = [one for one in made if one.worker is not None]
    last = made[-1].status if made else None
    if call.effect is ToolEffect.NON_IDEMPOTENT_WRITE and len(claimed) > 1:
        yield f"a single-attempt write was claimed {len(claimed)} times"
    if call.attempts > len(claimed):
        yield f"it counts {call.attempts} attempts, its history {len(claimed)}"
    if (call.status is CallStatus.OUTCOME_UNKNOWN or call.reconciled_by) and not claimed:
        yield "its outcome was unknown, and no worker ever had it"
    if last not in _last_words(call):
        yield f"it is {call.status.value}, but its last attempt {last}"
    waits = [one.status for one in records if one.name is StepName.AWAIT_TOOL_APPROVAL]
    if call.status is CallStatus.REJECTED and waits != ["rejected"]:
        yield f"it was rejected, but its waits ended {waits}"
    if _approved(call) and waits != ["approved"]:
        yield f"it was approved, but its waits ended {waits}"


def _last_words(call: CallRecord) -> set[str | None]:
    """How the history may name the last attempt of a call that ended so; None: there was none."""
    if call.reconciled_by is not None:
        return {"outcome_unknown", "cancelled"}
    if _is_built_in(call):
        return {None}
    words: dict[CallStatus, set[str | None]] = {
        CallStatus.SUCCEEDED: {"succeeded"},
        CallStatus.FAILED: {"failed", "lost", None},
        CallStatus.OUTCOME_UNKNOWN: {"outcome_unknown", "cancelled"},
        CallStatus.CANCELLED: {"cancelled", None},
    }
    return words.get(call.status, {None})
