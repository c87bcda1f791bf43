"""Approvals: each decision touches its own call, the first one wins, and what ran is what was shown."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celeriac.sessions.calls import CallStatus, DecisionVerb, ToolEffect
from celeriac.sessions.errors import Conflict, NotFound
from celeriac.sessions.messages import Role
from celeriac.sessions.state import SessionStatus, StepName
from tests.unit.world import EFFECTS, IDEMPOTENT, ONCE, READ, World, planned

APPROVE, REJECT = DecisionVerb.APPROVE, DecisionVerb.REJECT


def asking(effect: ToolEffect = ONCE) -> World:
    """A session with one call that asks."""
    world = World()
    world.calling(planned("call_a", effect, asks=True))
    return world


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_call_that_asks_waits_and_holds_no_worker_and_no_message(effect: ToolEffect) -> None:
    world = asking(effect)
    assert world.steps == [StepName.AWAIT_TOOL_APPROVAL]
    assert world.call().status is CallStatus.AWAITING_APPROVAL
    assert world.state.status is SessionStatus.WAITING
    assert world.state.wake_at is None
    assert len(world.sent) == 1, "only the model step was ever sent"


def test_a_wait_for_approval_outlives_any_time() -> None:
    world = asking()
    world.pass_time(400 * 24 * 3600 * 1000)
    assert not world.wake()
    world.approve()
    world.ended(world.start_call())
    assert world.status() is CallStatus.SUCCEEDED


@pytest.mark.parametrize("effect", EFFECTS)
def test_an_approved_call_runs_on_the_route_of_its_effect(effect: ToolEffect) -> None:
    world = asking(effect)
    assert world.approve()
    expected = StepName.CALL_SINGLE_ATTEMPT_TOOL if effect is ONCE else StepName.CALL_TOOL
    assert world.steps == [expected]
    decision = world.call().decision
    assert decision is not None
    assert (decision.verb, decision.by, decision.at, decision.digest) == (
        APPROVE,
        "Ann",
        world.now,
        "digest of call_a",
    )
    world.ended(world.start_call())
    assert world.outcomes["call_a"].decision == decision


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_rejected_call_never_runs_and_its_note_reaches_the_model(effect: ToolEffect) -> None:
    world = asking(effect)
    assert world.reject(note="wrong order")
    assert world.status() is CallStatus.REJECTED
    assert world.outcomes["call_a"].attempts == 0
    assert world.conversation[-1] == (
        Role.TOOL,
        "A person rejected this call of a_tool. It did not run. They said: wrong order",
    )
    assert world.steps == [StepName.RUN_MODEL]


def test_each_decision_touches_only_its_own_call() -> None:
    world = World()
    world.calling(*(planned(f"call_{name}", ONCE, asks=True) for name in "abc"), planned("call_d"))
    world.ended(world.start_call("call_d"))
    world.reject("call_a")
    world.approve("call_b")
    assert [call.status for call in world.turn.calls] == [
        CallStatus.REJECTED,
        CallStatus.PENDING,
        CallStatus.AWAITING_APPROVAL,
        CallStatus.SUCCEEDED,
    ]
    world.ended(world.start_call("call_b"))
    assert StepName.RUN_MODEL not in world.steps, (
        "the third call is undecided: no model step starts"
    )
    assert world.state.status is SessionStatus.WAITING
    world.approve("call_c")
    world.ended(world.start_call("call_c"))
    assert [message.call_id for message in world.log[2:]] == [f"call_{name}" for name in "abcd"]


# --- who comes first


@pytest.mark.parametrize("verb", [APPROVE, REJECT])
def test_the_same_decision_again_changes_nothing(verb: DecisionVerb) -> None:
    world = World()
    world.calling(planned("call_a", ONCE, asks=True), planned("call_b", asks=True))
    world.decide(verb)
    before = world.state
    assert not world.decide(verb, by="Bob")
    assert world.state is before
    assert len([step for step in world.sent if step.call_id == "call_a"]) == (verb is APPROVE)


@pytest.mark.parametrize(("first", "second"), [(APPROVE, REJECT), (REJECT, APPROVE)])
def test_another_decision_is_refused_and_says_who_decided_what_and_when(
    first: DecisionVerb, second: DecisionVerb
) -> None:
    world = World()
    world.calling(planned("call_a", ONCE, asks=True), planned("call_b", asks=True))
    world.decide(first)
    world.pass_time(5_000)
    with pytest.raises(Conflict, match=r"by Ann at 2026-11-30 \d\d:\d\d:\d\d UTC") as caught:
        world.decide(second, by="Bob")
    assert caught.value.code == "already_decided"
    assert ("approved" if first is APPROVE else "rejected") in str(caught.value)


@pytest.mark.parametrize("verb", [APPROVE, REJECT])
def test_a_decision_on_something_else_than_what_is_shown_is_refused(verb: DecisionVerb) -> None:
    world = asking()
    with pytest.raises(Conflict) as caught:
        world.decide(verb, digest="what was shown yesterday")
    assert caught.value.code == "changed"
    assert world.call().status is CallStatus.AWAITING_APPROVAL


@pytest.mark.parametrize("verb", [APPROVE, REJECT])
def test_a_call_that_never_asked_cannot_be_decided(verb: DecisionVerb) -> None:
    world = World()
    world.calling(planned("call_a", READ))
    with pytest.raises(Conflict) as caught:
        world.decide(verb)
    assert caught.value.code == "not_awaiting_approval"


def test_an_unknown_call_cannot_be_decided() -> None:
    world = asking()
    with pytest.raises(NotFound) as caught:
        world.decide(APPROVE, "call_z", digest="any")
    assert caught.value.code == "unknown_call"


def test_a_cancelled_call_cannot_be_approved_after_all() -> None:
    world = World()
    world.calling(planned("call_a", ONCE, asks=True), planned("call_b", ONCE))
    step = world.start_call("call_b")
    world.cancel()
    with pytest.raises(Conflict) as caught:
        world.approve()
    assert caught.value.code == "not_awaiting_approval"
    world.ended(step)
    assert world.status() is CallStatus.CANCELLED
    assert world.outcomes["call_a"].decision is None


# --- what ran is what was shown


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_changed_definition_asks_again_and_says_what_changed(effect: ToolEffect) -> None:
    world = asking(effect)
    world.approve()
    assert world.finds_changed(world.start_call(), "second digest")
    call = world.call()
    assert call.status is CallStatus.AWAITING_APPROVAL
    assert (call.digest, call.approval_reason) == ("second digest", "its text changed")
    assert call.decision is None, "the old decision says nothing about the new definition"
    with pytest.raises(Conflict) as caught:
        world.decide(APPROVE, digest="digest of call_a")
    assert caught.value.code == "changed"
    world.approve()
    decision = world.call().decision
    assert decision is not None
    assert decision.digest == "second digest"
    world.ended(world.start_call())
    assert world.status() is CallStatus.SUCCEEDED
    assert world.outcomes["call_a"].attempts == 1


def test_a_call_that_is_asked_again_may_be_rejected() -> None:
    world = asking()
    world.approve()
    world.finds_changed(world.start_call())
    world.reject()
    assert world.status() is CallStatus.REJECTED
    assert "did not run" in world.conversation[-1][1]


def test_an_effect_that_became_stricter_holds_for_the_open_call() -> None:
    """A tool that was a read when it was called is a write that runs once when it runs."""
    world = asking(READ)
    world.approve()
    world.finds_changed(world.start_call(), "second digest", ToolEffect.NON_IDEMPOTENT_WRITE)
    world.approve()
    step = world.start_call()
    assert step.name is StepName.CALL_SINGLE_ATTEMPT_TOOL
    world.breaks(step)
    assert world.status() is CallStatus.OUTCOME_UNKNOWN


def test_a_write_that_was_tried_is_not_asked_for_when_it_may_now_run_only_once() -> None:
    """Approving it would be a second run of what may have happened."""
    world = asking(IDEMPOTENT)
    world.approve()
    world.start_call()
    world.lose_worker()
    world.finds_changed(world.start_call(), "second digest", ToolEffect.NON_IDEMPOTENT_WRITE)
    assert world.status() is CallStatus.OUTCOME_UNKNOWN
    assert [entry.id for entry in world.state.unknown] == ["call_a"]
    assert world.state.steps[0].name is StepName.RUN_MODEL, "the turn goes on with that truth"


def changed_after_a_lost_attempt(effect: ToolEffect) -> World:
    """A call whose first attempt was lost and whose second found another definition."""
    world = asking(effect)
    world.approve()
    world.start_call()
    world.lose_worker()
    world.finds_changed(world.start_call())
    return world


def test_rejecting_a_write_that_was_tried_before_does_not_claim_that_it_did_not_run() -> None:
    world = changed_after_a_lost_attempt(IDEMPOTENT)
    world.reject(note="no more")
    outcome = world.outcomes["call_a"]
    assert outcome.status is CallStatus.OUTCOME_UNKNOWN
    assert outcome.decision is not None
    assert [entry.id for entry in world.state.unknown] == ["call_a"]
    text = world.conversation[-1][1]
    assert "may or may not have taken effect" in text
    assert "rejected" in text
    assert "no more" in text


def test_rejecting_a_read_that_was_tried_before_is_a_rejection() -> None:
    world = changed_after_a_lost_attempt(READ)
    world.reject()
    assert world.status() is CallStatus.REJECTED


def test_asking_again_gives_no_further_attempts() -> None:
    world = changed_after_a_lost_attempt(IDEMPOTENT)
    world.approve()
    step = world.start_call()
    assert step.attempt == 2, "the first attempt was handed to the tool"
    world.breaks(step)
    world.wait_for_retry()
    world.breaks(world.start_call())
    assert world.status() is CallStatus.OUTCOME_UNKNOWN
    assert world.outcomes["call_a"].attempts == 3


@pytest.mark.parametrize("stop", [World.cancel, lambda world: world.steer(world.send("blue"))])
def test_a_write_tried_before_and_waiting_again_is_unknown_when_the_turn_is_stopped(
    stop: Callable[[World], object],
) -> None:
    world = changed_after_a_lost_attempt(IDEMPOTENT)
    stop(world)
    assert world.status() is CallStatus.OUTCOME_UNKNOWN
    assert "None" not in world.error()


def test_a_definition_that_changed_while_the_turn_was_stopped_does_not_ask() -> None:
    world = asking()
    world.approve()
    step = world.start_call()
    world.cancel()
    world.finds_changed(step)
    assert world.idle
    assert world.status() is CallStatus.CANCELLED


def test_a_removed_tool_fails_the_approved_call_and_says_that_it_did_not_run() -> None:
    world = asking()
    world.approve()
    world.breaks(world.start_call(), "tool removed: no a_tool", entered=False, retryable=False)
    assert world.status() is CallStatus.FAILED
    assert world.error() == (
        "the tool did not run, so it is safe to call again: tool removed: no a_tool"
    )


# --- different facts have different words


def test_every_kind_of_ending_has_words_of_its_own() -> None:
    texts = {}
    world = asking()
    world.reject()
    texts["rejected"] = world.conversation[-1][1]

    world = World()
    world.calling(planned("call_a", ONCE, asks=True), planned("call_b"))
    step = world.start_call("call_b")
    world.cancel()
    world.ended(step)
    texts["cancelled"] = world.conversation[2][1]

    world = asking()
    world.approve()
    world.start_call()
    world.lose_worker()
    texts["unknown"] = world.conversation[-1][1]

    world = asking()
    world.approve()
    world.ended(world.start_call(), succeeded=False, error="no such order")
    texts["failed"] = world.conversation[-1][1]

    assert len(set(texts.values())) == 4
    assert [kind for kind, text in texts.items() if "rejected" in text] == ["rejected"]
    assert [kind for kind, text in texts.items() if "cancelled" in text] == ["cancelled"]
    assert [kind for kind, text in texts.items() if "may or may not" in text] == ["unknown"]
