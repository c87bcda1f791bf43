"""What people are shown of a session at each kind of step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celeriac.sessions.calls import CallRecord, CallStatus
from celeriac.sessions.state import SessionStatus, StepName
from celeriac.sessions.views import call_record, session_summary, turn_view
from tests.unit.world import IDEMPOTENT, ONCE, READ, World, planned


def record(world: World, call_id: str = "call_a") -> CallRecord:
    return call_record(world.requests[call_id], world.outcomes.get(call_id), world.state)


def ready(world: World) -> None:
    world.calling(planned("call_a", IDEMPOTENT), planned("call_b", asks=True))


def running(world: World) -> None:
    ready(world)
    world.start_call()


def retrying(world: World) -> None:
    ready(world)
    world.breaks(world.start_call(), "HTTP 503", delay_ms=60_000)


def running_again(world: World) -> None:
    retrying(world)
    world.wait_for_retry()
    world.start_call()


def asking(world: World) -> None:
    world.calling(planned("call_a", ONCE, asks=True), planned("call_b", asks=True))


def rejected(world: World) -> None:
    asking(world)
    world.reject(note="no")


def unknown(world: World) -> None:
    world.calling(planned("call_a", ONCE), planned("call_b", asks=True))
    world.start_call()
    world.lose_worker()


def reconciled(world: World) -> None:
    unknown(world)
    world.reconcile(succeeded=True, result=7)


def succeeded(world: World) -> None:
    ready(world)
    world.ended(world.start_call(), result=False)


@pytest.mark.parametrize(
    ("begin", "status", "attempts"),
    [
        (ready, CallStatus.PENDING, 0),
        (running, CallStatus.RUNNING, 1),
        (retrying, CallStatus.RETRYING, 1),
        (running_again, CallStatus.RUNNING, 2),
        (asking, CallStatus.AWAITING_APPROVAL, 0),
        (rejected, CallStatus.REJECTED, 0),
        (unknown, CallStatus.OUTCOME_UNKNOWN, 1),
        (reconciled, CallStatus.SUCCEEDED, 1),
        (succeeded, CallStatus.SUCCEEDED, 1),
    ],
)
def test_a_call_is_shown_where_it_is_during_its_turn_and_afterwards(
    begin: Callable[[World], None], status: CallStatus, attempts: int
) -> None:
    world = World()
    begin(world)
    shown = record(world)
    assert (shown.status, shown.attempts) == (status, attempts)
    assert (shown.settled_at is None) == (not status.settled)
    if status.settled:
        world.reject("call_b")
        world.reply()
        shown = record(world)
        assert (shown.status, shown.attempts) == (status, attempts)


def test_a_retry_says_when_it_comes_and_what_broke() -> None:
    world = World()
    retrying(world)
    shown = record(world)
    assert shown.next_attempt_at == world.now + 60_000
    assert shown.last_error == "HTTP 503"
    assert shown.max_attempts == 3
    world.wait_for_retry()
    world.start_call()
    assert record(world).next_attempt_at is None


def test_a_call_that_asks_shows_what_a_decision_must_carry() -> None:
    world = World()
    asking(world)
    shown = record(world)
    assert (shown.requires_approval, shown.digest) == (True, "digest of call_a")
    world.approve()
    world.finds_changed(world.start_call(), "second digest")
    shown = record(world)
    assert (shown.digest, shown.approval_reason) == ("second digest", "its text changed")
    assert shown.decision is None


@pytest.mark.parametrize("result", [False, 0, "", None, []])
def test_results_that_look_like_nothing_are_shown_as_they_are(result: bool | None) -> None:
    world = World()
    ready(world)
    world.ended(world.start_call(), result=result)
    assert record(world).result == result


def test_a_decision_is_shown_with_the_call_for_ever() -> None:
    world = World()
    rejected(world)
    world.reject("call_b")
    world.reply()
    decision = record(world).decision
    assert decision is not None
    assert (decision.by, decision.note) == ("Ann", "no")


def test_who_reconciled_a_call_is_shown() -> None:
    world = World()
    reconciled(world)
    assert record(world).reconciled_by == "Ann"
    assert record(world).result == 7


# --- turns


def test_an_idle_session_has_no_turn_to_show() -> None:
    assert turn_view(World().state) is None


@pytest.mark.parametrize(
    ("begin", "state", "steps"),
    [
        (ready, "running", ["ready", "waiting"]),
        (running, "running", ["running", "waiting"]),
        (retrying, "running", ["retrying", "waiting"]),
        (asking, "waiting", ["waiting", "waiting"]),
    ],
)
def test_a_turn_says_what_it_does(
    begin: Callable[[World], None], state: str, steps: list[str]
) -> None:
    world = World()
    begin(world)
    view = turn_view(world.state)
    assert view is not None
    assert (view.state, sorted(step.state for step in view.steps)) == (state, sorted(steps))
    assert view.model_calls == 1


@pytest.mark.parametrize("steer", [True, False])
def test_a_turn_that_is_being_stopped_says_so(steer: bool) -> None:
    world = World()
    running(world)
    if steer:
        world.steer(world.send("blue"))
    else:
        world.cancel()
    view = turn_view(world.state)
    assert view is not None
    assert view.state == ("steering" if steer else "cancelling")


def test_a_running_step_shows_its_worker_and_since_when() -> None:
    world = World()
    ready(world)
    world.pass_time(1_000)
    world.start_call()
    view = turn_view(world.state)
    assert view is not None
    step = next(one for one in view.steps if one.name is StepName.CALL_TOOL)
    assert (step.owner, step.since, step.attempt) == ("worker/1", world.now, 1)


# --- the list of sessions


def test_a_row_of_the_list_says_what_the_session_waits_for() -> None:
    world = World()
    world.calling(planned("call_a", READ), planned("call_b", ONCE, asks=True))
    assert session_summary(world.state).waiting_for is None
    world.ended(world.start_call())
    row = session_summary(world.state)
    assert (row.status, row.waiting_for) == (SessionStatus.WAITING, "approval: b_tool")
    assert (row.title, row.turns) == ("hello", 1)
    world.reject("call_b")
    world.reply()
    row = session_summary(world.state)
    assert (row.status, row.waiting_for) == (SessionStatus.IDLE, None)
