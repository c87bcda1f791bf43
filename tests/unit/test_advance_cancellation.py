"""What a call's record and the model say when steer or stop ended it, and when nobody decided in time.

DH-08: a rejection, an expiry, a cancellation and an unknown outcome are four things with words of their own.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celeriac.sessions.calls import DID_NOT_RUN, CallStatus, ToolEffect
from celeriac.sessions.inputs import PlannedCall
from celeriac.sessions.messages import Role
from celeriac.sessions.state import SessionStatus, StepName
from tests.unit.world import IDEMPOTENT, ONCE, READ, World, planned, question, timer

Prepare = Callable[[World], object]


def _retrying(world: World) -> None:
    world.breaks(world.start_call(), "HTTP 503")


def _tried_but_never_entered(world: World) -> None:
    world.breaks(world.start_call(), "its tool cannot be found", entered=False)


def _nothing(_world: World) -> None:
    """It is as it was opened."""


BEFORE_IT_RAN = "This call of a_tool was cancelled before it ran."
TABLE: dict[str, tuple[PlannedCall, Prepare, CallStatus, str]] = {
    "pending": (planned("call_a", ONCE), _nothing, CallStatus.PENDING, BEFORE_IT_RAN),
    "approved": (
        planned("call_a", ONCE, asks=True),
        lambda world: world.approve(),
        CallStatus.PENDING,
        BEFORE_IT_RAN,
    ),
    "retrying": (
        planned("call_a", READ),
        _retrying,
        CallStatus.RETRYING,
        "This call of a_tool was cancelled before it gave a result.",
    ),
    "never_entered": (
        planned("call_a", IDEMPOTENT),
        _tried_but_never_entered,
        CallStatus.RETRYING,
        BEFORE_IT_RAN,
    ),
    "approval": (
        planned("call_a", ONCE, asks=True),
        _nothing,
        CallStatus.AWAITING_APPROVAL,
        "This call of a_tool was cancelled while it waited for approval; it did not run.",
    ),
    "question": (
        question(),
        _nothing,
        CallStatus.AWAITING_ANSWER,
        "The question was cancelled before anybody answered it.",
    ),
    "timer": (
        timer(),
        _nothing,
        CallStatus.AWAITING_TIMER,
        "The wait was cancelled before its time was over.",
    ),
}


@pytest.mark.parametrize("how", ["stop", "steer"])
@pytest.mark.parametrize("kind", TABLE)
def test_dh_08_a_call_that_nobody_had_started_is_cancelled_in_words_that_are_true(
    kind: str, how: str
) -> None:
    call, prepare, was, words = TABLE[kind]
    world = World()
    world.calling(call)
    prepare(world)
    if how == "stop":
        world.cancel()
        reason = "The user stopped the turn."
    else:
        world.steer(world.send("other"))
        reason = "The user sent a new message instead."
    outcome = world.outcomes["call_a"]
    assert (outcome.status, outcome.cancelled_while) == (CallStatus.CANCELLED, was)
    assert outcome.error == reason
    assert outcome.decision is None or kind == "approved"
    assert world.told() == f"{words} {reason}"
    assert "reject" not in world.told()
    assert "cancelled" in {one.status for one in world.history if one.call_id == "call_a"}


def test_every_kind_of_wait_of_one_response_is_cancelled_at_once_but_what_runs_is_not() -> None:
    world = World()
    world.calling(
        planned("call_a", ONCE),
        question("call_b"),
        timer("call_c"),
        planned("call_d", asks=True),
        planned("call_e"),
    )
    running = world.start_call("call_a")
    world.cancel()
    assert world.steps == [StepName.CALL_SINGLE_ATTEMPT_TOOL]
    assert set(world.outcomes) == {"call_b", "call_c", "call_d", "call_e"}
    world.ended(running, result="charged")
    assert world.idle
    results = [(m.call_id, m.status) for m in world.log if m.role is Role.TOOL]
    assert results == [
        ("call_a", CallStatus.SUCCEEDED),
        *((call, CallStatus.CANCELLED) for call in ("call_b", "call_c", "call_d", "call_e")),
    ]


@pytest.mark.parametrize("effect", [IDEMPOTENT, ONCE])
def test_a_write_that_was_tried_is_never_told_as_cancelled(effect: ToolEffect) -> None:
    world = World()
    world.calling(planned("call_a", effect))
    step = world.start_call()
    world.cancel()
    world.breaks(step, "connection reset")
    assert world.status() is CallStatus.OUTCOME_UNKNOWN
    assert "may or may not have taken effect" in world.told()


def test_a_step_that_is_given_back_after_stop_is_cancelled() -> None:
    world = World()
    world.calling(planned("call_a", ONCE))
    step = world.start_call()
    world.cancel()
    world.gives_back(step)
    assert world.idle
    assert world.outcomes["call_a"].cancelled_while is CallStatus.PENDING
    assert BEFORE_IT_RAN in world.told()


# --- approvals that expire

HOUR = 3_600_000


def expiring(effect: ToolEffect = ONCE) -> World:
    world = World()
    world.calling(planned("call_a", effect, asks=True, approval_timeout_ms=HOUR))
    return world


def test_dh_08_an_approval_that_expires_did_not_run_and_nobody_rejected_it() -> None:
    world = expiring()
    assert world.looks == (SessionStatus.WAITING, HOUR)
    world.pass_time(HOUR - 1)
    assert not world.wake()
    world.pass_time(1)
    assert world.wake()
    outcome = world.outcomes["call_a"]
    assert (outcome.status, outcome.decision, outcome.attempts) == (CallStatus.FAILED, None, 0)
    assert outcome.error == DID_NOT_RUN + "its approval expired after 3,600 s without a decision"
    assert "reject" not in world.told()
    assert world.history[-2].status == "expired"
    assert world.steps == [StepName.RUN_MODEL]
    assert not world.wake()


def test_dh_08_an_approval_without_a_deadline_waits_for_ever_and_still_works() -> None:
    world = World()
    world.calling(planned("call_a", ONCE, asks=True))
    assert world.looks == (SessionStatus.WAITING, None)
    world.pass_time(400 * 24 * HOUR)
    assert not world.wake()
    world.approve()
    world.ended(world.start_call())
    assert world.status() is CallStatus.SUCCEEDED


def test_a_decision_in_time_ends_the_deadline() -> None:
    world = expiring()
    world.pass_time(HOUR - 1)
    world.approve()
    step = world.start_call()
    world.pass_time(5_000)
    assert not world.wake()
    world.ended(step)
    assert world.status() is CallStatus.SUCCEEDED


def test_each_asking_has_the_whole_time() -> None:
    world = expiring()
    world.pass_time(HOUR - 1)
    world.approve()
    world.finds_changed(world.start_call())
    assert world.looks == (SessionStatus.WAITING, HOUR)


@pytest.mark.parametrize(
    ("effect", "status"),
    [(READ, CallStatus.FAILED), (IDEMPOTENT, CallStatus.OUTCOME_UNKNOWN)],
)
def test_an_approval_that_expires_after_an_attempt_does_not_say_that_it_never_ran(
    effect: ToolEffect, status: CallStatus
) -> None:
    world = expiring(effect)
    world.approve()
    world.breaks(world.start_call(), "HTTP 503")
    world.wait_for_retry()
    world.finds_changed(world.start_call())
    world.pass_time(HOUR)
    world.wake()
    assert world.status() is status
    assert DID_NOT_RUN not in world.error()
    assert "its approval expired" in world.error()


def test_one_expiry_leaves_its_siblings_alone() -> None:
    world = World()
    world.calling(
        planned("call_a", ONCE, asks=True, approval_timeout_ms=HOUR),
        planned("call_b", ONCE, asks=True),
        question("call_c"),
    )
    world.pass_time(HOUR)
    world.wake()
    assert set(world.outcomes) == {"call_a"}
    assert len(world.steps) == 2
