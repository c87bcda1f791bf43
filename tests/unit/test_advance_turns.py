"""How turns begin, go from step to step, and end."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from celeriac.sessions.advance import start
from celeriac.sessions.calls import DID_NOT_RUN, CallStatus
from celeriac.sessions.draft import Rules
from celeriac.sessions.errors import NotFound
from celeriac.sessions.events import EventType
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.inputs import (
    MessageSent,
    ModelInterrupted,
    ModelReplied,
    QueuedMessageDeleted,
)
from celeriac.sessions.messages import Role, Usage, turn_usage
from celeriac.sessions.state import SessionStatus, StepName
from tests.unit.world import IDEMPOTENT, NOON, ONCE, READ, World, planned


def test_a_new_session_is_idle_and_says_how_it_began() -> None:
    change = start("ses_1", "support", "demo", NOON)
    assert change.state.status is SessionStatus.IDLE
    assert change.state.wake_at is None
    assert [record.name for record in change.history] == [StepName.START_AGENT_SESSION]


def test_a_message_to_an_idle_session_begins_a_turn() -> None:
    world = World()
    world.send("hello")
    assert world.conversation == [(Role.USER, "hello")]
    assert world.turn.message_ids == ("hello",)
    assert world.steps == [StepName.RUN_MODEL]
    assert world.state.status is SessionStatus.RUNNING
    assert world.sent == list(world.state.steps)


def test_the_first_line_of_the_first_message_is_the_title() -> None:
    world = World()
    world.send("  Where is my order?\nIt was due on Monday.", "m1")
    world.reply()
    world.send("another thing", "m2")
    assert world.state.title == "Where is my order?"


def test_a_long_title_is_cut() -> None:
    world = World()
    world.send("é" * 500, "m1")
    assert world.state.title == "é" * 80


def test_a_final_answer_ends_the_turn() -> None:
    world = World()
    world.send("hello")
    world.reply(text="hi there")
    assert world.idle
    assert world.conversation == [(Role.USER, "hello"), (Role.ASSISTANT, "hi there")]
    assert world.ended_turns() == ["answered"]
    assert world.route == [
        StepName.START_AGENT_SESSION,
        StepName.AWAIT_USER_MESSAGE,
        StepName.RUN_MODEL,
    ]


def test_calls_are_each_a_step_of_their_own_and_run_side_by_side() -> None:
    world = World()
    world.calling(planned("call_a", READ), planned("call_b", IDEMPOTENT), planned("call_c", ONCE))
    assert world.steps == [
        StepName.CALL_TOOL,
        StepName.CALL_TOOL,
        StepName.CALL_SINGLE_ATTEMPT_TOOL,
    ]
    assert [step.call_id for step in world.sent[1:]] == ["call_a", "call_b", "call_c"]
    for call_id in ("call_a", "call_b", "call_c"):
        world.start_call(call_id)


def test_results_are_appended_together_in_call_order_whatever_order_they_came_in() -> None:
    world = World()
    world.calling(planned("call_a"), planned("call_b"), planned("call_c"))
    for call_id in ("call_c", "call_a", "call_b"):
        assert world.roles == [Role.USER, Role.ASSISTANT]
        world.ended(world.start_call(call_id), result=f"result of {call_id}")
    assert world.conversation[2:] == [
        (Role.TOOL, "result of call_a"),
        (Role.TOOL, "result of call_b"),
        (Role.TOOL, "result of call_c"),
    ]
    assert world.steps == [StepName.RUN_MODEL]
    assert world.route[-1] is StepName.RESUME_TURN


def test_a_turn_goes_on_over_several_responses() -> None:
    world = World()
    world.calling(planned("call_a"))
    world.ended(world.start_call("call_a"))
    world.reply(planned("call_b"))
    world.ended(world.start_call("call_b"))
    assert world.turn.model_calls == 2
    world.reply(text="both are done")
    assert world.idle
    assert world.ended_turns() == ["answered"]


def test_calls_that_cannot_run_are_failed_at_once_and_the_model_is_asked_again() -> None:
    world = World()
    world.calling(planned("call_a", refused="there is no tool 'x'"))
    assert world.status() is CallStatus.FAILED
    assert world.error() == DID_NOT_RUN + "there is no tool 'x'"
    assert world.outcomes["call_a"].attempts == 0
    assert world.conversation[-1] == (Role.TOOL, f"Error: {DID_NOT_RUN}there is no tool 'x'")
    assert world.steps == [StepName.RUN_MODEL]


def test_a_refused_call_does_not_hold_up_its_sibling() -> None:
    world = World()
    world.calling(planned("call_a", refused="wrong arguments"), planned("call_b"))
    world.ended(world.start_call("call_b"), result="fine")
    assert [text for _, text in world.conversation[2:]] == [
        f"Error: {DID_NOT_RUN}wrong arguments",
        "fine",
    ]


def test_a_response_with_text_and_calls_keeps_both() -> None:
    world = World()
    world.send("hello")
    world.reply(planned(), text="let me look")
    assert world.conversation[-1] == (Role.ASSISTANT, "let me look")
    assert [reference.id for reference in world.log[-1].calls] == ["call_a"]


def test_items_of_the_provider_are_kept_as_they_came() -> None:
    world = World()
    world.send("hello")
    step = world.start_model()
    items: tuple[JsonValue, ...] = (
        {"type": "reasoning", "encrypted": "AAA=="},
        {"type": "message", "n": 1.5},
    )
    world.apply(ModelReplied(step.id, step.timing.token, "hi", items=items, reasoning="hm"))
    assert world.log[-1].items == items
    assert world.log[-1].reasoning == "hm"


def test_usage_is_summed_for_the_turn_and_the_session_and_unknown_stays_unknown() -> None:
    world = World()
    for known in (Usage(input_tokens=10, cost_usd=0.5), Usage(input_tokens=5)):
        world.send("hello", f"m{world.state.turns}")
        step = world.start_model()
        world.apply(ModelReplied(step.id, step.timing.token, "hi", usage=known))
    assert world.state.usage == Usage(
        input_tokens=15, cost_usd=0.5, model_calls=2, uncounted_calls=2, unpriced_calls=1
    )
    assert world.state.usage.output_tokens is None


KNOWN = Usage(input_tokens=10, output_tokens=2, cached_tokens=8, cache_write_tokens=1, cost_usd=0.5)


def test_a_call_is_recorded_with_its_facts_in_its_message_and_in_the_history() -> None:
    world = World()
    world.send("hello")
    step = world.start_model()
    facts = {
        "model": "m",
        "reported_model": "m-2026-11-30",
        "finish_reason": "stop",
        "usage": KNOWN,
        "first_token_ms": 120,
        "latency_ms": 900,
    }
    world.apply(ModelReplied(step.id, step.timing.token, "hi", **facts))  # type: ignore[arg-type]
    [record] = [entry for entry in world.history if entry.id == step.id]
    for name, value in facts.items():
        assert getattr(world.log[-1], name) == value
        assert getattr(record, name) == value
    assert world.log[-1].turn_usage is None, "one call alone needs no sum"


def test_a_failed_attempt_that_reported_usage_counts_and_one_that_did_not_begin_does_not() -> None:
    world = World()
    world.send("hello")
    for usage in (KNOWN, None):
        step = world.start_model()
        world.breaks(step, usage=usage, kind=FailureKind.BROKEN)
        world.wait_for_retry()
    assert world.state.usage == KNOWN.of_one_call()
    failed = [entry for entry in world.history if entry.name is StepName.RUN_MODEL]
    assert [(entry.usage, entry.failure) for entry in failed] == [
        (KNOWN, FailureKind.BROKEN),
        (None, FailureKind.BROKEN),
    ]
    world.reply()
    assert world.log[-1].turn_usage == world.state.usage
    assert world.state.usage.model_calls == 2


def test_a_turn_that_failed_or_was_stopped_says_what_it_used_and_why_it_failed() -> None:
    world = World()
    world.send("hello")
    world.breaks(world.start_model(), retryable=False, usage=KNOWN, kind=FailureKind.QUOTA)
    assert world.log[-1].failure is FailureKind.QUOTA
    assert world.log[-1].turn_usage == KNOWN.of_one_call()
    world.send("again", "m2")
    step = world.start_model()
    world.cancel()
    world.apply(ModelInterrupted(step.id, step.timing.token, ""))
    unknown = world.log[-1].turn_usage
    assert unknown == Usage(model_calls=1, uncounted_calls=1, unpriced_calls=1)
    assert world.state.usage == KNOWN.of_one_call().plus(unknown)


# --- the queue


def test_a_message_sent_while_a_turn_runs_waits_and_interrupts_nothing() -> None:
    world = World()
    world.calling(planned("call_a"), planned("call_b", asks=True))
    steps = world.state.steps
    world.send("and another thing")
    assert world.state.steps == steps
    assert [item.id for item in world.state.queue] == ["and another thing"]
    assert (Role.USER, "and another thing") not in world.conversation


def test_queued_messages_each_begin_a_turn_in_their_order() -> None:
    world = World()
    for text in ("one", "two", "three"):
        world.send(text)
    for _ in range(3):
        world.reply(text="ok")
    assert [text for role, text in world.conversation if role is Role.USER] == [
        "one",
        "two",
        "three",
    ]
    assert world.ended_turns() == ["answered"] * 3
    assert world.idle


def test_a_queued_message_can_be_deleted_and_never_reaches_the_model() -> None:
    world = World()
    for text in ("one", "two", "three"):
        world.send(text)
    assert world.apply(QueuedMessageDeleted("two"))
    world.reply()
    world.reply()
    assert [text for role, text in world.conversation if role is Role.USER] == ["one", "three"]


@pytest.mark.parametrize("message_id", ["one", "never sent"])
def test_a_message_that_does_not_wait_cannot_be_deleted(message_id: str) -> None:
    world = World()
    world.send("one")
    with pytest.raises(NotFound) as caught:
        world.apply(QueuedMessageDeleted(message_id))
    assert caught.value.code == "unknown_message"


def test_pages_are_told_how_long_the_queue_is() -> None:
    world = World()
    for text in ("one", "two", "three"):
        world.send(text)
    world.apply(QueuedMessageDeleted("three"))
    world.reply()
    lengths = [e.data["length"] for e in world.events if e.type is EventType.QUEUE_CHANGED]
    assert lengths == [1, 2, 1, 0]


def test_plan_mode_belongs_to_the_message_that_asked_for_it() -> None:
    world = World()
    world.send("one")
    world.apply(MessageSent("two", "two", plan_mode=True))
    world.send("three")
    modes = []
    while not world.idle:
        modes.append(world.turn.plan_mode)
        world.reply()
    assert modes == [False, True, False]


# --- the model fails


@pytest.mark.parametrize("lost", [True, False])
def test_the_model_has_three_attempts_then_the_turn_fails_with_a_reason(lost: bool) -> None:
    world = World()
    world.send("hello")
    for attempt in (1, 2, 3):
        world.wait_for_retry()
        step = world.start_model()
        assert step.attempt == attempt
        if lost:
            world.lose_worker()
        else:
            world.breaks(step, "HTTP 503")
    assert world.idle
    role, text = world.conversation[-1]
    assert role is Role.NOTICE
    assert text.startswith("This turn failed: the model call failed 3 times; the last error: ")
    assert ("lost" if lost else "HTTP 503") in text
    assert world.route[-1] is StepName.RECORD_TURN_FAILURE
    assert world.ended_turns() == ["failed"]


def test_a_model_error_that_cannot_get_better_fails_the_turn_at_once() -> None:
    world = World()
    world.send("hello")
    world.breaks(world.start_model(), "HTTP 401: the key is wrong", retryable=False)
    assert world.idle
    assert world.conversation[-1] == (
        Role.NOTICE,
        "This turn failed: HTTP 401: the key is wrong",
    )


def test_a_failed_turn_lets_the_next_queued_message_begin_its_own() -> None:
    world = World()
    world.send("one")
    world.send("two")
    world.breaks(world.start_model(), retryable=False)
    assert world.turn.message_ids == ("two",)
    assert world.roles == [Role.USER, Role.NOTICE, Role.USER]


def test_a_wait_that_the_provider_asks_for_is_kept_without_a_worker() -> None:
    world = World()
    world.send("hello")
    world.breaks(world.start_model(), "HTTP 429", delay_ms=120_000)
    step = world.state.steps[0]
    assert not step.timing.claimed
    assert step.timing.not_before == world.now + 120_000
    assert world.state.wake_at == world.now + 120_000
    assert world.claim(step) is None
    assert world.sent == [world.sent[0]], "no message waits in the broker"
    world.pass_time(120_000)
    world.wake()
    assert [one.id for one in world.sent] == [step.id, step.id]
    world.reply()
    assert world.ended_turns() == ["answered"]


def test_a_wait_over_the_limit_fails_the_turn_and_says_how_long_it_was() -> None:
    world = World(Rules(provider_wait_max_ms=60_000))
    world.send("hello")
    world.breaks(world.start_model(), "HTTP 429", delay_ms=3_600_000)
    assert world.idle
    assert "3600 s" in world.conversation[-1][1]


@pytest.mark.parametrize(
    ("attempts", "expected"), [(1, 1_000), (2, 2_000), (5, 16_000), (9, 30_000)]
)
def test_the_wait_before_a_retry_doubles_up_to_a_limit(attempts: int, expected: int) -> None:
    world = World(Rules(model_attempts=10))
    world.send("hello")
    for _ in range(attempts):
        world.wait_for_retry()
        world.breaks(world.start_model())
    assert world.state.steps[0].timing.not_before - world.now == expected


WAYS_TO_END = ["retried", "final", "lost", "broken after a stop", "stopped before any text"]


@pytest.mark.parametrize("way", WAYS_TO_END)
def test_what_an_attempt_streamed_is_withdrawn_however_it_ends_without_a_message(way: str) -> None:
    world = World()
    world.send("hello")
    step = world.start_model()
    if "stop" in way:
        world.cancel()
    match way:
        case "lost":
            world.lose_worker()
        case "stopped before any text":
            world.apply(ModelInterrupted(step.id, step.timing.token, " "))
        case _:
            world.breaks(step, retryable=way == "retried")
    withdrawn = [e.data for e in world.events if e.type is EventType.TEXT_WITHDRAWN]
    assert withdrawn == [{"step_id": step.id, "attempt": 1}]
    assert Role.ASSISTANT not in world.roles


def test_what_is_kept_is_not_withdrawn() -> None:
    world = World()
    world.send("hello")
    step = world.start_model()
    world.cancel()
    world.apply(ModelInterrupted(step.id, step.timing.token, "So far"))
    assert EventType.TEXT_WITHDRAWN not in {event.type for event in world.events}
    assert world.log[1].text == "So far"
    assert world.log[1].interrupted


def test_each_attempt_is_in_the_history_with_its_worker_and_its_error() -> None:
    world = World()
    world.send("hello")
    world.breaks(world.start_model(), "HTTP 500")
    world.wait_for_retry()
    world.reply()
    records = [record for record in world.history if record.name is StepName.RUN_MODEL]
    assert [(r.attempt, r.status, r.error) for r in records] == [
        (1, "failed", "HTTP 500"),
        (2, "succeeded", None),
    ]
    assert all(record.worker == "worker/1" for record in records)
    assert all(record.started_at <= record.ended_at for record in records)


def test_a_model_step_that_its_worker_gave_back_is_sent_again_as_the_same_attempt() -> None:
    world = World()
    world.send("hello")
    step = world.start_model()
    assert world.gives_back(step)
    again = world.start_model()
    assert (again.id, again.attempt) == (step.id, 1)
    assert again.timing.token != step.timing.token


def test_a_huge_error_is_in_the_history_and_not_in_the_state() -> None:
    world = World()
    world.send("hello")
    world.breaks(world.start_model(), "x" * 100_000)
    assert world.history[-1].error == "x" * 100_000
    assert (world.state.steps[0].last_error or "").startswith("xxx")


@pytest.mark.parametrize("late", ["reply", "broken", "given back"])
def test_what_a_lost_model_worker_reports_later_changes_nothing(late: str) -> None:
    world = World()
    world.send("hello")
    step = world.start_model()
    world.lose_worker()
    before = world.state
    if late == "reply":
        assert not world.apply(ModelReplied(step.id, step.timing.token, "late"))
    elif late == "broken":
        assert not world.breaks(step)
    else:
        assert not world.gives_back(step)
    assert world.state is before


def test_what_an_ended_turn_used_is_read_off_its_messages() -> None:
    world = World()
    world.send("hello")
    world.breaks(world.start_model(), usage=KNOWN)
    world.wait_for_retry()
    world.reply(planned("call_a"))
    world.ended(world.start_call())
    world.reply()
    assert turn_usage(world.log, "t1") == world.state.usage
    world.send("again", "m2")
    world.reply()
    assert turn_usage(world.log, "t2") == Usage().of_one_call()
    assert turn_usage(world.log, "t9") == Usage()
