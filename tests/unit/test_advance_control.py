"""Steer and cancel_turn, at every kind of step: nothing that started is stopped, nothing is lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from celeriac.sessions.calls import CallStatus, ToolEffect
from celeriac.sessions.errors import Conflict, NotFound
from celeriac.sessions.inputs import ModelInterrupted, QueuedMessageDeleted
from celeriac.sessions.messages import Role
from celeriac.sessions.state import ControlVerb, StepName
from tests.unit.world import IDEMPOTENT, ONCE, READ, World, planned

STEER, CANCEL = ControlVerb.STEER, ControlVerb.CANCEL
VERBS = (STEER, CANCEL)


def control(world: World, verb: ControlVerb) -> None:
    if verb is CANCEL:
        assert world.cancel()
    else:
        assert world.steer(world.send("use blue instead"))


def assert_turn_ended(world: World, verb: ControlVerb) -> None:
    """The first turn ended as asked; steered messages opened the next, a stop opened none."""
    assert world.ended_turns() == ["steered" if verb is STEER else "cancelled"]
    assert StepName.APPLY_TURN_CONTROL in world.route
    if verb is CANCEL:
        assert world.idle
        assert world.conversation[-1] == (Role.NOTICE, "The user stopped this turn.")
    else:
        assert world.turn.id == "t2"
        assert world.conversation[-1] == (Role.USER, "use blue instead")
        assert world.steps == [StepName.RUN_MODEL]
        assert world.turn.control is None


# --- the model step


@pytest.mark.parametrize("verb", VERBS)
def test_a_model_call_that_nobody_started_is_not_made(verb: ControlVerb) -> None:
    world = World()
    world.send("hello")
    step = world.state.steps[0]
    control(world, verb)
    assert_turn_ended(world, verb)
    assert world.claim(step) is None


@pytest.mark.parametrize("verb", VERBS)
def test_a_model_call_that_waits_for_its_retry_is_not_made(verb: ControlVerb) -> None:
    world = World()
    world.send("hello")
    world.breaks(world.start_model(), delay_ms=600_000)
    control(world, verb)
    assert_turn_ended(world, verb)


@pytest.mark.parametrize("verb", VERBS)
def test_a_running_model_call_ends_by_itself_and_its_answer_is_kept(verb: ControlVerb) -> None:
    world = World()
    world.send("hello")
    step = world.start_model()
    control(world, verb)
    assert world.turn.id == "t1"
    assert world.step_is_open(step)
    world.reply(text="here is red", step=step)
    assert (Role.ASSISTANT, "here is red") in world.conversation
    assert_turn_ended(world, verb)


@pytest.mark.parametrize("verb", VERBS)
def test_calls_of_a_response_that_came_after_the_control_do_not_run(verb: ControlVerb) -> None:
    world = World()
    world.send("hello")
    step = world.start_model()
    control(world, verb)
    world.reply(
        planned("call_a", READ),
        planned("call_b", ONCE, asks=True),
        planned("call_c", refused="no such tool"),
        step=step,
    )
    assert [world.status(f"call_{name}") for name in "abc"] == [
        CallStatus.CANCELLED,
        CallStatus.CANCELLED,
        CallStatus.FAILED,
    ]
    assert_turn_ended(world, verb)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("lost", [True, False])
def test_a_model_call_that_breaks_under_control_is_not_repeated(
    verb: ControlVerb, lost: bool
) -> None:
    world = World()
    world.send("hello")
    step = world.start_model()
    control(world, verb)
    if lost:
        world.lose_worker()
    else:
        world.breaks(step)
    assert_turn_ended(world, verb)
    assert all("failed" not in text for _, text in world.conversation)


@pytest.mark.parametrize("verb", VERBS)
def test_a_model_step_given_back_under_control_is_not_sent_again(verb: ControlVerb) -> None:
    world = World()
    world.send("hello")
    step = world.start_model()
    control(world, verb)
    sent = len(world.sent)
    world.gives_back(step)
    assert_turn_ended(world, verb)
    assert len(world.sent) == sent + (verb is STEER)


def test_the_partial_text_of_a_stopped_model_call_is_kept_and_marked() -> None:
    world = World()
    world.send("hello")
    step = world.start_model()
    world.cancel()
    assert world.apply(ModelInterrupted(step.id, step.timing.token, "once upon a"))
    assert world.conversation[1:] == [
        (Role.ASSISTANT, "once upon a"),
        (Role.NOTICE, "The user stopped this turn."),
    ]
    assert world.log[1].interrupted


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_interrupted_model_call_without_text_leaves_no_empty_message(text: str) -> None:
    world = World()
    world.send("hello")
    step = world.start_model()
    world.cancel()
    world.apply(ModelInterrupted(step.id, step.timing.token, text))
    assert world.roles == [Role.USER, Role.NOTICE]


# --- tool steps


def ready(world: World) -> None:
    world.calling(planned("call_a", IDEMPOTENT), planned("call_z", ONCE))


def retrying(world: World) -> None:
    world.calling(planned("call_a", READ), planned("call_z", ONCE))
    world.breaks(world.start_call("call_a"), delay_ms=60_000)


def asking(world: World) -> None:
    world.calling(planned("call_a", ONCE, asks=True), planned("call_z", ONCE))


def given_back(world: World) -> None:
    world.calling(planned("call_a", ONCE), planned("call_z", ONCE))
    world.gives_back(world.start_call("call_a"))


def not_entered(world: World) -> None:
    world.calling(planned("call_a", IDEMPOTENT), planned("call_z", ONCE))
    world.breaks(world.start_call("call_a"), entered=False)


UNSTARTED = (ready, retrying, asking, given_back, not_entered)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("begin", UNSTARTED)
def test_what_nobody_started_is_cancelled_and_what_runs_goes_on(
    begin: Callable[[World], None], verb: ControlVerb
) -> None:
    world = World()
    begin(world)
    running = world.start_call("call_z")
    control(world, verb)
    assert world.status("call_a") is CallStatus.CANCELLED
    assert not world.has_step("call_a")
    assert world.step_is_open(running), "what started is never stopped"
    assert world.turn.id == "t1"
    world.ended(running, result="it is done")
    assert world.status("call_z") is CallStatus.SUCCEEDED
    reason = (
        "The user sent a new message instead." if verb is STEER else "The user stopped the turn."
    )
    assert next(text for role, text in world.conversation if role is Role.TOOL).endswith(reason)
    assert_turn_ended(world, verb)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("begin", UNSTARTED)
def test_where_nothing_runs_the_control_takes_effect_at_once(
    begin: Callable[[World], None], verb: ControlVerb
) -> None:
    world = World()
    begin(world)
    control(world, verb)
    assert_turn_ended(world, verb)


@pytest.mark.parametrize("verb", VERBS)
def test_a_read_that_was_tried_is_not_said_to_be_cancelled_before_it_ran(verb: ControlVerb) -> None:
    world = World()
    retrying(world)
    control(world, verb)
    text = next(text for role, text in world.conversation if role is Role.TOOL)
    assert "cancelled" in text
    assert "before it ran" not in text


@pytest.mark.parametrize("verb", VERBS)
def test_a_write_whose_retry_was_stopped_is_unknown(verb: ControlVerb) -> None:
    world = World()
    world.calling(planned("call_a", IDEMPOTENT))
    world.breaks(world.start_call(), "connection reset")
    control(world, verb)
    assert world.status() is CallStatus.OUTCOME_UNKNOWN
    assert "connection reset" in world.error()
    assert [entry.id for entry in world.state.unknown] == ["call_a"]
    assert world.state.unknown[0].told_model
    assert_turn_ended(world, verb)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("effect", "entered", "status"),
    [
        (READ, True, CallStatus.FAILED),
        (IDEMPOTENT, True, CallStatus.OUTCOME_UNKNOWN),
        (ONCE, True, CallStatus.OUTCOME_UNKNOWN),
        (READ, False, CallStatus.FAILED),
        (IDEMPOTENT, False, CallStatus.FAILED),
        (ONCE, False, CallStatus.FAILED),
    ],
)
def test_an_attempt_that_breaks_under_control_is_not_repeated(
    verb: ControlVerb, effect: ToolEffect, entered: bool, status: CallStatus
) -> None:
    world = World()
    world.calling(planned("call_a", effect))
    step = world.start_call()
    control(world, verb)
    world.breaks(step, entered=entered)
    assert world.status() is status
    assert_turn_ended(world, verb)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("effect", [READ, IDEMPOTENT, ONCE])
def test_a_worker_lost_under_control_still_ends_the_turn(
    verb: ControlVerb, effect: ToolEffect
) -> None:
    world = World()
    world.calling(planned("call_a", effect))
    world.start_call()
    control(world, verb)
    world.lose_worker()
    assert_turn_ended(world, verb)


@pytest.mark.parametrize("verb", VERBS)
def test_a_call_given_back_under_control_is_cancelled(verb: ControlVerb) -> None:
    world = World()
    world.calling(planned("call_a", ONCE))
    step = world.start_call()
    control(world, verb)
    world.gives_back(step)
    assert world.status() is CallStatus.CANCELLED
    assert_turn_ended(world, verb)


# --- order


def test_mh_02_nothing_is_ever_placed_between_calls_and_their_results() -> None:
    world = World()
    world.calling(planned("call_a"), planned("call_b"))
    slow = world.start_call("call_b")
    world.ended(world.start_call("call_a"), result="first")
    world.steer(world.send("use blue instead"))
    world.send("and hurry")
    assert world.roles == [Role.USER, Role.ASSISTANT]
    world.ended(slow, result="second")
    assert world.conversation[2:] == [
        (Role.TOOL, "first"),
        (Role.TOOL, "second"),
        (Role.USER, "use blue instead"),
    ]
    assert [item.id for item in world.state.queue] == ["and hurry"]
    world.reply(text="blue it is")
    assert world.conversation[-1] == (Role.USER, "and hurry")
    assert world.turn.id == "t3"


def test_mh_02_a_notice_of_ours_comes_after_the_results_too() -> None:
    world = World()
    world.calling(planned("call_a", ONCE))
    world.breaks(world.start_call())
    world.reply(planned("call_b"), planned("call_c"))
    step = world.start_call("call_b")
    world.reconcile(succeeded=True)
    world.cancel()
    world.ended(step)
    assert world.roles[-4:] == [Role.ASSISTANT, Role.TOOL, Role.TOOL, Role.NOTICE]


# --- what a control is


def test_steering_takes_all_its_messages_in_the_queues_order_and_leaves_the_others() -> None:
    world = World()
    world.calling(planned("call_a"))
    step = world.start_call()
    for text in ("one", "two", "three", "four"):
        world.send(text)
    world.steer("three", "one")
    world.steer("four")
    world.ended(step)
    assert world.turn.message_ids == ("one", "three", "four")
    assert [item.id for item in world.state.queue] == ["two"]


def test_a_steered_message_may_still_be_deleted_and_then_does_not_come_back() -> None:
    world = World()
    world.calling(planned("call_a"))
    step = world.start_call()
    world.steer(world.send("use blue instead"))
    world.apply(QueuedMessageDeleted("use blue instead"))
    world.ended(step)
    assert world.ended_turns() == ["steered"]
    assert world.idle


def test_steering_an_idle_session_begins_a_turn_with_the_messages() -> None:
    world = World()
    world.send("hello")
    world.send("left over")
    world.cancel()
    assert world.idle
    assert world.steer("left over")
    assert world.turn.message_ids == ("left over",)


def test_steering_needs_messages_that_wait() -> None:
    world = World()
    world.send("hello")
    with pytest.raises(Conflict) as nothing:
        world.steer()
    assert nothing.value.code == "nothing_to_steer"
    with pytest.raises(NotFound) as unknown:
        world.steer("hello")
    assert unknown.value.code == "unknown_message"
    assert world.turn.control is None


def test_a_stop_begins_no_turn_and_keeps_the_queue() -> None:
    world = World()
    world.send("hello")
    world.send("later")
    world.cancel()
    assert world.idle
    assert [item.id for item in world.state.queue] == ["later"]
    world.send("now")
    assert world.turn.message_ids == ("later",)
    world.reply()
    assert world.turn.message_ids == ("now",)


def test_a_stop_belongs_to_one_turn_only() -> None:
    world = World()
    world.calling(planned("call_a"))
    step = world.start_call()
    world.cancel(turn_id="t1")
    world.ended(step)
    world.send("again")
    assert world.turn.control is None
    with pytest.raises(Conflict) as ended:
        world.cancel(turn_id="t1")
    assert ended.value.code == "turn_ended"
    world.reply(text="an answer")
    assert world.ended_turns() == ["cancelled", "answered"]


def test_stopping_an_idle_session_is_refused() -> None:
    world = World()
    with pytest.raises(Conflict) as caught:
        world.cancel()
    assert caught.value.code == "no_open_turn"


def test_a_stop_pressed_twice_counts_once() -> None:
    world = World()
    world.send("hello")
    world.start_model()
    assert world.cancel()
    before = world.state
    assert not world.cancel(by="Bob")
    assert world.state is before


@pytest.mark.parametrize("verbs", list(itertools.permutations(VERBS)))
def test_the_last_control_wins_and_no_message_is_lost(
    verbs: tuple[ControlVerb, ControlVerb],
) -> None:
    world = World()
    world.send("hello")
    step = world.start_model()
    for verb in verbs:
        control(world, verb)
    world.reply(step=step)
    if verbs[-1] is STEER:
        assert world.turn.message_ids == ("use blue instead",)
    else:
        assert world.idle
        assert [item.id for item in world.state.queue] == ["use blue instead"]


def test_the_history_says_who_controlled_the_turn() -> None:
    world = World()
    world.send("hello")
    world.cancel(by="Bob")
    record = next(one for one in world.history if one.name is StepName.APPLY_TURN_CONTROL)
    assert record.note == "cancel_turn by Bob"
