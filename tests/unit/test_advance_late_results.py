"""A result that comes back late is used wherever it still says something, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celeriac.sessions.calls import DID_NOT_RUN, CallStatus, ToolEffect
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
        assert world.ended(second, result="second")
        assert world.state.evolve(updated_at=before.updated_at) == before, "but nothing else"
        assert world.outcomes["call_a"].result == "late but right"
        assert world.late["call_a"].result == "second"
        assert not world.ended(second, result="second")


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


# --- kept on the record


@pytest.mark.parametrize("effect", [READ, IDEMPOTENT])
def test_a_result_after_the_call_was_settled_is_kept_and_the_call_stays_as_it_is(
    effect: ToolEffect,
) -> None:
    world = World()
    world.calling(planned("call_a", effect))
    first = world.start_call()
    world.lose_worker()
    world.ended(world.start_call(), result="second")
    world.pass_time(9_000)
    assert world.ended(first, result="first")
    outcome, late = world.outcomes["call_a"], world.late["call_a"]
    assert (outcome.status, outcome.result) == (CallStatus.SUCCEEDED, "second")
    assert (late.succeeded, late.result, late.at) == (True, "first", world.now)
    assert world.state.notices == (), "the model was told right"


def lost_three_times(effect: ToolEffect) -> tuple[World, list[Step]]:
    """A call whose three workers were all lost; each may still report."""
    world = World()
    world.calling(planned("call_a", effect))
    steps = []
    for _ in range(3):
        steps.append(world.start_call())
        world.lose_worker()
    return world, steps


def test_a_late_success_of_a_failed_read_is_kept_but_nobody_needs_to_be_told() -> None:
    world, steps = lost_three_times(READ)
    assert world.status() is CallStatus.FAILED
    assert world.ended(steps[0], result="found after all")
    assert world.status() is CallStatus.FAILED
    assert world.late["call_a"].result == "found after all"
    assert world.state.notices == ()


def test_a_late_success_is_not_replaced_by_what_comes_later_still() -> None:
    world, steps = lost_three_times(READ)
    world.ended(steps[1], succeeded=False, error="gone")
    assert world.late["call_a"].error == "gone"
    assert world.ended(steps[0], result="found"), "a success says more than a failure"
    for step, succeeded in ((steps[2], False), (steps[1], False), (steps[2], True)):
        assert not world.ended(step, succeeded=succeeded, result="other", error="gone")
    assert world.late["call_a"].result == "found"


def test_a_late_failure_of_one_of_several_attempts_is_kept_and_leaves_it_unknown() -> None:
    world, steps = lost_three_times(IDEMPOTENT)
    assert world.ended(steps[1], succeeded=False, error="locked")
    assert world.status() is CallStatus.OUTCOME_UNKNOWN
    assert world.late["call_a"].error == "locked"
    assert [entry.id for entry in world.state.unknown] == ["call_a"]
    assert world.ended(steps[2], result="done")
    assert world.status() is CallStatus.SUCCEEDED
    assert not world.ended(steps[2], result="done")


def test_a_late_success_that_contradicts_a_person_is_told_to_the_model() -> None:
    world, step = lost_single_attempt(sibling=False)
    world.reconcile(succeeded=False, note="I looked")
    assert world.ended(step, result="done")
    outcome = world.outcomes["call_a"]
    assert (outcome.status, outcome.reconciled_by) == (CallStatus.FAILED, "Ann")
    assert world.late["call_a"].result == "done"
    world.reply()
    world.send("and now?")
    told = [text for role, text in world.conversation if role is Role.NOTICE]
    assert "it did not happen (I looked)" in told[0]
    assert "it succeeded, although it was recorded as failed" in told[1]
    assert world.state.notices == ()


# --- it did not run after all


@pytest.mark.parametrize("how", ["failed", "given back"])
def test_an_unknown_outcome_is_failed_once_its_worker_says_that_the_tool_was_not_entered(
    how: str,
) -> None:
    """DH-08: unknown is told as unknown, and what is then found out as that."""
    world, step = lost_single_attempt(sibling=False)
    report = world.gives_back if how == "given back" else _not_entered(world)
    assert "may or may not have" in world.told()
    assert report(step)
    outcome = world.outcomes["call_a"]
    assert (outcome.status, outcome.reconciled_by) == (CallStatus.FAILED, "late result")
    assert (outcome.error or "").startswith(DID_NOT_RUN)
    assert world.state.unknown == ()
    assert not report(step), "a repetition changes nothing"
    world.reply()
    world.send("and now?")
    assert "it did not happen (the tool did not run" in world.conversation[-2][1]


def _not_entered(world: World) -> Callable[[Step], bool]:
    return lambda step: world.breaks(step, "its tool cannot be found", entered=False)


def test_a_model_that_was_not_told_yet_reads_that_it_did_not_run() -> None:
    world, step = lost_single_attempt(sibling=True)
    assert world.gives_back(step)
    world.reject("call_b")
    assert "did not run, so it is safe to call again" in world.told()
    assert world.state.notices == ()


def test_that_one_attempt_did_not_run_says_nothing_about_the_others() -> None:
    world, steps = lost_three_times(IDEMPOTENT)
    for step in steps:
        assert not world.gives_back(step)
        assert not world.breaks(step, entered=False)
    assert world.status() is CallStatus.OUTCOME_UNKNOWN


def test_a_late_failure_of_an_attempt_that_entered_its_tool_settles_nothing() -> None:
    world, step = lost_single_attempt(sibling=False)
    assert not world.breaks(step, "connection reset")
    assert world.status() is CallStatus.OUTCOME_UNKNOWN


def test_a_person_who_was_quicker_than_the_late_report_is_believed() -> None:
    world, step = lost_single_attempt(sibling=False)
    world.reconcile(succeeded=True)
    assert not world.gives_back(step)
    assert world.status() is CallStatus.SUCCEEDED


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
        assert world.ended(step, succeeded=False, error="no")
        assert world.late["call_a"].error == "no"
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
