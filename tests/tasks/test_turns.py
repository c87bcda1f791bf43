"""Turns on real workers, nothing broken: both pools run them, and people interfere."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from celeriac.sessions.calls import CallStatus, DecisionVerb
from celeriac.sessions.errors import Conflict
from celeriac.sessions.messages import Role
from tests.tasks.cluster import PATIENCE, Cluster, assert_history_holds, last_answer, results
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("turns")]


@pytest.fixture(params=["threads", "prefork"], scope="module")
def pool(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with one worker of each pool in turn."""
    cluster.restore(0)
    env = {"CELERIAC_WORKER_POOL": str(request.param), "CELERIAC_WORKER_CONCURRENCY": "8"}
    worker = cluster.start_worker(name=str(request.param), env=env)
    yield cluster
    worker.kill()


def test_a_message_is_echoed(pool: Cluster) -> None:
    session_id = pool.say("hello")
    assert pool.answer(session_id) == "You said: hello"
    snapshot = pool.snapshot(session_id)
    assert [message.role for message in snapshot.messages] == [Role.USER, Role.ASSISTANT]
    assert [step.name.value for step in pool.client.steps(session_id)] == [
        "StartAgentSession",
        "AwaitUserMessage",
        "RunModel",
    ]


def test_calls_of_one_response_run_side_by_side(pool: Cluster) -> None:
    gate = f"side-{id(pool)}-{len(pool.marks('look'))}"
    session_id = pool.say(
        f'/tools look {{"gate": "{gate}"}} look_async {{"gate": "{gate}"}} put {{"gate": "{gate}"}}'
    )
    for tool in ("look", "look_async", "put"):
        pool.running_call(session_id, tool)
    pool.open_gate(gate)
    snapshot = pool.idle(session_id)
    assert results(snapshot) == [f"seen {gate}", f"seen {gate}", "put"]
    assert_history_holds(snapshot)


def test_dh_10_an_approved_call_runs_once(pool: Cluster) -> None:
    session_id = pool.say("/tool charge_approved {}")
    call = pool.waiting(session_id)
    assert pool.marks("charge", call.id) == []
    decided = pool.client.decide(session_id, call.id, DecisionVerb.APPROVE, by="ana")
    assert decided.decision is not None
    snapshot = pool.idle(session_id)
    assert results(snapshot) == ["charged"]
    assert len(pool.marks("charge", call.id)) == 1
    assert_history_holds(snapshot)


def test_dh_08_a_rejection_reaches_the_model_with_its_note_and_nothing_runs(pool: Cluster) -> None:
    session_id = pool.say("/tool charge_approved {}")
    call = pool.waiting(session_id)
    pool.client.decide(session_id, call.id, DecisionVerb.REJECT, by="ana", note="not today")
    snapshot = pool.idle(session_id)
    assert "rejected" in results(snapshot)[0]
    assert "not today" in results(snapshot)[0]
    assert "not today" in last_answer(snapshot)
    assert pool.marks("charge", call.id) == []
    assert pool.client.call(session_id, call.id).status is CallStatus.REJECTED


def test_a_model_that_fails_twice_answers_at_the_third_attempt(pool: Cluster) -> None:
    session_id = pool.say("/fail 2")
    assert pool.answer(session_id) == "Attempt 3 worked."
    ended = [s.status for s in pool.client.steps(session_id) if s.name.value == "RunModel"]
    assert ended == ["failed", "failed", "succeeded"]


def test_a_model_that_fails_three_times_fails_the_turn_and_the_next_one_works(
    pool: Cluster,
) -> None:
    session_id = pool.say("/fail 3")
    snapshot = pool.idle(session_id)
    assert snapshot.messages[-1].role is Role.NOTICE
    assert "failed 3 times" in snapshot.messages[-1].text
    pool.client.send_message(session_id, "still there?")
    assert pool.answer(session_id) == "You said: still there?"
    assert "RecordTurnFailure" in {step.name.value for step in pool.client.steps(session_id)}


@pytest.mark.parametrize("tool", ["look", "look_async"])
@pytest.mark.parametrize("end", ["memory", "system", "interrupt"])
def test_cr_05_a_tool_may_raise_anything(pool: Cluster, tool: str, end: str) -> None:
    session_id = pool.say(f'/tool {tool} {{"end": "{end}"}}')
    snapshot = pool.idle(session_id)
    (call,) = snapshot.calls
    assert (call.status, call.attempts) == (CallStatus.FAILED, 3)
    word = {"memory": "MemoryError", "system": "SystemExit", "interrupt": "KeyboardInterrupt"}[end]
    assert word in results(snapshot)[0]
    pool.client.send_message(session_id, f"/tool {tool} {{}}")
    assert results(pool.idle(session_id))[-1] == "seen at once"


def test_a_write_that_raises_is_unknown_and_never_repeated(pool: Cluster) -> None:
    session_id = pool.say('/tool charge {"end": "memory"}')
    snapshot = pool.idle(session_id)
    (call,) = snapshot.calls
    assert call.status is CallStatus.OUTCOME_UNKNOWN
    assert "Outcome unknown" in last_answer(snapshot)
    assert len(pool.marks("charge", call.id)) == 1


def test_a_model_client_that_exits_fails_its_turn_only(pool: Cluster) -> None:
    session_id = pool.say("/exit")
    assert "SystemExit" in pool.idle(session_id).messages[-1].text
    pool.client.send_message(session_id, "still there?")
    assert pool.answer(session_id) == "You said: still there?"


