"""An unknown outcome is looked up at the provider: a step of its own, beside whatever the session does."""

from __future__ import annotations

import pytest

from celeriac.sessions.calls import DID_NOT_RUN, CallStatus, ToolEffect
from celeriac.sessions.errors import Conflict
from celeriac.sessions.messages import Role
from celeriac.sessions.state import SessionStatus, Step, StepName
from tests.unit.world import IDEMPOTENT, NOON, ONCE, READ, World, planned

SETTLE = 60_000


def unknown(*, sibling: bool = False, after: int | None = SETTLE) -> World:
    """A single-attempt write whose worker was lost; with a sibling its turn is still on the response."""
    world = World()
    calls = [planned("call_a", ONCE, reconcile_after_ms=after)]
    world.calling(*calls, *[planned("call_b", asks=True)] * sibling)
    world.start_call()
    world.lose_worker()
    assert [entry.id for entry in world.state.unknown] == ["call_a"]
    return world


def idle(after: int | None = SETTLE) -> World:
    """The same, with the turn over: the model was told that nobody knows."""
    world = unknown(after=after)
    world.reply()
    assert world.idle
    return world


def looked_up(world: World) -> Step:
    world.wait_for_retry()
    world.wake()
    return world.start_check()


def test_a_look_up_begins_when_the_provider_has_settled() -> None:
    world = idle()
    (step,) = world.checks
    assert step.name is StepName.RECONCILE_CALL
    assert step.timing.not_before == world.outcomes["call_a"].settled_at + SETTLE
    assert world.state.wake_at == step.timing.not_before
    assert world.claim(step) is None, "not before"
    world.wait_for_retry()
    assert world.wake()
    assert world.sent[-1].id == step.id
    assert world.start_check().timing.claimed


def test_what_cannot_be_looked_up_waits_for_a_person() -> None:
    world = idle(after=None)
    assert world.checks == []
    with pytest.raises(Conflict, match="cannot be looked up"):
        world.ask_for_check()


def test_a_session_with_a_look_up_is_idle_and_takes_messages() -> None:
    world = idle()
    assert world.state.status is SessionStatus.IDLE
    world.send("and now?")
    world.reply()
    assert len(world.checks) == 1


def test_the_turn_does_not_wait_for_it() -> None:
    world = unknown()
    assert world.steps == [StepName.RECONCILE_CALL, StepName.RUN_MODEL]
    assert world.state.status is SessionStatus.RUNNING


def test_while_the_turn_waits_for_a_person_it_counts_as_waiting() -> None:
    world = unknown(sibling=True)
    assert world.state.status is SessionStatus.WAITING
    world.finds(looked_up(world), True, result={"id": 7})
    world.reject("call_b")
    tools = [m for m in world.log if m.role is Role.TOOL]
    assert [m.status for m in tools] == [CallStatus.SUCCEEDED, CallStatus.REJECTED]


def test_what_was_found_settles_the_call_and_the_model_is_told() -> None:
    world = idle()
    assert world.finds(looked_up(world), True, result={"id": 7}, note="it is there")
    outcome = world.outcomes["call_a"]
    assert outcome.status is CallStatus.SUCCEEDED
    assert (outcome.result, outcome.reconciled_by) == ({"id": 7}, "the provider")
    assert (world.state.unknown, world.state.wake_at) == ((), None)
    world.send("and now?")
    role, text = world.conversation[-2]
    assert role is Role.NOTICE
    assert "it did happen (it is there)" in text


def test_what_certainly_never_happened_is_failed() -> None:
    world = idle()
    assert world.finds(looked_up(world), False, note="it is not there, and cannot come")
    assert world.outcomes["call_a"].status is CallStatus.FAILED


def test_what_was_not_found_stays_unknown_and_says_what_was_found() -> None:
    world = idle()
    assert world.finds(looked_up(world), None, note="no such message")
    (entry,) = world.state.unknown
    assert (entry.checked_at, entry.checked_note) == (world.now, "no such message")
    assert (world.checks, world.state.wake_at) == ([], None)
    assert world.reconcile(succeeded=False)


def test_a_look_up_that_breaks_is_made_again_and_then_left_to_a_person() -> None:
    world = idle()
    for attempt in range(5):
        step = looked_up(world)
        assert step.attempt == attempt + 1
        assert world.breaks(step, "no connection")
    assert world.checks == []
    (entry,) = world.state.unknown
    assert entry.checked_note == "It could not be looked up: no connection"
    assert [one.tool for one in world.history[-5:]] == ["a_tool"] * 5


def test_a_wait_that_the_provider_asks_for_is_kept() -> None:
    world = idle()
    world.breaks(looked_up(world), "slow down", delay_ms=45_000)
    (step,) = world.checks
    assert step.timing.not_before == world.now + 45_000


def test_a_look_up_whose_worker_is_lost_is_made_again() -> None:
    world = idle()
    looked_up(world)
    world.lose_worker()
    assert looked_up(world).attempt == 2


