"""What every harness does alike. Each step runs with agents loaded anew; the store alone connects them."""

from __future__ import annotations

import json
from itertools import permutations

import pytest

from celeriac.sessions.calls import DecisionVerb
from celeriac.sessions.events import EventType
from celeriac.sessions.ids import CALL_ID_PATTERN
from celeriac.sessions.messages import Role
from celeriac.sessions.state import SessionStatus
from tests.harness.driver import Driver
from tests.harness.kits import those_that_have
from tests.tasks.cluster import assert_history_holds

APPROVE, REJECT = DecisionVerb.APPROVE, DecisionVerb.REJECT
TURN = ["AwaitUserMessage", "RunModel"]


def calls(*wanted: tuple[str, object]) -> str:
    return "/calls " + json.dumps(wanted)


def pays(*items: str) -> str:
    return calls(*(("pay", {"item": item}) for item in items))


def test_a_question_is_answered(driver: Driver) -> None:
    sid = driver.start("hello")
    assert driver.answer(sid) == f"{driver.kit.name} heard: hello"
    assert driver.steps(sid) == ["StartAgentSession", *TURN]


def test_a_look_up_has_these_steps(driver: Driver) -> None:
    sid = driver.start(calls(("look", {"item": "a spade"})))
    assert driver.answer(sid) == "Results: a spade is there"
    assert driver.steps(sid) == ["StartAgentSession", *TURN, "CallTool", "ResumeTurn", "RunModel"]
    first, _ = (m for m in driver.snapshot(sid).messages if m.role is Role.ASSISTANT)
    assert first.text == "Let me see. "
    assert len(driver.requests()) == 2


def test_a_write_waits_for_a_person_and_has_these_steps(driver: Driver) -> None:
    sid = driver.start(pays("a rake"))
    (call,) = driver.awaiting(sid)
    assert CALL_ID_PATTERN.fullmatch(call.id)
    assert (call.tool, call.arguments, driver.notes("pay")) == ("pay", {"item": "a rake"}, [])
    assert driver.snapshot(sid).status is SessionStatus.WAITING
    driver.decide(sid, call, APPROVE)
    assert driver.answer(sid) == "Results: a rake is paid"
    assert driver.notes("pay") == [("pay", "a rake")]
    assert driver.steps(sid)[3:] == [
        "AwaitToolApproval",
        "CallSingleAttemptTool",
        "ResumeTurn",
        "RunModel",
    ]


def test_parallel_calls_are_answered_together_and_in_their_order(driver: Driver) -> None:
    sid = driver.start(calls(("look", {"item": "one"}), ("look", {"item": "two"})))
    assert driver.answer(sid) == "Results: one is there | two is there"
    assert len(driver.requests()) == 2
    assert_history_holds(driver.snapshot(sid))


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_three_calls_are_decided_in_any_order(driver: Driver, order: tuple[int, ...]) -> None:
    sid = driver.start(pays("one", "two", "three"))
    waiting = driver.awaiting(sid)
    for at in order:
        driver.decide(sid, waiting[at], REJECT if at == 1 else APPROVE)
    assert sorted(str(item) for _, item in driver.notes("pay")) == ["one", "three"]
    said = driver.answer(sid).removeprefix("Results: ").split(" | ")
    assert (said[0], said[2]) == ("one is paid", "three is paid")
    assert "A person rejected this call of pay" in said[1]
    assert len(driver.requests()) == 2


def test_dh_04_a_call_settled_at_once_beside_calls_that_wait(driver: Driver) -> None:
    sid = driver.start(
        calls(("missing", {"item": "x"}), ("pay", {"item": "a"}), ("pay", {"item": "b"}))
    )
    for call, verb in zip(driver.awaiting(sid), (APPROVE, REJECT), strict=True):
        assert len(driver.requests()) == 1
        driver.decide(sid, call, verb)
    results = driver.requests()[1][-3:]
    assert [one.split(" ")[0] for one in results] == ["tool:", "tool:", "tool:"]
    assert "there is no x" in results[0]
    assert "a is paid" in results[1]
    assert "rejected" in results[2]


