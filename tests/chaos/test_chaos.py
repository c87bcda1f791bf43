"""The proof that is asked for, in half a minute; ``make chaos`` runs it as long as you like."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

import pytest

from celeriac.sessions.calls import CallStatus, ToolEffect
from tests.chaos.check import Books, Story, faults_of
from tests.chaos.ledger import Ledger
from tests.chaos.report import Outcome, story_lines, table_lines
from tests.chaos.run import Plan, run_storm
from tests.chaos.script import script_of

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("storm")]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    seed = int(os.environ.get("CELERIAC_CHAOS_SEED", secrets.randbelow(10**6)))
    sys.stdout.write(f"CELERIAC_CHAOS_SEED={seed}\n")
    plan = Plan(sessions=10, minutes=0.2, seed=seed, rate=0.008, calm_seconds=1.5)
    return run_storm(plan, tmp_path_factory.mktemp("storm"))


def test_nothing_is_lost_and_nothing_happens_twice(outcome: Outcome) -> None:
    sys.stdout.write("\n".join(table_lines(outcome)) + "\n")
    assert not outcome.faults, "\n".join(story_lines(outcome))
    assert outcome.acts
    assert {story.snapshot.status.value for story in outcome.stories} == {"idle"}


def test_a_seed_repeats_what_people_say_and_do() -> None:
    assert script_of(42, 7) == script_of(42, 7)
    assert script_of(42, 7) != script_of(43, 7)


# A check that finds nothing may be one that cannot find anything.


def _found(story: Story, books: Books) -> str:
    return "; ".join(fault.what for fault in faults_of(story, books))


def _one_write(outcome: Outcome, effect: ToolEffect) -> tuple[int, str, str]:
    """Return the number of a story and a write of it that simply succeeded, with its tool."""
    for number, story in enumerate(outcome.stories):
        for call in story.calls:
            happened = len(outcome.books.effects[call.id])
            plain = call.status is CallStatus.SUCCEEDED and call.reconciled_by is None
            if call.effect is effect and plain and happened == 1:
                return number, call.id, call.tool
    raise AssertionError("no such write succeeded")


@pytest.fixture
def doctored(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


def _books_with(outcome: Outcome, more: Ledger) -> Books:
    books = Books.read(more)
    for call_id, rows in outcome.books.entered.items():
        books.entered[call_id].extend(rows)
    for call_id, rows in outcome.books.effects.items():
        books.effects[call_id].extend(rows)
    return books


def test_a_second_effect_would_be_found(outcome: Outcome, doctored: Ledger) -> None:
    number, call_id, name = _one_write(outcome, ToolEffect.NON_IDEMPOTENT_WRITE)
    doctored.enter("effects", call_id, key=call_id, tool=name, label="again", attempt=2)
    assert "DOUBLE" in _found(outcome.stories[number], _books_with(outcome, doctored))


def test_another_key_would_be_found(outcome: Outcome, doctored: Ledger) -> None:
    number, call_id, name = _one_write(outcome, ToolEffect.IDEMPOTENT_WRITE)
    doctored.enter("effects", call_id, key="other", tool=name, label="again", attempt=2)
    assert "other keys" in _found(outcome.stories[number], _books_with(outcome, doctored))


def test_a_missing_effect_would_be_found(outcome: Outcome) -> None:
    number, _, _ = _one_write(outcome, ToolEffect.NON_IDEMPOTENT_WRITE)
    books = Books()
    books.entered.update(outcome.books.entered)
    assert "nothing happened" in _found(outcome.stories[number], books)


def test_a_lost_message_would_be_found(outcome: Outcome) -> None:
    story = outcome.stories[0]
    story.talk.said["never-stored"] = "hello"
    try:
        assert "are lost" in _found(story, outcome.books)
    finally:
        del story.talk.said["never-stored"]


def test_a_missing_result_would_be_found(outcome: Outcome) -> None:
    story = next(one for one in outcome.stories if one.calls)
    at = next(n for n, message in enumerate(story.messages) if message.call_id is not None)
    shorter = [*story.messages[:at], *story.messages[at + 1 :]]
    torn = Story(story.talk, story.snapshot, shorter, story.calls, story.steps)
    assert "before the results" in _found(torn, outcome.books)


def test_a_rejected_call_that_ran_would_be_found(outcome: Outcome) -> None:
    number, call_id, _ = _one_write(outcome, ToolEffect.NON_IDEMPOTENT_WRITE)
    story = outcome.stories[number]
    calls = [
        call.model_copy(update={"status": CallStatus.REJECTED}) if call.id == call_id else call
        for call in story.calls
    ]
    lied = Story(story.talk, story.snapshot, story.messages, calls, story.steps)
    assert "was rejected, and its tool was entered" in _found(lied, outcome.books)
