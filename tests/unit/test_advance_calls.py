"""The table of effects: what happens to a call when its attempts end in every possible way.

`expected_end` says it from the documentation alone, and every sequence of up to three attempts is played
against it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest

from celeriac.sessions.calls import DID_NOT_RUN, CallStatus, ToolEffect
from celeriac.sessions.draft import Rules
from celeriac.sessions.messages import Role
from celeriac.sessions.state import StepName
from tests.unit.world import EFFECTS, IDEMPOTENT, ONCE, READ, World, planned

# How an attempt can end.
LOST = "lost"  # its worker died
BROKE = "broke"  # it entered the tool and broke
OUTSIDE = "outside"  # it broke before the tool, and may be repeated
HOPELESS = "hopeless"  # it broke before the tool, and would again
FATAL = "fatal"  # it entered the tool, broke, and would again
TOO_LONG = "too long"  # the provider asks for a wait over the limit
RETURNED = "returned"  # the tool returned
CERTAIN = "certain"  # the tool said for certain that it failed
ENDINGS = (LOST, BROKE, OUTSIDE, HOPELESS, FATAL, TOO_LONG, RETURNED, CERTAIN)
ENTERED = {LOST, BROKE, FATAL, TOO_LONG, RETURNED, CERTAIN}
REPEATABLE = {LOST, BROKE, OUTSIDE}


@dataclass(frozen=True)
class End:
    status: CallStatus
    attempts: int
    did_not_run: bool = False


def expected_end(effect: ToolEffect, max_attempts: int, endings: tuple[str, ...]) -> End | None:
    """How the call has ended after these attempts; None while it is still open."""
    entered = 0
    for number, ending in enumerate(endings, start=1):
        entered += ending in ENTERED
        if ending == RETURNED:
            return End(CallStatus.SUCCEEDED, entered)
        if ending == CERTAIN:
            return End(CallStatus.FAILED, entered)
        single = effect is ONCE and entered > 0
        if ending in REPEATABLE and number < max_attempts and not single:
            continue
        if entered == 0:
            return End(CallStatus.FAILED, 0, did_not_run=True)
        if effect is READ:
            return End(CallStatus.FAILED, entered)
        return End(CallStatus.OUTCOME_UNKNOWN, entered)
    return None


def play(world: World, ending: str) -> None:
    world.wait_for_retry()
    step = world.start_call()
    if ending == LOST:
        world.lose_worker()
    elif ending == BROKE:
        world.breaks(step)
    elif ending == OUTSIDE:
        world.breaks(step, entered=False)
    elif ending == HOPELESS:
        world.breaks(step, entered=False, retryable=False)
    elif ending == FATAL:
        world.breaks(step, retryable=False)
    elif ending == TOO_LONG:
        world.breaks(step, delay_ms=world.rules.provider_wait_max_ms + 1)
    elif ending == RETURNED:
        world.ended(step, result={"n": 1})
    else:
        world.ended(step, succeeded=False, error="no such order")


def sequences() -> list[tuple[ToolEffect, int, tuple[str, ...]]]:
    """Every sequence of attempts that ends a call, and none that goes on after its end."""
    found = []
    for effect, max_attempts in itertools.product(EFFECTS, (1, 2, 3)):
        for endings in itertools.chain.from_iterable(
            itertools.product(ENDINGS, repeat=length) for length in range(1, max_attempts + 1)
        ):
            ends_now = expected_end(effect, max_attempts, endings) is not None
            if ends_now and expected_end(effect, max_attempts, endings[:-1]) is None:
                found.append((effect, max_attempts, endings))
    return found


@pytest.mark.parametrize(
    ("effect", "max_attempts", "endings"),
    [pytest.param(*case, id=f"{case[0]}-{case[1]}-{'-'.join(case[2])}") for case in sequences()],
)
def test_a_call_ends_as_its_effect_and_its_attempts_say(
    effect: ToolEffect, max_attempts: int, endings: tuple[str, ...]
) -> None:
    world = World()
    world.calling(planned("call_a", effect, max_attempts=max_attempts))
    for count, ending in enumerate(endings):
        assert "call_a" not in world.outcomes, f"it ended after {endings[:count]}"
        play(world, ending)
    expected = expected_end(effect, max_attempts, endings)
    assert expected is not None
    outcome = world.outcomes["call_a"]
    assert (outcome.status, outcome.attempts) == (expected.status, expected.attempts)
    assert (outcome.error or "").startswith(DID_NOT_RUN) == expected.did_not_run
    assert world.steps == [StepName.RUN_MODEL]
    assert [message.call_id for message in world.log[2:]] == ["call_a"]


def test_the_sequences_cover_the_whole_table() -> None:
    assert len(sequences()) > 300


# --- routes


@pytest.mark.parametrize("effect", EFFECTS)
def test_the_effect_chooses_the_route(effect: ToolEffect) -> None:
    world = World()
    world.calling(planned("call_a", effect))
    once = effect is ONCE
    assert world.steps == [StepName.CALL_SINGLE_ATTEMPT_TOOL if once else StepName.CALL_TOOL]


def test_a_tool_may_name_its_own_queue() -> None:
    world = World()
    world.calling(planned("call_a", queue="slow"), planned("call_b"))
    assert [world.step_of("call_a").queue, world.step_of("call_b").queue] == ["slow", None]


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_call_keeps_its_id_over_all_its_attempts(effect: ToolEffect) -> None:
    world = World()
    world.calling(planned("call_a", effect))
    seen = set()
    while "call_a" not in world.outcomes:
        world.wait_for_retry()
        step = world.start_call()
        seen.add((step.id, step.call_id))
        world.breaks(step)
    assert len(seen) == 1


def test_a_single_attempt_call_is_never_claimed_again_after_its_worker_was_lost() -> None:
    world = World()
    world.calling(planned("call_a", ONCE, max_attempts=3))
    step = world.start_call()
    world.lose_worker()
    assert world.status() is CallStatus.OUTCOME_UNKNOWN
    assert world.claim(step) is None
    assert "the worker that ran it was lost (worker/1)" in world.error()


def test_a_single_attempt_call_that_never_reached_its_tool_may_be_given_back_and_run() -> None:
    world = World()
    world.calling(planned("call_a", ONCE))
    world.gives_back(world.start_call())
    world.ended(world.start_call())
    assert world.status() is CallStatus.SUCCEEDED
    assert world.outcomes["call_a"].attempts == 1


# --- waits


@pytest.mark.parametrize("effect", [READ, IDEMPOTENT])
def test_a_lost_worker_costs_no_further_wait(effect: ToolEffect) -> None:
    world = World()
    world.calling(planned("call_a", effect))
    world.start_call()
    sent = len(world.sent)
    world.lose_worker()
    assert world.step_of().timing.not_before == world.now
    assert len(world.sent) == sent + 1
    assert world.start_call().attempt == 2


@pytest.mark.parametrize(
    ("backoff_seconds", "waits"),
    [(None, [1_000, 2_000]), (0.5, [500, 1_000]), (20, [20_000, 30_000]), (45, [45_000, 45_000])],
)
def test_a_tool_sets_its_own_backoff(backoff_seconds: float | None, waits: list[int]) -> None:
    world = World()
    world.calling(planned("call_a", backoff_seconds=backoff_seconds))
    seen = []
    for _ in waits:
        world.wait_for_retry()
        world.breaks(world.start_call())
        seen.append(world.step_of().timing.not_before - world.now)
    assert seen == waits


def test_without_backoff_the_next_attempt_is_sent_at_once() -> None:
    world = World()
    world.calling(planned("call_a", backoff_seconds=0))
    world.breaks(world.start_call())
    assert world.sent[-1] == world.step_of()
    assert world.start_call().attempt == 2


@pytest.mark.parametrize("delay_ms", [0, 1, 90_000, Rules().provider_wait_max_ms])
def test_a_wait_up_to_the_limit_is_honoured(delay_ms: int) -> None:
    world = World()
    world.calling(planned("call_a", IDEMPOTENT))
    world.breaks(world.start_call(), delay_ms=delay_ms)
    assert world.step_of().timing.not_before == world.now + delay_ms
    if delay_ms:
        world.pass_time(delay_ms - 1)
        assert world.claim(world.step_of()) is None
        world.pass_time(1)
    world.ended(world.start_call())
    assert world.status() is CallStatus.SUCCEEDED


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_wait_over_the_limit_ends_the_call_and_says_so(effect: ToolEffect) -> None:
    world = World()
    world.calling(planned("call_a", effect))
    world.breaks(world.start_call(), "HTTP 429", delay_ms=7_200_000)
    assert world.error().endswith("HTTP 429 (asked to wait 7200 s; the limit is 900 s)")
    assert world.status() is (CallStatus.FAILED if effect is READ else CallStatus.OUTCOME_UNKNOWN)


# --- siblings, records, words


def test_a_retrying_call_does_not_hold_up_its_siblings_and_they_wait_for_it_in_the_end() -> None:
    world = World()
    world.calling(planned("call_a"), planned("call_b", ONCE))
    world.breaks(world.start_call("call_a"))
    world.ended(world.start_call("call_b"))
    assert world.steps == [StepName.CALL_TOOL]
    world.wait_for_retry()
    world.ended(world.start_call("call_a"))
    assert world.roles[-2:] == [Role.TOOL, Role.TOOL]


def test_an_unknown_outcome_is_listed_and_the_model_is_told_the_truth() -> None:
    world = World()
    world.calling(planned("call_a", ONCE))
    world.breaks(world.start_call(), "connection reset")
    assert [entry.id for entry in world.state.unknown] == ["call_a"]
    assert world.state.unknown[0].told_model
    text = world.conversation[-1][1]
    assert text.startswith("Outcome unknown: a_tool may or may not have taken effect")
    assert "connection reset" in text
    assert world.log[-1].status is CallStatus.OUTCOME_UNKNOWN


def test_attempts_are_in_the_history_as_what_they_were() -> None:
    world = World()
    world.calling(planned("call_a", IDEMPOTENT))
    world.start_call()
    world.lose_worker()
    world.breaks(world.start_call(), "timed out")
    world.wait_for_retry()
    world.breaks(world.start_call(), "timed out again")
    records = [record for record in world.history if record.call_id == "call_a"]
    assert [(r.attempt, r.status) for r in records] == [
        (1, "lost"),
        (2, "failed"),
        (3, "outcome_unknown"),
    ]
    assert all(record.tool == "a_tool" for record in records)


def test_how_much_the_model_reads_travels_with_the_result() -> None:
    world = World()
    world.calling(planned("call_a", shown_bytes=100))
    assert world.call().shown_bytes == 100


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_result_reported_twice_counts_once(effect: ToolEffect) -> None:
    world = World()
    world.calling(planned("call_a", effect), planned("call_b"))
    step = world.start_call()
    assert world.ended(step)
    before = world.state
    assert not world.ended(step)
    assert not world.ended(step, succeeded=False, error="no")
    assert not world.breaks(step)
    assert not world.gives_back(step)
    assert not world.finds_changed(step)
    assert world.state is before
