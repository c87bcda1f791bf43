"""Timers of `durable_wait`: they cost nothing, fire once, and only steer or stop interrupts them."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from celeriac.sessions.built_in import LONGEST_WAIT_SECONDS, BuiltInTool, parse_built_in
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.messages import Role
from celeriac.sessions.state import SessionStatus, StepName
from celeriac.sessions.tools import InvalidArguments
from celeriac.sessions.views import session_summary, turn_view
from tests.unit.world import IDEMPOTENT, World, planned, question, timer

DAY = 24 * 3600 * 1000


def waiting(seconds: float = 10) -> World:
    world = World()
    world.calling(timer("call_a", seconds))
    return world


@pytest.mark.parametrize("seconds", [1, 1.5, 10, 30 * 24 * 3600, LONGEST_WAIT_SECONDS])
def test_a_wait_is_one_entry_in_the_wake_index_and_no_message(seconds: float) -> None:
    world = waiting(seconds)
    assert world.steps == [StepName.AWAIT_TIMER]
    assert world.looks == (SessionStatus.WAITING, int(seconds * 1000))
    assert [step.name for step in world.sent] == [StepName.RUN_MODEL], "no worker hears of it"
    assert session_summary(world.state).waiting_for == "timer: durable_wait"
    view = turn_view(world.state)
    assert view is not None
    assert view.steps[0].due == world.now + int(seconds * 1000)
    world.pass_time(int(seconds * 1000) - 1)
    assert not world.wake(), "it is early"
    world.pass_time(1)
    assert world.wake()
    assert world.history[-2].status == "fired"
    assert world.outcomes["call_a"].result == {"waited_seconds": seconds}
    assert world.steps == [StepName.RUN_MODEL]


def test_dh_12_a_timer_fires_once_however_late_and_however_often_somebody_looks() -> None:
    world = waiting()
    world.pass_time(30_000)
    assert world.wake()
    settled = world.outcomes["call_a"]
    assert settled.result == {"waited_seconds": 30}
    assert not world.wake()
    world.reply()
    world.pass_time(DAY)
    assert not world.wake()
    assert world.outcomes["call_a"] is settled
    assert [m.role for m in world.log].count(Role.TOOL) == 1


@pytest.mark.parametrize("after_outage", [False, True])
def test_a_timer_that_ended_while_the_store_was_away_fires_at_once(after_outage: bool) -> None:
    world = waiting()
    world.pass_time(DAY)
    assert world.wake(after_outage=after_outage)
    assert world.status() is CallStatus.SUCCEEDED


def test_dh_12_steer_interrupts_a_wait_and_its_time_then_does_nothing() -> None:
    world = waiting()
    world.pass_time(2_000)
    world.steer(world.send("never mind"))
    outcome = world.outcomes["call_a"]
    assert (outcome.status, outcome.cancelled_while) == (
        CallStatus.CANCELLED,
        CallStatus.AWAITING_TIMER,
    )
    assert "cancelled before its time was over" in world.told()
    assert world.conversation[-1] == (Role.USER, "never mind")
    world.reply()
    world.pass_time(10_000)
    assert not world.wake()
    assert world.idle


def test_dh_12_stop_interrupts_a_wait() -> None:
    world = waiting(30 * 24 * 3600)
    world.cancel()
    assert world.idle
    assert world.state.wake_at is None
    assert "The user stopped the turn." in world.told()


def test_dh_12_a_queued_message_does_not_interrupt_a_wait() -> None:
    world = waiting()
    world.send("hurry")
    assert world.steps == [StepName.AWAIT_TIMER]
    world.pass_time(10_000)
    world.wake()
    world.reply()
    assert world.conversation[-1] == (Role.USER, "hurry")


def test_dh_12_an_old_timer_and_a_new_one_each_fire_at_their_time() -> None:
    world = World()
    world.calling(timer("call_a", 300 * 24 * 3600), timer("call_b", 5))
    assert world.looks[1] == 5_000
    world.pass_time(5_000)
    assert world.wake()
    assert "call_a" not in world.outcomes
    assert world.status("call_b") is CallStatus.SUCCEEDED
    assert world.looks == (SessionStatus.WAITING, 300 * DAY - 5_000)
    world.pass_time(300 * DAY)
    assert world.wake()
    assert world.steps == [StepName.RUN_MODEL]


def test_timers_that_end_together_fire_in_one_commit() -> None:
    world = World()
    world.calling(timer("call_a", 5), timer("call_b", 5), question("call_c"))
    world.pass_time(6_000)
    assert world.wake()
    assert [world.status(c) for c in ("call_a", "call_b")] == [CallStatus.SUCCEEDED] * 2
    assert world.steps == [StepName.AWAIT_QUESTION_ANSWER]


def test_a_wait_and_a_retry_beside_it_are_looked_at_each_in_its_time() -> None:
    world = World()
    world.calling(timer("call_a", 3), planned("call_b", IDEMPOTENT))
    world.breaks(world.start_call("call_b"), delay_ms=60_000)
    assert world.looks[1] == 3_000
    world.pass_time(3_000)
    world.wake()
    assert world.looks == (SessionStatus.RUNNING, 57_000)


@pytest.mark.parametrize(
    "seconds",
    [0, 0.999, -1, LONGEST_WAIT_SECONDS + 1, float("inf"), float("nan"), "soon", None, [], 1e300],
)
def test_a_wait_out_of_bounds_is_refused(seconds: JsonValue) -> None:
    with pytest.raises(InvalidArguments, match="seconds"):
        parse_built_in(BuiltInTool.DURABLE_WAIT, {"seconds": seconds})


@pytest.mark.parametrize("arguments", [{}, {"seconds": 5, "reason": "x" * 501}, {"minutes": 5}])
def test_a_wait_with_other_arguments_is_refused(arguments: JsonValue) -> None:
    with pytest.raises(InvalidArguments):
        parse_built_in(BuiltInTool.DURABLE_WAIT, arguments)
