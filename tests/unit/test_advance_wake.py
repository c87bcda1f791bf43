"""Waking: whatever is due is moved on, whatever is not is left alone, and a backlog never multiplies."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celeriac.sessions.calls import CallStatus, ToolEffect
from celeriac.sessions.state import SessionStatus, Step, StepName
from tests.unit.world import IDEMPOTENT, ONCE, READ, RULES, World, planned


def sends_of(world: World, step: Step) -> int:
    return sum(sent.id == step.id for sent in world.sent)


def test_a_wake_that_comes_too_early_changes_nothing() -> None:
    world = World()
    assert not world.wake()
    world.send("hello")
    before = world.state
    world.pass_time(RULES.resend_ms - 1)
    assert not world.wake()
    assert world.state is before


def test_a_step_whose_message_was_lost_is_sent_again() -> None:
    world = World()
    world.send("hello")
    step = world.state.steps[0]
    world.pass_time(RULES.resend_ms)
    assert world.wake()
    assert sends_of(world, step) == 2
    world.reply()
    assert world.ended_turns() == ["answered"]


def test_sending_again_becomes_rarer_up_to_a_limit() -> None:
    world = World()
    world.send("hello")
    waits = []
    for _ in range(9):
        due = world.state.wake_at or 0
        waits.append(due - world.now)
        world.pass_time(due - world.now)
        world.wake()
    assert waits == [3_000, 6_000, 12_000, 24_000, 48_000, 60_000, 60_000, 60_000, 60_000]


def test_a_backlog_is_not_multiplied_but_a_lost_message_is_found_in_the_end() -> None:
    world = World()
    world.send("hello")
    step = world.state.steps[0]
    waited = 0
    while sends_of(world, step) == 1:
        due = world.state.wake_at or 0
        waited += due - world.now
        world.pass_time(due - world.now)
        assert world.wake(backlogged=[None])
        assert waited < 600_000, "a lost message is never found in a backlog"
    assert waited > 60_000


def test_a_backlog_elsewhere_delays_nothing() -> None:
    world = World()
    world.calling(planned("call_a", queue="slow"))
    world.pass_time(RULES.resend_ms)
    world.wake(backlogged=[None, "other"])
    assert sends_of(world, world.step_of()) == 2


def test_a_retry_is_sent_when_its_time_comes_backlog_or_not() -> None:
    world = World()
    world.calling(planned("call_a", READ))
    world.breaks(world.start_call())
    step = world.step_of()
    assert sends_of(world, step) == 1
    assert world.state.wake_at == step.timing.not_before
    world.wait_for_retry()
    world.wake(backlogged=[None])
    assert sends_of(world, step) == 2


def test_a_running_step_is_left_alone_while_its_lease_lasts() -> None:
    world = World()
    world.calling(planned("call_a", ONCE))
    step = world.start_call()
    world.pass_time(RULES.lease_ms - 1)
    assert not world.wake()
    assert world.step_is_open(step)


@pytest.mark.parametrize(
    ("effect", "name"),
    [(READ, StepName.CALL_TOOL), (IDEMPOTENT, StepName.CALL_TOOL), (ONCE, StepName.RUN_MODEL)],
)
def test_a_lost_worker_is_a_retry_or_an_unknown_outcome(effect: ToolEffect, name: StepName) -> None:
    world = World()
    world.calling(planned("call_a", effect))
    world.start_call()
    world.lose_worker()
    assert world.steps == [name]
    assert ("call_a" in world.outcomes) == (effect is ONCE)


def test_all_that_is_due_is_moved_on_at_one_look() -> None:
    world = World()
    world.calling(planned("call_a", ONCE), planned("call_b", READ), planned("call_c", READ))
    world.start_call("call_a")
    world.start_call("call_b")
    world.pass_time(RULES.lease_ms)
    world.wake()
    assert world.status("call_a") is CallStatus.OUTCOME_UNKNOWN
    assert world.step_of("call_b").attempt == 2
    assert sends_of(world, world.step_of("call_b")) == 2
    assert sends_of(world, world.step_of("call_c")) == 2


def test_the_last_lost_workers_of_a_turn_take_it_further() -> None:
    world = World()
    world.calling(planned("call_a", ONCE), planned("call_b", ONCE))
    world.start_call("call_a")
    world.start_call("call_b")
    world.lose_worker()
    assert world.steps == [StepName.RUN_MODEL]
    assert [entry.told_model for entry in world.state.unknown] == [True, True]


# --- after an outage of the store


def test_after_an_outage_each_lease_gets_its_time_once_more() -> None:
    world = World()
    world.calling(planned("call_a", ONCE))
    step = world.start_call()
    world.pass_time(RULES.lease_ms * 10)
    assert world.wake(after_outage=True)
    assert "call_a" not in world.outcomes
    assert world.state.wake_at == world.now + RULES.lease_ms
    world.ended(step)
    assert world.status() is CallStatus.SUCCEEDED


def test_a_worker_that_is_dead_after_an_outage_is_found_one_lease_later() -> None:
    world = World()
    world.calling(planned("call_a", ONCE))
    world.start_call()
    world.pass_time(RULES.lease_ms * 10)
    world.wake(after_outage=True)
    world.lose_worker()
    assert world.status() is CallStatus.OUTCOME_UNKNOWN


def test_after_an_outage_messages_that_the_broker_lost_are_sent_again() -> None:
    world = World()
    world.send("hello")
    step = world.state.steps[0]
    world.pass_time(RULES.lease_ms * 10)
    world.wake(after_outage=True)
    assert sends_of(world, step) == 2


# --- what status and wake-up say


def test_status_and_wake_up_at_every_kind_of_step() -> None:
    world = World()
    looks = [world.looks]
    world.send("hello")
    looks.append(world.looks)
    step = world.start_model()
    looks.append(world.looks)
    world.reply(planned("call_a", ONCE, asks=True), planned("call_b"), step=step)
    looks.append(world.looks)
    world.ended(world.start_call("call_b"))
    looks.append(world.looks)
    assert looks == [
        (SessionStatus.IDLE, None),
        (SessionStatus.RUNNING, RULES.resend_ms),
        (SessionStatus.RUNNING, RULES.lease_ms),
        (SessionStatus.RUNNING, RULES.resend_ms),
        (SessionStatus.WAITING, None),
    ]


def _ready(world: World) -> None:
    world.calling(planned("call_a"))


def _running(world: World) -> None:
    world.calling(planned("call_a"))
    world.start_call()


def _retrying(world: World) -> None:
    world.calling(planned("call_a"))
    world.breaks(world.start_call())


def _given_back(world: World) -> None:
    world.calling(planned("call_a"))
    world.gives_back(world.start_call())


def _lost(world: World) -> None:
    world.calling(planned("call_a"))
    world.start_call()
    world.lose_worker()


@pytest.mark.parametrize("begin", [_ready, _running, _retrying, _given_back, _lost])
def test_waking_alone_brings_every_turn_of_dead_workers_to_an_end(
    begin: Callable[[World], None],
) -> None:
    """Workers that claim and die, and nothing else, for ever: the turn ends with a reason."""
    world = World()
    begin(world)
    for _ in range(60):
        if world.idle:
            break
        for step in world.state.steps:
            world.claim(step)
        world.now = world.state.wake_at or world.now
        world.wake()
    assert world.idle
    assert world.ended_turns() == ["failed"]


# --- owners that are known to be dead


@pytest.mark.parametrize("after_outage", [False, True])
def test_the_claim_of_a_dead_owner_is_over_before_its_lease(*, after_outage: bool) -> None:
    world = World()
    world.calling(planned("call_a", READ), planned("call_b", ONCE), planned("call_c", READ))
    for call_id, owner in [("call_a", "w/1"), ("call_b", "w/1"), ("call_c", "w/2")]:
        assert world.claim(world.step_of(call_id), owner)
    assert not world.wake(dead={"w/3": "it was lost"}, after_outage=after_outage)
    assert world.wake(dead={"w/1": "it was lost"}, after_outage=after_outage)
    again = world.step_of("call_a")
    assert (again.attempt, again.timing.claimed, again.last_error) == (
        2,
        False,
        "it was lost (w/1)",
    )
    assert world.sent[-1].id == again.id
    assert world.outcomes["call_b"].status is CallStatus.OUTCOME_UNKNOWN
    assert world.outcomes["call_b"].error == "it was lost (w/1)"
    assert world.step_of("call_c").timing.owner == "w/2"
    assert not world.wake(dead={"w/1": "it was lost"})


def test_a_model_call_of_a_dead_owner_is_made_again_at_once() -> None:
    world = World()
    world.send("hello")
    step = world.claim(world.state.steps[0], "w/1")
    assert step is not None
    assert world.wake(dead={"w/1": "it was lost"})
    assert sends_of(world, step) == 2
    world.reply()
    assert world.ended_turns() == ["answered"]


def test_a_step_that_nobody_claimed_has_no_dead_owner() -> None:
    world = World()
    world.send("hello")
    assert not world.wake(dead={"": "it was lost"})
