"""A result that comes back late is used wherever it still says something, and nowhere else."""

from __future__ import annotations

import pytest

from celeriac.sessions.calls import CallStatus, ToolEffect
from celeriac.sessions.errors import Conflict
from celeriac.sessions.messages import Role
from celeriac.sessions.state import Step, StepName
from tests.unit.invariants import STATE_MAX_BYTES
from tests.unit.world import IDEMPOTENT, ONCE, READ, World, planned


def lost_single_attempt(*, sibling: bool) -> tuple[World, Step]:
    """A single-attempt call whose worker was lost; with a sibling its turn is still on this response."""
    world = World()
    calls = [planned("call_a", ONCE)] + [planned("call_b", asks=True)] * sibling
    world.calling(*calls)
    step = world.start_call()
    world.lose_worker()
    return world, step


@pytest.mark.parametrize("succeeded", [True, False])
def test_an_unknown_outcome_is_settled_by_the_late_result_and_marked_as_reconciled(
    succeeded: bool,
) -> None:
    world, step = lost_single_attempt(sibling=False)
    world.pass_time(60_000)
    assert world.ended(step, succeeded=succeeded, result={"id": 7}, error="no such order")
    outcome = world.outcomes["call_a"]
    assert outcome.status is (CallStatus.SUCCEEDED if succeeded else CallStatus.FAILED)
    assert outcome.reconciled_by == "late result"
    assert outcome.result == ({"id": 7} if succeeded else None)
    assert outcome.settled_at == world.now
    assert outcome.attempts == 1
    assert world.state.unknown == ()


@pytest.mark.parametrize("succeeded", [True, False])
def test_a_model_that_was_told_unknown_is_told_the_truth_in_the_next_turn(succeeded: bool) -> None:
    world, step = lost_single_attempt(sibling=False)
    world.ended(step, succeeded=succeeded, error="no such order")
    world.reply(text="I do not know whether it worked")
    assert world.roles.count(Role.NOTICE) == 0, "the running turn is left alone"
    world.send("and now?")
    role, text = world.conversation[-2]
    assert role is Role.NOTICE
    assert "call_a of a_tool is now known" in text
    assert ("it did happen" if succeeded else "it did not happen") in text
    assert world.state.notices == ()
    world.reply()
    world.send("again?")
    assert world.roles.count(Role.NOTICE) == 1, "it is told once"


def test_a_model_that_was_not_told_yet_reads_only_the_truth() -> None:
    world, step = lost_single_attempt(sibling=True)
    assert not world.state.unknown[0].told_model
    world.ended(step, result="cancelled")
    assert world.call().status is CallStatus.SUCCEEDED
    world.reject("call_b")
    assert world.conversation[2] == (Role.TOOL, "cancelled")
    assert world.log[2].status is CallStatus.SUCCEEDED
    assert world.state.notices == ()


def test_a_late_result_is_used_after_the_turn_and_many_turns_later() -> None:
    world, step = lost_single_attempt(sibling=False)
    world.reply()
    for number in range(3):
        world.send("more", f"m{number}")
        world.reply()
    world.ended(step, result="done")
    assert world.status() is CallStatus.SUCCEEDED
    assert world.idle
    assert len(world.state.notices) == 1


@pytest.mark.parametrize("effect", [READ, IDEMPOTENT])
@pytest.mark.parametrize("again", ["waiting", "running"])
def test_a_late_result_of_an_open_call_settles_it_and_the_next_attempt_is_not_needed(
    effect: ToolEffect, again: str
) -> None:
    world = World()
    world.calling(planned("call_a", effect))
    first = world.start_call()
    world.lose_worker()
    second = world.start_call() if again == "running" else None
    assert world.ended(first, result="late but right")
    assert world.status() is CallStatus.SUCCEEDED
    assert world.conversation[-1] == (Role.TOOL, "late but right")
    if second is not None:
        before = world.state
        assert not world.ended(second, result="second")
        assert world.state is before


def test_attempts_of_a_late_result_are_counted_as_they_were() -> None:
    world = World()
    world.calling(planned("call_a", READ), planned("call_b", READ))
    first_a, first_b = world.start_call("call_a"), world.start_call("call_b")
    world.lose_worker()
    world.start_call("call_b")
    world.ended(first_a)
    world.ended(first_b)
    assert world.outcomes["call_a"].attempts == 1, "the second attempt never began"
    assert world.outcomes["call_b"].attempts == 2, "the second attempt was running"


