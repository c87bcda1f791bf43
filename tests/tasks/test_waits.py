"""Questions, timers, plans and late results on real workers that come and go."""

from __future__ import annotations

import hashlib
from pathlib import Path

import httpx
import pytest

from celeriac.sessions.calls import CallStatus, DecisionVerb
from celeriac.sessions.errors import Conflict
from celeriac.sessions.messages import Role
from celeriac.sessions.plans import PlanStatus
from celeriac.sessions.snapshot import Snapshot
from celeriac.sessions.state import SessionStatus
from tests.store.moved_clock import clock_ahead, needs_moved_clock
from tests.tasks.cluster import PATIENCE, Cluster, assert_history_holds, last_answer, results
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("waits")]

DAY = 24 * 3600


@pytest.fixture
def one(cluster: Cluster) -> Cluster:
    """One worker."""
    cluster.restore(1)
    return cluster


def of_step(cluster: Cluster, session_id: str, name: str) -> list[str]:
    return [step.status for step in cluster.client.steps(session_id) if step.name.value == name]


def messages_waiting(cluster: Cluster) -> int:
    """How much the broker holds for workers."""
    return sum(
        int(cluster.redis.llen(key))
        for key in cluster.broker_keys()
        if cluster.redis.type(key) == b"list"
    )


def told(cluster: Cluster, session_id: str) -> list[str]:
    """What the model read at its last call."""
    read = cluster.marks("model", session_id)[-1].more["texts"]
    assert isinstance(read, list)
    return read


# --- questions


def test_dh_02_answers_outlive_every_process_and_reach_their_questions(one: Cluster) -> None:
    session_id = one.say('/tools ask_user {"question": "Sure?"} ask_user {"question": "How many?"}')
    one.waits(session_id, CallStatus.AWAITING_ANSWER)
    sure, number = (call.id for call in one.snapshot(session_id).calls)
    one.kill_workers()
    one.client.answer(session_id, sure, False, by="ana")
    one.kill_store()
    one.start_store()
    shown = {call.id: call.status for call in one.snapshot(session_id).calls}
    assert shown == {sure: CallStatus.SUCCEEDED, number: CallStatus.AWAITING_ANSWER}
    one.client.answer(session_id, number, 0, by="bo")
    with pytest.raises(Conflict, match="answered already, by ana"):
        one.client.answer(session_id, sure, True, by="bo")
    one.start_worker()
    snapshot = one.idle(session_id)
    assert results(snapshot) == ["false", "0"]
    assert "ask_user returned: false" in last_answer(snapshot)
    assert_history_holds(snapshot)


def test_dh_04_one_response_with_calls_of_every_kind_over_a_killed_worker(one: Cluster) -> None:
    session_id = one.say(
        '/tools charge_approved {} look {} ask_user {"question": "Which?", "choices": ["a", "b"]} '
        'durable_wait {"seconds": 1} put {"gate": "dh-04"} charge_approved {}'
    )
    call = one.running_call(session_id, "put")
    one.entered("put", call.id)
    calls = one.snapshot(session_id).calls
    one.client.decide(session_id, calls[5].id, DecisionVerb.REJECT, by="ana", note="not b")
    one.kill_workers()
    one.client.answer(session_id, calls[2].id, "b", by="ana")
    one.client.decide(session_id, calls[0].id, DecisionVerb.APPROVE, by="ana")
    one.open_gate("dh-04")
    one.start_worker()
    snapshot = one.idle(session_id)
    read = results(snapshot)
    assert read[:3] == ["charged", "seen at once", "b"]
    assert "waited_seconds" in read[3]
    assert read[4] == "put"
    assert "not b" in read[5]
    assert [m.call_id for m in snapshot.messages if m.role is Role.TOOL] == [c.id for c in calls]
    assert_history_holds(snapshot)
    assert one.model_problems() == []


# --- timers


def test_dh_12_a_timer_fires_once_and_promptly_after_all_workers_were_away(one: Cluster) -> None:
    session_id = one.say("/wait 2")
    one.waits(session_id, CallStatus.AWAITING_TIMER)
    assert messages_waiting(one) == 0
    one.kill_workers()
    one.client.send_message(session_id, "hurry")
    one.first_lease_is_over(session_id)  # here: the time of the wait
    assert one.snapshot(session_id).status is SessionStatus.WAITING
    one.start_workers(2)
    wait_until(
        lambda: last_answer(one.snapshot(session_id)) == "You said: hurry",
        "the queued message is answered",
        timeout_seconds=PATIENCE,
    )
    assert of_step(one, session_id, "AwaitTimer") == ["fired"]
    assert of_step(one, session_id, "RunModel") == ["succeeded"] * 3
    assert_history_holds(one.idle(session_id))