def test_dh_10_the_rejected_tool_is_never_entered(driver: Driver) -> None:
    sid = driver.start(pays("one", "two", "three"))
    one, two, _ = driver.awaiting(sid)
    driver.decide(sid, one, REJECT)
    driver.decide(sid, two, APPROVE)
    driver.client.decide(sid, two.id, APPROVE, by="ana", digest=two.digest)
    driver.run(sid)
    assert driver.notes("pay") == [("pay", "two")]
    assert len(driver.awaiting(sid)) == 1
    assert len(driver.requests()) == 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("missing", {"item": "gold"}), "there is no gold"),
        (("look", {"thing": 1}), "invalid arguments"),
        (("broke", {"item": "a pot"}), "Outcome unknown"),
    ],
    ids=["it fails", "wrong arguments", "outcome unknown"],
)
def test_the_model_reads_why_there_is_no_result(
    driver: Driver, call: tuple[str, object], words: str
) -> None:
    sid = driver.start(calls(call))
    assert words in driver.answer(sid)
    driver.say(sid, "and now?")
    assert driver.answer(sid) == f"{driver.kit.name} heard: and now?"


@those_that_have("raw arguments")
def test_arguments_that_are_no_json_are_told_to_the_model(driver: Driver) -> None:
    sid = driver.start(calls(("look", "{not json")))
    assert "not JSON" in driver.answer(sid)
    assert driver.notes("look") == []


def test_an_unknown_tool_is_told_to_the_model(driver: Driver) -> None:
    sid = driver.start(calls(("nonesuch", {})))
    assert "nonesuch" in driver.answer(sid)
    assert driver.snapshot(sid).status is SessionStatus.IDLE


def test_dh_08_four_endings_have_four_texts(driver: Driver) -> None:
    sid = driver.start(calls(("broke", {"item": "x"}), ("pay", {"item": "y"})))
    (call,) = driver.awaiting(sid)
    driver.decide(sid, call, REJECT)
    unknown, rejected = driver.answer(sid).removeprefix("Results: ").split(" | ")
    driver.say(sid, pays("z"))
    driver.client.cancel_turn(sid)
    driver.run(sid)
    driver.say(sid, "/recall")
    cancelled = driver.answer(sid)
    assert "may or may not" in unknown
    assert "person rejected" in rejected
    assert "was cancelled while it waited for approval" in cancelled


def test_the_next_turn_remembers(driver: Driver) -> None:
    sid = driver.start(calls(("look", {"item": "a spade"})))
    driver.say(sid, "/recall")
    said = driver.answer(sid)
    assert "tool: a spade is there" in said
    assert "assistant: Results: a spade is there" in said


def test_a_steer_ends_the_turn_and_the_next_one_knows_it(driver: Driver) -> None:
    sid = driver.start(pays("a cart"))
    queued = driver.client.send_message(sid, "/recall")
    driver.client.steer(sid, message_ids=(queued.message_id,))
    driver.run(sid)
    said = driver.answer(sid)
    assert "cancelled" in said
    assert "user: /recall" in said
    assert driver.notes("pay") == []


def test_what_is_queued_comes_after_the_answer(driver: Driver) -> None:
    sid = driver.start(pays("a cart"))
    driver.client.send_message(sid, "thanks")
    (call,) = driver.awaiting(sid)
    driver.decide(sid, call, APPROVE)
    said = [m.text for m in driver.snapshot(sid).messages if m.role is Role.ASSISTANT]
    assert said[1:] == ["Results: a cart is paid", f"{driver.kit.name} heard: thanks"]


def test_tools_of_sources_are_there_and_ordered_writes_keep_their_order(driver: Driver) -> None:
    puts = [("shelf_put", {"item": item}) for item in ("pot", "anvil", "jar")]
    sid = driver.start(calls(*puts))
    said = driver.answer(sid).removeprefix("Results: ").split(" | ")
    assert said[0] == "pot is on the shelf"
    assert "does not bear" in said[1]
    assert "jar is on the shelf" not in said[2]
    began = [str(item) for _, item in driver.notes("shelf begins")]
    assert began == ["pot", "anvil"]


