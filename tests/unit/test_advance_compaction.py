"""Compaction: when it may happen, what it leaves, and that a failing one loses nothing."""

from __future__ import annotations

import pytest

from celeriac.sessions.calls import CallStatus
from celeriac.sessions.events import EventType
from celeriac.sessions.inputs import ContextCompacted, ModelInterrupted, ModelReplied
from celeriac.sessions.messages import Role, Usage
from celeriac.sessions.state import MOST_COMPACTIONS, SessionStatus, StepName
from tests.unit.world import ONCE, World, planned


@pytest.fixture
def world() -> World:
    """A session with one turn behind it (seq 0 and 1) and one that begins (seq 2)."""
    world = World()
    world.send("first")
    world.reply(text="first answer")
    world.send("second")
    return world


def test_a_full_context_is_summarised_before_the_model_is_called(world: World) -> None:
    assert world.finds_full(2)
    assert world.steps == [StepName.COMPACT_CONTEXT]
    assert world.sent[-1].name is StepName.COMPACT_CONTEXT
    assert world.state.status is SessionStatus.RUNNING
    assert world.compacts("They said hello.")
    assert world.steps == [StepName.RUN_MODEL]
    assert [(m.role, m.text) for m in world.context] == [
        (Role.SUMMARY, "They said hello."),
        (Role.USER, "second"),
    ]
    assert world.log[3].covers_before == world.state.context_from == 2
    world.reply(text="second answer")
    assert world.idle
    assert world.roles == [
        Role.USER,
        Role.ASSISTANT,
        Role.USER,
        Role.SUMMARY,
        Role.ASSISTANT,
    ]


def test_the_steps_are_in_the_history_and_no_attempt_is_counted(world: World) -> None:
    world.finds_full(2)
    world.compacts()
    world.reply()
    assert [(r.name, r.status, r.attempt) for r in world.history[-3:]] == [
        (StepName.RUN_MODEL, "returned", 1),
        (StepName.COMPACT_CONTEXT, "succeeded", 1),
        (StepName.RUN_MODEL, "succeeded", 1),
    ]
    assert "9 tokens" in (world.history[-3].note or "")


def test_the_summarys_tokens_are_counted(world: World) -> None:
    world.finds_full(2)
    world.compacts()
    world.reply()
    assert world.state.usage.input_tokens == 100
    assert world.state.usage.model_calls == 3


def test_a_further_summary_covers_the_one_before(world: World) -> None:
    world.finds_full(2)
    world.compacts("one")
    world.reply()
    world.send("third")  # seq 5, after the summary 3 and the answer 4
    world.finds_full(4)
    world.compacts("two")
    assert [message.text for message in world.context] == ["two", "done", "third"]


def test_mh_04_compaction_never_runs_while_a_call_is_open(world: World) -> None:
    """`check_state` holds that no step of the model is open beside a call; here is the usual way."""
    world.reply(planned("call_a", asks=True))
    assert world.steps == [StepName.AWAIT_TOOL_APPROVAL]
    world.approve()
    world.ended(world.start_call())
    assert world.steps == [StepName.RUN_MODEL]
    world.finds_full(3)
    world.compacts()
    assert [m.role for m in world.context] == [Role.SUMMARY, Role.ASSISTANT, Role.TOOL]


def test_mh_04_a_summary_says_which_outcomes_are_unknown(world: World) -> None:
    world.reply(planned("call_pay", ONCE))
    world.breaks(world.start_call("call_pay"))
    world.reply()
    world.send("third")
    world.finds_full(world.log[-1].seq)
    world.compacts("Something was paid.")
    assert world.context[0].text.startswith("Something was paid.\n\nCalls whose outcome is still")
    assert "call_pay of pay_tool" in world.context[0].text


def test_mh_04_a_result_that_comes_after_its_call_was_summarised_counts(world: World) -> None:
    world.reply(planned("call_pay", ONCE))
    step = world.start_call("call_pay")
    world.lose_worker()
    world.reply()
    world.send("third")
    world.finds_full(world.log[-1].seq)
    world.compacts()
    world.reply()
    assert world.ended(step, result="paid")
    assert world.status("call_pay") is CallStatus.SUCCEEDED
    world.send("fourth")
    assert "it did happen" in world.context[-2].text


def test_mh_04_a_summary_that_fails_three_times_fails_the_turn_and_loses_nothing(
    world: World,
) -> None:
    world.finds_full(2)
    for number in range(3):
        world.wait_for_retry()
        step = world.start_compaction()
        assert step.attempt == number + 1
        world.breaks(step, "the summary is empty")
    assert world.idle
    assert world.ended_turns()[-1] == "failed"
    notice = world.log[-1].text
    assert "could not be summarised, nothing of them is lost" in notice
    assert "failed 3 times; the last error: the summary is empty" in notice
    assert world.state.context_from == 0
    assert [m.text for m in world.context][:3] == ["first", "first answer", "second"]
    assert StepName.RECORD_TURN_FAILURE in world.route
    world.send("third")
    assert world.finds_full(2), "the next message tries again"
    assert world.compacts()