def test_dh_12_steer_ends_a_wait_and_its_time_then_does_nothing(one: Cluster) -> None:
    session_id = one.say("/wait 2")
    call = one.waits(session_id, CallStatus.AWAITING_TIMER)
    turn = one.snapshot(session_id).turn
    assert turn is not None
    due = turn.steps[0].due
    assert due is not None
    one.client.steer(session_id, text="never mind", by="ana")
    snapshot = one.idle(session_id)
    assert last_answer(snapshot) == "You said: never mind"
    assert one.client.call(session_id, call.id).cancelled_while is CallStatus.AWAITING_TIMER

    def over() -> bool:
        seconds, _ = one.redis.time()
        return bool(seconds * 1000 > due + 1_000)

    wait_until(over, "its time is over", timeout_seconds=PATIENCE)
    assert one.snapshot(session_id).messages == snapshot.messages


@needs_moved_clock
def test_dh_12_a_wait_of_30_days_costs_nothing_and_fires_once(tmp_path: Path) -> None:
    """Only the store's clock is moved: it is the only one that counts."""
    with Cluster(tmp_path / "month") as month:
        month.start_worker()
        session_id = month.say(f"/wait {30 * DAY}")
        month.waits(session_id, CallStatus.AWAITING_TIMER)
        assert messages_waiting(month) == 0
        month.kill_workers()
        month.stop_store()
        with clock_ahead(tmp_path, 29 * DAY):
            month.start_store()
        month.start_worker()
        assert month.answer(month.say("hello")) == "You said: hello"
        assert month.snapshot(session_id).status is SessionStatus.WAITING
        month.kill_workers()
        month.stop_store()
        with clock_ahead(tmp_path, 30 * DAY):
            month.start_store()
        month.start_workers(2)
        snapshot = month.idle(session_id)
        assert "waited_seconds" in results(snapshot)[0]
        assert of_step(month, session_id, "AwaitTimer") == ["fired"]
        assert of_step(month, session_id, "RunModel") == ["succeeded"] * 2


# --- plans


def plan(cluster: Cluster, tasks: str) -> str:
    session_id = cluster.client.create_session(message=f"/plan {tasks}", plan_mode=True).session_id
    snapshot = cluster.idle(session_id)
    assert snapshot.plan is not None
    assert (snapshot.plan.revision, snapshot.plan.status) == (1, PlanStatus.DRAFT)
    return session_id


def test_a_plan_is_drafted_reviewed_and_executed_by_other_workers(one: Cluster) -> None:
    session_id = plan(one, "look; write")
    one.client.send_message(session_id, "/tool charge {}", plan_mode=True)
    assert "no such tool now: charge. The tools it has: write_todos" in one.answer(session_id)
    one.kill_workers()
    with pytest.raises(Conflict) as caught:
        one.client.execute_plan(session_id, revision=2)
    assert caught.value.code == "stale_plan"
    one.client.execute_plan(session_id, revision=1, by="ana")
    one.start_worker()
    snapshot = one.idle(session_id)
    assert snapshot.plan is not None
    assert (snapshot.plan.revision, snapshot.plan.status) == (2, PlanStatus.COMPLETED)
    instructions = [str(mark.more["instructions"]) for mark in one.marks("model", session_id)]
    assert "You are planning" in instructions[0]
    assert "a draft that nobody has approved" in instructions[2]
    assert "You are planning" not in instructions[3]
    assert "(revision 1, active)" in instructions[3]
    assert instructions[-1] == "Do as told."
    assert_history_holds(snapshot)


def test_a_plan_that_stalls_is_corrected_once_in_a_history_that_every_provider_takes(
    one: Cluster,
) -> None:
    session_id = plan(one, "stall; write")
    one.client.execute_plan(session_id, revision=1)
    wait_until(
        lambda: len(one.marks("model", session_id)) == 4,
        "it is corrected",
        timeout_seconds=PATIENCE,
    )
    snapshot = one.idle(session_id)
    notices = [m.text for m in snapshot.messages if m.role is Role.NOTICE]
    assert len(notices) == 1
    assert "2 of 2 tasks of the plan" in notices[0]
    assert snapshot.plan is not None
    assert snapshot.plan.status is PlanStatus.ACTIVE
    assert_history_holds(snapshot)
    assert one.model_problems() == []


# --- tools that overrun, and how each end is told


