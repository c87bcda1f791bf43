"""The table at the end, and the whole story of what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from celeriac.sessions.calls import DID_NOT_RUN, CallRecord, CallStatus, ToolEffect
from celeriac.sessions.messages import Role
from tests.chaos.check import Books, Fault, Story
from tests.chaos.ledger import Blow, Seen

__all__ = ["Outcome", "story_lines", "table_lines"]

_MOST_STORIES = 5
_MOST_FAULTS = 50


@dataclass
class Outcome:
    """What one run of the storm came to."""

    seed: int
    seconds: float
    stories: Sequence[Story]
    books: Books
    blows: Sequence[Blow]
    requests: Sequence[Seen]
    acts: Counter[str]
    messages: Counter[str]
    """What became of the broker's messages that were taken."""
    stuck: int = 0
    faults: list[Fault] = field(default_factory=list)

    @property
    def doubles(self) -> int:
        """Single-attempt calls that happened more than once."""
        calls = (call for story in self.stories for call in story.calls)
        once = (call for call in calls if call.effect is ToolEffect.NON_IDEMPOTENT_WRITE)
        return sum(len(self.books.effects[call.id]) > 1 for call in once)


def table_lines(outcome: Outcome) -> Iterator[str]:
    """The table."""
    rows = [
        ("seed", str(outcome.seed)),
        ("took", f"{outcome.seconds:.0f} s"),
        ("sessions", _sessions(outcome)),
        ("turns", str(_count(story.steps for story in outcome.stories))),
        ("model calls", f"{len(outcome.requests)} requests"),
        ("summaries", str(_summaries(outcome.stories))),
        ("calls", _counted(Counter(_word(c) for s in outcome.stories for c in s.calls))),
        ("done to them", _counted(outcome.acts)),
        ("at points", _counted(Counter(f"{b.kind} {b.point}" for b in outcome.blows))),
        ("messages", _counted(outcome.messages)),
        ("attempts lost", str(_lost(outcome.stories))),
        ("effects", _effects(outcome)),
        ("doubles", str(outcome.doubles)),
        ("stuck", str(outcome.stuck)),
        ("faults", str(len(outcome.faults))),
    ]
    width = max(len(name) for name, _ in rows)
    return (f"  {name:<{width}}  {text}" for name, text in rows)


def _sessions(outcome: Outcome) -> str:
    talks = [story.talk for story in outcome.stories]
    left = sum(talk.script.left is not None for talk in talks)
    web = sum(talk.over_http for talk in talks)
    return f"{len(talks)} ({web} over HTTP; {left} left an approval to the end)"


def _count(histories: Iterator[Sequence[object]]) -> int:
    return sum(
        getattr(step, "name", None) == "AwaitUserMessage" for steps in histories for step in steps
    )


def _word(call: CallRecord) -> str:
    word = call.status.value
    if call.status is CallStatus.FAILED and (call.error or "").startswith(DID_NOT_RUN):
        word = "failed, did not run"
    if call.reconciled_by is not None:
        word += f" (reconciled by {call.reconciled_by})"
    if call.late_result is not None:
        word += " (late result kept)"
    return word


def _lost(stories: Sequence[Story]) -> int:
    return sum("was lost" in (step.error or "") for story in stories for step in story.steps)


def _summaries(stories: Sequence[Story]) -> int:
    return sum(message.role is Role.SUMMARY for story in stories for message in story.messages)


def _effects(outcome: Outcome) -> str:
    happened = [rows for rows in outcome.books.effects.values() if rows]
    again = sum(len(rows) - 1 for rows in happened)
    return f"{sum(map(len, happened))} of {len(happened)} calls; {again} repeated under their key"


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{word} {count}" for word, count in sorted(counts.items())) or "none"


def story_lines(outcome: Outcome) -> Iterator[str]:
    """Every fault, each with all that is known of its session."""
    for fault in outcome.faults[:_MOST_FAULTS]:
        yield f"FAULT {fault.session_id or 'everywhere'} {fault.call_id or ''} {fault.what}"
    faulty = {fault.session_id for fault in outcome.faults}
    stories = [story for story in outcome.stories if story.talk.session_id in faulty]
    for story in stories[:_MOST_STORIES]:
        yield from _one_story(story, outcome)


def _one_story(story: Story, outcome: Outcome) -> Iterator[str]:
    talk = story.talk
    yield f"=== session {talk.script.number} {talk.session_id} ({story.snapshot.status.value})"
    yield f"its person: {talk}"
    yield "--- messages"
    for message in story.messages:
        said = f"{message.role.value} {message.message_id or message.call_id or ''}"
        yield f"{message.seq} {message.turn_id} {said}: {message.text[:400]!r}"
    yield "--- steps"
    for step in story.steps:
        what = f"{step.name.value} {step.call_id or ''} {step.tool or ''} #{step.attempt}"
        why = f"{step.error or ''} {step.note or ''}"
        yield f"{step.started_at}-{step.ended_at} {step.turn_id} {step.id} {what}: {step.status} {step.worker or ''} {why}"
    yield "--- calls, and the ledger's rows"
    for call in story.calls:
        yield call.model_dump_json(exclude_defaults=True)
        for entry in outcome.books.entered[call.id]:
            yield f"    entered  {entry}"
        for effect in outcome.books.effects[call.id]:
            yield f"    effect   {effect}"
    yield "--- what its workers did to themselves"
    labels = tuple(f"{talk.script.number}-{sign}" for sign in "0123456789l")
    yield from (f"{blow}" for blow in outcome.blows if blow.label.startswith(labels))