def test_a_late_result_settles_a_call_that_asks_again_meanwhile() -> None:
    world = World()
    world.calling(planned("call_a", IDEMPOTENT, asks=True))
    world.approve()
    first = world.start_call()
    world.lose_worker()
    world.finds_changed(world.start_call())
    assert world.steps == [StepName.AWAIT_TOOL_APPROVAL]
    assert world.ended(first, result="it did happen")
    assert world.status() is CallStatus.SUCCEEDED
    assert world.steps == [StepName.RUN_MODEL]


def test_a_late_failure_does_not_settle_a_call_that_runs_again() -> None:
    world = World()
    world.calling(planned("call_a", IDEMPOTENT))
    first = world.start_call()
    world.lose_worker()
    second = world.start_call()
    assert not world.ended(first, succeeded=False, error="locked")
    world.ended(second)
    assert world.status() is CallStatus.SUCCEEDED


def test_a_late_failure_of_one_attempt_says_nothing_about_the_others() -> None:
    world = World()
    world.calling(planned("call_a", IDEMPOTENT))
    first = world.start_call()
    world.lose_worker()
    world.breaks(world.start_call(), "timed out")
    world.wait_for_retry()
    world.breaks(world.start_call(), "timed out")
    assert world.status() is CallStatus.OUTCOME_UNKNOWN
    world.ended(first, succeeded=False, error="locked")
    assert world.status() is CallStatus.OUTCOME_UNKNOWN, "a later attempt may have taken effect"
    world.ended(first, result="done")
    assert world.status() is CallStatus.SUCCEEDED, "a late success says that it happened"


@pytest.mark.parametrize("effect", [READ, IDEMPOTENT, ONCE])
def test_a_late_result_of_a_settled_call_changes_nothing(effect: ToolEffect) -> None:
    world = World()
    world.calling(planned("call_a", effect))
    step = world.start_call()
    world.ended(step, result="first")
    before = world.state
    assert not world.ended(step, result="second")
    world.reply()
    assert not world.ended(step, result="third")
    assert world.outcomes["call_a"].result == "first"
    assert before.unknown == ()


def test_a_late_result_of_a_stopped_turn_settles_its_call_and_starts_nothing() -> None:
    world = World()
    world.calling(planned("call_a", ONCE))
    step = world.start_call()
    world.cancel()
    world.lose_worker()
    assert world.idle
    world.ended(step, result="done after all")
    assert world.idle
    assert world.status() is CallStatus.SUCCEEDED
    world.send("well?")
    assert "it did happen" in world.conversation[-2][1]


def test_a_huge_late_error_does_not_grow_the_state() -> None:
    world, step = lost_single_attempt(sibling=False)
    world.ended(step, succeeded=False, error="x" * 5 * STATE_MAX_BYTES)
    assert len(world.outcomes["call_a"].error or "") == 5 * STATE_MAX_BYTES


# --- by a person


@pytest.mark.parametrize("succeeded", [True, False])
def test_a_person_settles_an_unknown_outcome(succeeded: bool) -> None:
    world, _ = lost_single_attempt(sibling=False)
    assert world.reconcile(succeeded=succeeded, note="I looked it up", result={"id": 7})
    outcome = world.outcomes["call_a"]
    assert outcome.status is (CallStatus.SUCCEEDED if succeeded else CallStatus.FAILED)
    assert (outcome.reconciled_by, outcome.note, outcome.error) == ("Ann", "I looked it up", None)
    world.reply()
    world.send("and now?")
    assert "I looked it up" in world.conversation[-2][1]


def test_what_a_person_found_out_is_told_in_words_when_there_is_no_result() -> None:
    world, _ = lost_single_attempt(sibling=True)
    world.reconcile(succeeded=True)
    world.reject("call_b")
    assert "took effect" in world.conversation[2][1]
    assert "Ann" in world.conversation[2][1]

    world, _ = lost_single_attempt(sibling=True)
    world.reconcile(succeeded=False)
    world.reject("call_b")
    assert "did not take effect" in world.conversation[2][1]
    assert "Ann" in world.conversation[2][1]


@pytest.mark.parametrize("who", ["person", "late result"])
def test_an_outcome_is_reconciled_once(who: str) -> None:
    world, step = lost_single_attempt(sibling=False)
    if who == "person":
        world.reconcile(succeeded=True)
        assert not world.ended(step, succeeded=False, error="no")
    else:
        world.ended(step)
    with pytest.raises(Conflict) as caught:
        world.reconcile(succeeded=False)
    assert caught.value.code == "not_unknown"
    assert world.status() is CallStatus.SUCCEEDED


@pytest.mark.parametrize("call_id", ["call_b", "call_z"])
def test_only_an_unknown_outcome_can_be_reconciled(call_id: str) -> None:
    world, _ = lost_single_attempt(sibling=True)
    with pytest.raises(Conflict) as caught:
        world.reconcile(call_id, succeeded=True)
    assert caught.value.code == "not_unknown"