def test_messages_sent_meanwhile_are_taken_in_order(pool: Cluster) -> None:
    gate = f"queue-{len(pool.marks('model'))}"
    session_id = pool.say(f"/hold {gate} first")
    pool.entered("model", session_id)
    for text in ("second", "third"):
        assert pool.client.send_message(session_id, text).queued
    pool.open_gate(gate)
    wait_until(
        lambda: last_answer(pool.snapshot(session_id)) == "You said: third",
        "the last message is answered",
        timeout_seconds=PATIENCE,
    )
    said = [m.text for m in pool.idle(session_id).messages if m.role is Role.ASSISTANT]
    assert said == ["first and more", "You said: second", "You said: third"]


def test_stop_aborts_a_model_that_streams_and_keeps_its_text(pool: Cluster) -> None:
    session_id = pool.say("/hold never some words")
    pool.entered("model", session_id)
    turn = pool.snapshot(session_id).turn
    assert turn is not None
    pool.client.cancel_turn(session_id, turn_id=turn.id, by="ana")
    snapshot = pool.idle(session_id)
    spoken = [message for message in snapshot.messages if message.role is Role.ASSISTANT]
    assert [(message.text, message.interrupted) for message in spoken] == [("some words", True)]
    pool.client.send_message(session_id, "go on")
    assert pool.answer(session_id) == "You said: go on"
    assert_history_holds(pool.snapshot(session_id))


def test_dh_06_stop_belongs_to_one_turn(pool: Cluster) -> None:
    session_id = pool.say("/hold never some words")
    pool.entered("model", session_id)
    turn = pool.snapshot(session_id).turn
    assert turn is not None
    pool.client.cancel_turn(session_id, turn_id=turn.id)
    pool.idle(session_id)
    pool.client.send_message(session_id, "/tool charge_approved {}")
    call = pool.waiting(session_id)
    with pytest.raises(Conflict, match="not open any more"):
        pool.client.cancel_turn(session_id, turn_id=turn.id)
    pool.client.decide(session_id, call.id, DecisionVerb.APPROVE, by="ana")
    assert results(pool.idle(session_id)) == ["charged"]


def test_mh_02_steer_lets_what_runs_finish_and_goes_on_with_the_new_message(pool: Cluster) -> None:
    gate = f"steer-{len(pool.marks('look'))}"
    session_id = pool.say(f'/tools look {{"gate": "{gate}"}} charge_approved {{}}')
    pool.running_call(session_id, "look")
    pool.client.steer(session_id, text="something else", by="ana")
    pool.open_gate(gate)
    wait_until(
        lambda: last_answer(pool.snapshot(session_id)) == "You said: something else",
        "the steered message is answered",
        timeout_seconds=PATIENCE,
    )
    snapshot = pool.idle(session_id)
    seen, cancelled = results(snapshot)
    assert seen == f"seen {gate}"
    assert "cancelled" in cancelled
    assert pool.marks("charge", snapshot.calls[1].id) == []
    assert_history_holds(snapshot)


def test_dh_08_an_approval_that_stop_ended_is_no_rejection(pool: Cluster) -> None:
    session_id = pool.say("/tool charge_approved {}")
    call = pool.waiting(session_id)
    pool.client.cancel_turn(session_id, by="ana")
    text = results(pool.idle(session_id))[0]
    assert "cancelled" in text
    assert "reject" not in text
    assert pool.client.call(session_id, call.id).status is CallStatus.CANCELLED


def test_doubled_and_stale_messages_run_nothing_twice(pool: Cluster) -> None:
    gate = f"double-{len(pool.marks('before'))}"
    session_id = pool.say(f'/tool charge {{"gate": "{gate}"}}')
    call = pool.running_call(session_id, "charge")
    steps = [step for step in pool.client.steps(session_id) if step.name.value == "RunModel"]
    turn = pool.snapshot(session_id).turn
    assert turn is not None
    # CR-01: a second delivery of a running step, and of one that ended long ago.
    for _ in range(5):
        push(pool, "celeriac.call_single_attempt_tool", session_id, turn.steps[0].id, call.id)
        push(pool, "celeriac.call_tool", session_id, turn.steps[0].id, call.id)
        push(pool, "celeriac.run_model", session_id, steps[0].id, None)
        push(pool, "celeriac.run_model", "ses_" + "0" * 24, "s1", None)
    other = pool.say("/tool look {}")
    assert results(pool.idle(other)) == ["seen at once"]
    pool.open_gate(gate)
    assert results(pool.idle(session_id)) == ["charged"]
    for _ in range(5):
        push(pool, "celeriac.call_single_attempt_tool", session_id, turn.steps[0].id, call.id)
    pool.answer(pool.say("hello"))
    assert len(pool.marks("before", call.id)) == 1
    assert len(pool.marks("model", session_id)) == 2


def push(cluster: Cluster, task: str, session_id: str, step_id: str, call_id: str | None) -> None:
    queue = "celeriac.model" if task.endswith("model") else "celeriac.tool"
    cluster.broker_app.send_task(task, args=[session_id, step_id, call_id], queue=queue)


def test_cr_07_many_short_turns_at_once_keep_apart(pool: Cluster) -> None:
    numbers = range(40)
    with ThreadPoolExecutor(8) as threads:
        ids = list(
            threads.map(
                lambda n: pool.say(f'/tool set_note {{"order_id":"1003","note":"n{n}"}}'), numbers
            )
        )
    for number, session_id in zip(numbers, ids, strict=True):
        snapshot = pool.idle(session_id)
        assert f'"note":"n{number}"' in results(snapshot)[0].replace(" ", "")
        assert f"n{number}" in snapshot.messages[0].text
    assert pool.model_problems() == []
