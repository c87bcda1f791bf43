"""Ordered writes of one response: one at a time, in the model's order, those after a bad end skipped."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celeriac.sessions.calls import DID_NOT_RUN, CallStatus, ToolEffect
from celeriac.sessions.inputs import PlannedCall
from celeriac.sessions.messages import Role
from celeriac.sessions.state import StepName
from tests.unit.world import IDEMPOTENT, ONCE, READ, RULES, World, planned

A, B, C, D, E = "call_a", "call_b", "call_c", "call_d", "call_e"


def write(call_id: str, effect: ToolEffect = ONCE, *, asks: bool = False) -> PlannedCall:
    return planned(call_id, effect, asks=asks, ordered=True)


def _statuses(world: World) -> list[CallStatus]:
    return [call.status for call in world.turn.calls]


def _started(world: World) -> set[str]:
    return {step.call_id for step in world.state.steps if step.call_id is not None}


def test_ordered_writes_run_one_at_a_time_in_the_models_order() -> None:
    world = World()
    world.calling(write(A), write(B, IDEMPOTENT), write(C))
    for call_id in (A, B, C):
        assert _started(world) == {call_id}
        world.ended(world.start_call(call_id), result=call_id)
    assert [m.call_id for m in world.log if m.role is Role.TOOL] == [A, B, C]
    assert world.steps == [StepName.RUN_MODEL]


def test_reads_and_plain_tools_run_beside_them() -> None:
    world = World()
    world.calling(planned(A, READ), write(B), planned(C, ONCE), write(D))
    assert _started(world) == {A, B, C}


def test_a_write_asks_for_its_approval_only_when_its_turn_comes() -> None:
    world = World()
    world.calling(write(A), write(B, asks=True), write(C))
    assert _statuses(world) == [CallStatus.PENDING] * 3
    world.ended(world.start_call(A))
    assert world.call(B).status is CallStatus.AWAITING_APPROVAL
    assert _started(world) == {B}
    world.approve(B)
    world.ended(world.start_call(B))
    assert _started(world) == {C}


def _fails(world: World) -> None:
    world.ended(world.start_call(B), succeeded=False, error="no such channel")


def _is_lost(world: World) -> None:
    world.start_call(B)
    world.lose_worker()


def _is_rejected(world: World) -> None:
    world.reject(B)


def _never_enters(world: World) -> None:
    world.breaks(world.start_call(B), "its tool cannot be found", retryable=False, entered=False)


ENDS: dict[str, tuple[bool, Callable[[World], None], CallStatus, str]] = {
    "failed": (False, _fails, CallStatus.FAILED, "failed"),
    "unknown": (False, _is_lost, CallStatus.OUTCOME_UNKNOWN, "has an unknown outcome"),
    "rejected": (True, _is_rejected, CallStatus.REJECTED, "was rejected"),
    "never ran": (False, _never_enters, CallStatus.FAILED, "failed"),
}


@pytest.mark.parametrize("how", ENDS)
def test_the_writes_after_a_bad_end_are_skipped_and_nothing_else_is(how: str) -> None:
    asks, end, status, word = ENDS[how]
    world = World()
    world.calling(write(A), write(B, asks=asks), planned(C, READ), write(D), write(E, asks=True))
    world.ended(world.start_call(A))
    end(world)
    assert world.status(B) is status
    assert _started(world) == {C}
    for call_id in (D, E):
        outcome = world.outcomes[call_id]
        assert (outcome.status, outcome.skipped, outcome.attempts) == (CallStatus.FAILED, True, 0)
        assert outcome.error == (
            f"{DID_NOT_RUN}the earlier write b_tool (call_b) of the same response {word}"
        )
    assert not world.outcomes[B].skipped
    world.ended(world.start_call(C))
    assert world.steps == [StepName.RUN_MODEL]


def test_a_write_refused_for_its_arguments_stops_those_after_it_but_not_those_before() -> None:
    world = World()
    world.calling(
        write(A), planned(B, ONCE, ordered=True, refused="amount: missing"), write(C), write(D)
    )
    assert _statuses(world)[1:] == [CallStatus.FAILED] * 3
    assert [world.outcomes[one].skipped for one in (B, C, D)] == [False, True, True]
    world.ended(world.start_call(A))
    assert world.outcomes[A].status is CallStatus.SUCCEEDED


def test_a_retry_safe_write_that_is_tried_again_holds_its_place() -> None:
    world = World()
    world.calling(write(A, IDEMPOTENT), write(B))
    world.breaks(world.start_call(A), "HTTP 503")
    assert _started(world) == {A}
    world.wait_for_retry()
    world.ended(world.start_call(A))
    assert _started(world) == {B}


def test_what_waits_its_turn_is_cancelled_by_a_steer_and_not_skipped() -> None:
    world = World()
    world.calling(write(A), write(B), write(C, asks=True))
    running = world.start_call(A)
    world.send("and now?", "m2")
    world.steer("m2")
    for call_id in (B, C):
        outcome = world.outcomes[call_id]
        assert (outcome.status, outcome.skipped) == (CallStatus.CANCELLED, False)
        assert outcome.cancelled_while is CallStatus.PENDING
    world.ended(running)
    assert world.ended_turns() == ["steered"]


def test_a_late_result_that_settles_an_unknown_write_brings_no_skipped_one_back() -> None:
    world = World()
    world.calling(write(A), planned(B, READ), write(C))
    lost = world.start_call(A)
    world.lose_worker()
    assert world.outcomes[C].skipped
    world.ended(lost)
    assert world.outcomes[A].status is CallStatus.SUCCEEDED
    assert _started(world) == {B}


def _lose_message(world: World, _call_id: str) -> None:
    world.pass_time(RULES.resend_ms)
    assert world.wake()


CRASHES: dict[str, Callable[[World, str], object]] = {
    "its message was lost": _lose_message,
    "given back": lambda world, call_id: world.gives_back(world.start_call(call_id)),
}


@pytest.mark.parametrize("crash", CRASHES)
@pytest.mark.parametrize("at", [A, B, C, D, E])
def test_five_writes_with_an_approval_and_a_failure_over_a_crash_at_each(
    crash: str, at: str
) -> None:
    """The second asks, the third fails: one runs, one waits alone, the last two are skipped."""
    world = World()
    world.calling(write(A), write(B, asks=True), write(C), write(D), write(E))
    for call_id in (A, B, C):
        assert _started(world) == {call_id}
        if call_id == B:
            assert world.call(B).status is CallStatus.AWAITING_APPROVAL
            world.approve(B)
        if call_id == at:
            CRASHES[crash](world, call_id)
        world.ended(world.start_call(call_id), succeeded=call_id != C, error="refused")
    assert [world.outcomes[one].skipped for one in (A, B, C, D, E)] == [
        False,
        False,
        False,
        True,
        True,
    ]
    assert world.steps == [StepName.RUN_MODEL]


def test_the_record_says_that_a_write_waits_its_turn() -> None:
    world = World()
    world.calling(write(A), write(B))
    waiting = [world.state.waits_its_turn(call) for call in world.turn.calls]
    assert waiting == [False, True]