def test_text_is_streamed_and_usage_counted(driver: Driver) -> None:
    sid = driver.start(calls(("look", {"item": "a spade"})))
    events = driver.live_events(sid)
    texts = [str(one.data["text"]) for one in events if one.type is EventType.TEXT_DELTA]
    assert "".join(texts) == "Let me see. Results: a spade is there"
    if "reasoning" in driver.kit.has:
        assert any(one.type is EventType.REASONING_DELTA for one in events)
    usage = driver.runtime.store.load(sid).state.usage
    assert usage.model_calls == 2
    assert usage.input_tokens
    assert usage.output_tokens


@those_that_have("compaction")
def test_older_messages_are_summarised_in_mid_turn_too(driver: Driver) -> None:
    sid = driver.start("say " + "blah " * 600, agent=f"{driver.kit.name}-small")
    driver.say(sid, calls(("look", {"item": "x" * 1500})))
    assert "CompactContext" in driver.steps(sid)
    assert driver.snapshot(sid).status is SessionStatus.IDLE
    assert driver.answer(sid).startswith("Results: ")
    assert any("SUMMARY" in text for text in driver.requests()[-1])
    assert not any("blah" in text for text in driver.requests()[-1])


@those_that_have("handoff")
def test_an_agent_hands_over_and_the_other_goes_on(driver: Driver) -> None:
    sid = driver.start("/hand clerk")
    assert driver.answer(sid) == "clerk here."
    assert driver.steps(sid) == ["StartAgentSession", *TURN]
    driver.say(sid, "still there?")
    assert driver.answer(sid) == "clerk heard: still there?"


def test_a_crash_before_the_commit_repeats_one_model_call(driver: Driver) -> None:
    sid = driver.start(calls(("look", {"item": "a"}), ("pay", {"item": "b"})))
    (call,) = driver.awaiting(sid)
    driver.client.decide(sid, call.id, APPROVE, by="ana", digest=call.digest)
    driver.run(sid, most=1)
    before = driver.runtime.store.harness_snapshot(sid)
    with driver.lost_commit():
        driver.run(sid, most=1)
    assert driver.runtime.store.harness_snapshot(sid) == before
    driver.lease_is_over(sid)
    driver.run(sid)
    assert driver.answer(sid) == "Results: a is there | b is paid"
    assert len(driver.requests()) == 3
    assert driver.requests()[1] == driver.requests()[2]
    assert driver.notes("pay") == [("pay", "b")]


def test_without_its_snapshot_it_goes_on_from_the_conversation(driver: Driver) -> None:
    sid = driver.start(pays("a", "b"))
    one, two = driver.awaiting(sid)
    driver.runtime.store.client.delete(driver.keys(sid).harness)
    driver.decide(sid, one, APPROVE)
    driver.decide(sid, two, REJECT)
    assert driver.answer(sid).startswith("Results: a is paid | ")
    assert_history_holds(driver.snapshot(sid))


def test_two_sessions_in_the_same_state_do_not_mix(driver: Driver) -> None:
    first, second = (driver.start(pays("the same")) for _ in range(2))
    driver.decide(second, driver.awaiting(second)[0], REJECT)
    driver.decide(first, driver.awaiting(first)[0], APPROVE)
    assert driver.answer(first) == "Results: the same is paid"
    assert "rejected" in driver.answer(second)
    assert driver.notes("pay") == [("pay", "the same")]


def test_a_tool_without_a_policy_is_a_write_that_asks(driver: Driver) -> None:
    definitions = driver.runtime.toolset(driver.runtime.agents[driver.kit.name]).definitions
    pay = next(one for one in definitions if one.name == "pay")
    assert (pay.effect.value, pay.approval) == ("non_idempotent_write", True)


def test_the_snapshot_of_a_finished_turn_is_small_or_gone(driver: Driver) -> None:
    sid = driver.start(calls(("look", {"item": "x" * 5_000})))
    assert len(driver.runtime.store.harness_snapshot(sid) or "") < 200