def test_a_look_up_that_is_given_back_is_sent_again() -> None:
    world = idle()
    step = looked_up(world)
    assert world.gives_back(step)
    assert world.sent[-1].id == step.id
    assert world.start_check().id == step.id


def test_a_person_has_it_looked_up_now() -> None:
    world = idle()
    assert world.ask_for_check()
    assert world.start_check().timing.claimed
    assert not world.ask_for_check(), "it is under way"
    world.finds(world.checks[0], None, note="nothing")
    assert world.ask_for_check(), "and may be looked up again"
    assert world.finds(world.start_check(), True)


def test_an_outcome_that_a_person_settles_needs_no_look_up() -> None:
    world = idle()
    assert world.reconcile(succeeded=True)
    assert (world.checks, world.state.wake_at) == ([], None)
    with pytest.raises(Conflict, match="not unknown"):
        world.ask_for_check()


def test_a_look_up_that_ends_after_a_person_settled_changes_nothing() -> None:
    world = idle()
    step = looked_up(world)
    assert world.reconcile(succeeded=True)
    settled = world.outcomes["call_a"]
    world.finds(step, False, note="not there")
    assert world.outcomes["call_a"] is settled
    assert world.checks == []


def test_a_look_up_that_is_given_back_after_a_person_settled_is_not_sent_again() -> None:
    world = idle()
    step = looked_up(world)
    assert world.reconcile(succeeded=True)
    sent = len(world.sent)
    assert world.gives_back(step)
    assert (world.checks, len(world.sent), world.state.wake_at) == ([], sent, None)


def test_a_late_result_settles_it_first() -> None:
    world = World()
    world.calling(planned("call_a", ONCE, reconcile_after_ms=SETTLE))
    step = world.start_call()
    world.lose_worker()
    assert world.ended(step, result="done")
    assert world.outcomes["call_a"].reconciled_by == "late result"
    assert world.checks == []


def test_a_late_result_during_the_turn_is_not_taken_for_the_look_ups() -> None:
    world = World()
    world.calling(planned("call_a", ONCE, reconcile_after_ms=SETTLE), planned("call_b", asks=True))
    step = world.start_call()
    world.lose_worker()
    assert world.ended(step, result="done")
    assert world.outcomes["call_a"].status is CallStatus.SUCCEEDED


@pytest.mark.parametrize("act", ["cancel", "steer"])
def test_stop_and_steer_do_not_touch_it(act: str) -> None:
    world = unknown(sibling=True)
    if act == "cancel":
        world.cancel()
    else:
        world.steer(world.send("rather this"))
    assert len(world.checks) == 1
    assert world.finds(looked_up(world), True)


# --- attempts that certainly did nothing


def test_a_write_that_runs_once_is_tried_again_where_it_did_nothing() -> None:
    world = World()
    world.calling(planned("call_a", ONCE, max_attempts=3))
    world.breaks(world.start_call(), "429", entered=False, delay_ms=5_000)
    assert world.call().attempts == 0
    assert world.step_of("call_a").timing.not_before == world.now + 5_000
    world.wait_for_retry()
    world.breaks(world.start_call(), "the answer was lost")
    assert world.outcomes["call_a"].status is CallStatus.OUTCOME_UNKNOWN
    assert world.outcomes["call_a"].attempts == 1


def test_a_write_that_never_got_through_did_not_run() -> None:
    world = World()
    world.calling(planned("call_a", ONCE, max_attempts=3))
    for _ in range(3):
        world.wait_for_retry()
        world.breaks(world.start_call(), "429", entered=False)
    outcome = world.outcomes["call_a"]
    assert outcome.status is CallStatus.FAILED
    assert outcome.error == f"{DID_NOT_RUN}429"


# --- keys that a provider forgets


@pytest.mark.parametrize(
    ("effect", "status"),
    [(IDEMPOTENT, CallStatus.OUTCOME_UNKNOWN), (READ, CallStatus.FAILED)],
)
def test_nothing_is_tried_again_after_the_provider_forgot_the_key(
    effect: ToolEffect, status: CallStatus
) -> None:
    world = World()
    world.calling(planned("call_a", effect, max_attempts=5, idempotency_valid_ms=100_000))
    world.breaks(world.start_call(), "busy", delay_ms=60_000)
    world.wait_for_retry()
    world.breaks(world.start_call(), "busy", delay_ms=60_000)
    outcome = world.outcomes["call_a"]
    assert outcome.status is status
    assert "does not know the key" in (outcome.error or "")


def test_the_key_lives_from_the_first_attempt_not_from_the_call() -> None:
    world = World()
    world.calling(planned("call_a", IDEMPOTENT, asks=True, idempotency_valid_ms=100_000))
    world.pass_time(30 * 24 * 3600 * 1000)
    world.approve()
    started = world.start_call()
    world.breaks(started, "busy")
    assert world.call().first_attempt_at == started.timing.claimed_at
    assert started.timing.claimed_at > NOON
    assert world.call().key_is_valid_at(world.now + 100_000)
    assert not world.call().key_is_valid_at(world.now + 100_001)