def test_a_failed_attempt_withdraws_no_text(world: World) -> None:
    world.finds_full(2)
    world.breaks(world.start_compaction())
    assert EventType.TEXT_WITHDRAWN not in {event.type for event in world.events}


def test_the_wait_that_a_provider_asks_for_is_honoured(world: World) -> None:
    world.finds_full(2)
    world.breaks(world.start_compaction(), delay_ms=7_000)
    assert world.looks == (SessionStatus.RUNNING, 7_000)


def test_a_lost_worker_costs_one_attempt(world: World) -> None:
    world.finds_full(2)
    late = world.start_compaction()
    world.lose_worker()
    assert world.compacts("again")
    assert not world.compacts("late", step=late)
    assert [m.text for m in world.log if m.role is Role.SUMMARY] == ["again"]


@pytest.mark.parametrize("started", [False, True])
def test_stop_ends_a_compaction_and_keeps_nothing_of_it(world: World, started: bool) -> None:
    world.finds_full(2)
    if started:
        step = world.start_compaction()
        world.cancel()
        assert world.apply(ModelInterrupted(step.id, step.timing.token, ""))
    else:
        world.cancel()
    assert world.idle
    assert world.state.context_from == 0
    assert world.roles == [Role.USER, Role.ASSISTANT, Role.USER, Role.NOTICE]
    assert world.history[-2].name is StepName.COMPACT_CONTEXT
    assert world.history[-2].status == "cancelled"


def test_stop_before_the_context_is_found_full_starts_no_compaction(world: World) -> None:
    step = world.start_model()
    world.cancel()
    assert world.finds_full(2, step)
    assert world.idle


def test_steer_waits_for_a_running_summary_and_uses_it(world: World) -> None:
    world.finds_full(2)
    step = world.start_compaction()
    world.send("instead")
    world.steer("instead")
    world.compacts("short", step=step)
    assert world.steps == [StepName.RUN_MODEL]
    assert [m.text for m in world.context] == ["short", "second", "instead"]


def test_steer_takes_the_place_of_a_summary_that_nobody_began(world: World) -> None:
    world.finds_full(2)
    world.send("instead")
    world.steer("instead")
    assert world.steps == [StepName.RUN_MODEL]
    assert world.state.context_from == 0


def test_compactions_that_do_not_help_are_few_and_a_reply_that_fits_forgets_them(
    world: World,
) -> None:
    for _ in range(MOST_COMPACTIONS):
        assert world.turn.may_compact
        world.finds_full(2)
        world.compacts()
    assert not world.turn.may_compact
    model = world.start_model()
    call = planned()
    assert world.apply(ModelReplied(model.id, model.timing.token, "", [call], context_full=True))
    world.ended(world.start_call())
    assert not world.turn.may_compact, "it was called all the same, which changes nothing"
    world.reply(planned("call_b"))
    world.ended(world.start_call("call_b"))
    assert world.turn.may_compact


def test_a_context_that_the_provider_refused_is_compacted_for_that_once(world: World) -> None:
    world.finds_full(2, refused=True)
    assert world.turn.refused_as_too_large
    withdrawn = [e.data for e in world.events if e.type is EventType.TEXT_WITHDRAWN]
    assert len(withdrawn) == 1, "the provider may have streamed before it refused"
    world.compacts()
    assert world.turn.refused_as_too_large
    world.reply(planned("call_a"))
    assert not world.turn.refused_as_too_large


def test_a_summary_counts_with_its_facts(world: World) -> None:
    world.finds_full(2)
    step = world.start_compaction()
    usage = Usage(input_tokens=9, output_tokens=3, cost_usd=0.25)
    compacted = ContextCompacted(
        step.id, step.timing.token, "So it was.", usage, "m", finish_reason="stop", latency_ms=40
    )
    world.apply(compacted)
    [record] = [entry for entry in world.history if entry.name is StepName.COMPACT_CONTEXT]
    for kept in (world.log[-1], record):
        assert (kept.model, kept.usage, kept.finish_reason) == ("m", usage, "stop")
        assert kept.latency_ms == 40
    assert world.turn.usage == usage.of_one_call()


def test_a_summary_that_is_not_used_counts_too(world: World) -> None:
    world.finds_full(2)
    world.breaks(world.start_compaction(), usage=Usage(input_tokens=9, cost_usd=0.25))
    assert world.turn.usage.cost_usd == 0.25
    assert world.turn.usage.uncounted_calls == 1