@pytest.mark.parametrize(("end", "word"), [("", "did happen"), ("refused", "did not happen")])
def test_a_tool_that_overruns_is_unknown_until_it_ends_and_the_model_is_told(
    one: Cluster, end: str, word: str
) -> None:
    gate = f"overrun-{end or 'well'}"
    session_id = one.say(f'/tool charge_slowly {{"gate": "{gate}", "end": "{end}"}}')
    snapshot = one.idle(session_id)
    (call,) = snapshot.calls
    assert call.status is CallStatus.OUTCOME_UNKNOWN
    assert "no result within 0.2 s" in (call.error or "")
    assert "may or may not have taken effect" in results(snapshot)[0]
    one.open_gate(gate)
    wait_until(
        lambda: one.client.call(session_id, call.id).status is not CallStatus.OUTCOME_UNKNOWN,
        "how it ended is recorded",
        timeout_seconds=PATIENCE,
    )
    record = one.client.call(session_id, call.id)
    assert record.status is (CallStatus.FAILED if end else CallStatus.SUCCEEDED)
    assert record.reconciled_by == "late result"
    assert one.snapshot(session_id).unknown_calls == ()
    one.client.send_message(session_id, "and now?")
    assert one.answer(session_id) == "You said: and now?"
    assert any("now known" in text and word in text for text in told(one, session_id))
    assert len(one.marks("charge", call.id)) == 1


def test_dh_08_each_end_has_its_own_record_and_words(one: Cluster) -> None:
    """(a) a killed worker, (b) nobody decided in time, (c) stop, (d) a person said no."""
    killed = one.say('/tool charge {"gate": "dh-08"}')
    call = one.running_call(killed, "charge")
    one.entered("before", call.id)
    one.kill_workers()
    one.start_worker()
    expired = one.say("/tool charge_soon {}")
    one.idle(expired)
    stopped = one.say("/tool charge_approved {}")
    one.waiting(stopped)
    one.client.cancel_turn(stopped, by="ana")
    rejected = one.say("/tool charge_approved {}")
    call = one.waiting(rejected)
    one.client.decide(rejected, call.id, DecisionVerb.REJECT, by="ana", note="not today")

    ended: list[Snapshot] = [one.idle(s) for s in (killed, expired, stopped, rejected)]
    calls = [snapshot.calls[0] for snapshot in ended]
    assert [call.status for call in calls] == [
        CallStatus.OUTCOME_UNKNOWN,
        CallStatus.FAILED,
        CallStatus.CANCELLED,
        CallStatus.REJECTED,
    ]
    texts = [results(snapshot)[0] for snapshot in ended]
    assert "may or may not have taken effect" in texts[0]
    assert "its approval expired" in texts[1]
    assert "did not run, so it is safe to call again" in texts[1]
    assert "cancelled while it waited for approval" in texts[2]
    assert "A person rejected this call" in texts[3]
    assert "not today" in texts[3]
    assert ["rejected" in text for text in texts] == [False, False, False, True]
    assert [call.decision is not None for call in calls] == [False, False, False, True]
    assert [snapshot.unknown_calls for snapshot in ended] == [(calls[0].id,), (), (), ()]
    assert all(one.marks("charge", call.id) == [] for call in calls)


def test_dh_06_a_stream_that_is_closed_leaves_no_stop_behind(one: Cluster) -> None:
    session_id = one.say("/hold never some words")
    one.entered("model", session_id)
    one.client.cancel_turn(session_id, by="ana")
    one.idle(session_id)
    one.env["CELERIAC_OPERATORS"] = f"ana:operator:{hashlib.sha256(b'ana').hexdigest()}"
    _, base = one.start_web()
    one.client.send_message(session_id, "/tool charge_approved {}")
    call = one.waiting(session_id)
    person = {"Authorization": "Bearer ana"}
    url = f"{base}/api/sessions/{session_id}/events"
    with httpx.stream("GET", url, headers=person, timeout=PATIENCE) as stream:
        assert stream.status_code == 200
    one.kill_workers()
    one.start_worker()
    assert one.waiting(session_id) == call
    one.client.decide(session_id, call.id, DecisionVerb.APPROVE, by="bo")
    snapshot = one.idle(session_id)
    assert results(snapshot) == ["charged"]
    ends = [m.text for m in snapshot.messages if m.role is Role.NOTICE]
    assert ends == ["The user stopped this turn."], "that was the first turn"


def test_mh_10_nothing_of_a_broken_response_is_kept(one: Cluster) -> None:
    session_id = one.say("/cut")
    snapshot = one.idle(session_id)
    assert [m.role for m in snapshot.messages] == [Role.USER, Role.NOTICE]
    assert "the stream ended within a call" in snapshot.messages[-1].text
    assert snapshot.calls == ()
    assert of_step(one, session_id, "RunModel") == ["failed"] * 3
    one.client.send_message(session_id, "hello")
    assert one.answer(session_id) == "You said: hello"
