"""Workers that are killed, stopped, frozen or break inside a step: what ran is known or said to be unknown."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from celeriac.sessions.calls import CallRecord, CallStatus, DecisionVerb
from tests.tasks.cluster import (
    PATIENCE,
    Cluster,
    Running,
    assert_history_holds,
    last_answer,
    results,
)
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("worker-loss")]

PREFORK = {"CELERIAC_WORKER_POOL": "prefork", "CELERIAC_WORKER_CONCURRENCY": "2"}


@pytest.fixture
def pair(cluster: Cluster) -> Cluster:
    """Two workers with threads."""
    cluster.restore(2)
    return cluster


def approved(cluster: Cluster, session_id: str) -> CallRecord:
    call = cluster.waiting(session_id)
    return cluster.client.decide(session_id, call.id, DecisionVerb.APPROVE, by="ana")


def statuses(cluster: Cluster, session_id: str, step: str) -> list[str]:
    return [one.status for one in cluster.client.steps(session_id) if one.name.value == step]


def test_a_read_whose_worker_is_killed_runs_again_with_the_same_call_id(pair: Cluster) -> None:
    session_id = pair.say('/tool look_up_order {"order_id": "1001", "delay_seconds": 2}')
    call = pair.running_call(session_id, "look_up_order")
    pair.worker_of(session_id).kill()
    snapshot = pair.idle(session_id)
    assert [(one.id, one.status) for one in snapshot.calls] == [(call.id, CallStatus.SUCCEEDED)]
    assert statuses(pair, session_id, "CallTool") == ["lost", "succeeded"]
    assert "Celeriac seeds" in last_answer(snapshot)
    assert_history_holds(snapshot)


@pytest.mark.parametrize("when", ["before its effect", "after its effect"])
def test_dh_08_a_single_attempt_write_whose_worker_is_killed_is_unknown(
    pair: Cluster, when: str
) -> None:
    order = "1002" if when.startswith("before") else "1003"
    delay = "delay_seconds" if when.startswith("before") else "delay_after_seconds"
    session_id = pair.say(f'/tool cancel_order {{"order_id": "{order}", "{delay}": 600}}')
    call = approved(pair, session_id)
    pair.running_call(session_id, "cancel_order")
    happened = 0 if when.startswith("before") else 1
    wait_until(
        lambda: len(pair.effects(call.id)) == happened, "it is there", timeout_seconds=PATIENCE
    )
    pair.worker_of(session_id).kill()
    snapshot = pair.idle(session_id)
    (settled,) = snapshot.calls
    assert (settled.status, settled.attempts) == (CallStatus.OUTCOME_UNKNOWN, 1)
    assert "Outcome unknown" in last_answer(snapshot)
    assert len(pair.effects(call.id)) == happened
    assert call.id in {item.call.id for item in pair.client.unknown_outcomes()}
    assert snapshot.unknown_calls == (call.id,)
    assert_history_holds(snapshot)


def test_a_model_call_whose_worker_is_killed_is_made_again(pair: Cluster) -> None:
    session_id = pair.say("/hold model-kill said")
    pair.entered("model", session_id)
    pair.worker_of(session_id).kill()
    pair.entered("model", session_id, times=2)
    pair.open_gate("model-kill")
    assert pair.answer(session_id) == "said and more"
    assert statuses(pair, session_id, "RunModel") == ["lost", "succeeded"]


def test_cr_05_tools_that_end_their_prefork_child(cluster: Cluster) -> None:
    cluster.restore(0)
    cluster.start_worker(name="prefork", env=PREFORK)
    others = [cluster.say("/tool look {}") for _ in range(4)]
    read = cluster.say('/tool look {"end": "kill"}')
    write = cluster.say('/tool put {"end": "exit"}')
    once = cluster.say('/tool charge {"end": "kill"}')
    others += [cluster.say("/tool look {}") for _ in range(4)]
    for session_id in others:
        assert results(cluster.idle(session_id)) == ["seen at once"]
    (call,) = cluster.idle(read).calls
    assert (call.status, call.attempts) == (CallStatus.FAILED, 3)
    assert len(cluster.marks("look", call.id)) == 3
    (call,) = cluster.idle(write).calls
    assert (call.status, call.attempts) == (CallStatus.OUTCOME_UNKNOWN, 3)
    assert {mark.more["idempotency_key"] for mark in cluster.marks("put", call.id)} == {call.id}
    (call,) = cluster.idle(once).calls
    assert (call.status, call.attempts) == (CallStatus.OUTCOME_UNKNOWN, 1)
    assert len(cluster.marks("charge", call.id)) == 1
    assert cluster.answer(cluster.say("hello")) == "You said: hello"
    cluster.kill_workers()


@pytest.mark.parametrize(
    ("tool", "mark", "status", "attempts"),
    [
        ("look", "look", CallStatus.FAILED, 3),
        ("put", "put", CallStatus.OUTCOME_UNKNOWN, 3),
        ("charge", "charge", CallStatus.OUTCOME_UNKNOWN, 1),
    ],
)
def test_a_tool_that_ends_a_worker_with_threads_is_tried_as_its_effect_allows(
    pair: Cluster, tool: str, mark: str, status: CallStatus, attempts: int
) -> None:
    session_id = pair.say(f'/tool {tool} {{"end": "exit"}}')

    def ended() -> bool:
        # As a supervisor would: what died is started again.
        pair.ensure_workers(1)
        return pair.snapshot(session_id).status.value == "idle"

    wait_until(ended, "the turn has ended", timeout_seconds=3 * PATIENCE)
    (call,) = pair.snapshot(session_id).calls
    assert (call.status, call.attempts) == (status, attempts)
    assert len(pair.marks(mark, call.id)) == attempts


def frozen(cluster: Cluster, session_id: str) -> Running:
    """Freeze the worker of a session until its lease is over and somebody else has noticed."""
    worker = cluster.worker_of(session_id)
    worker.signal(signal.SIGSTOP)
    return worker


def test_a_late_result_settles_an_unknown_outcome_and_the_model_is_told(pair: Cluster) -> None:
    session_id = pair.say('/tool charge {"gate": "late"}')
    call = pair.running_call(session_id, "charge")
    pair.entered("before", call.id)
    worker = frozen(pair, session_id)
    assert "Outcome unknown" in last_answer(pair.idle(session_id))
    pair.open_gate("late")
    worker.signal(signal.SIGCONT)
    wait_until(
        lambda: pair.client.call(session_id, call.id).status is CallStatus.SUCCEEDED,
        "the late result is recorded",
        timeout_seconds=PATIENCE,
    )
    record = pair.client.call(session_id, call.id)
    assert (record.reconciled_by, record.result) == ("late result", "charged")
    assert pair.snapshot(session_id).unknown_calls == ()
    pair.client.send_message(session_id, "and now?")
    assert pair.answer(session_id) == "You said: and now?"
    read = pair.marks("model", session_id)[-1].more["texts"]
    assert isinstance(read, list)
    assert any("now known" in text and "did happen" in text for text in read)
    assert len(pair.marks("charge", call.id)) == 1
    assert_history_holds(pair.snapshot(session_id))


def test_a_read_that_comes_back_late_is_recorded_once(pair: Cluster) -> None:
    session_id = pair.say('/tool look {"gate": "late-read"}')
    call = pair.running_call(session_id, "look")
    pair.entered("look", call.id)
    worker = frozen(pair, session_id)
    pair.entered("look", call.id, times=2)
    pair.open_gate("late-read")
    snapshot = pair.idle(session_id)
    worker.signal(signal.SIGCONT)
    # The thawed worker has reported before it takes its next step.
    for other in pair.workers:
        if other is not worker:
            other.kill()
    pair.client.send_message(session_id, "next")
    after = pair.idle(session_id)
    assert results(after) == ["seen late-read"]
    assert after.messages[: len(snapshot.messages)] == snapshot.messages
    assert_history_holds(after)


def test_a_model_reply_that_comes_late_is_dropped(pair: Cluster) -> None:
    session_id = pair.say("/hold late-model said")
    pair.entered("model", session_id)
    worker = frozen(pair, session_id)
    pair.entered("model", session_id, times=2)
    pair.open_gate("late-model")
    pair.idle(session_id)
    worker.signal(signal.SIGCONT)
    for other in pair.workers:
        if other is not worker:
            other.kill()
    pair.client.send_message(session_id, "next")
    said = [m.text for m in pair.idle(session_id).messages if m.role.value == "assistant"]
    assert said == ["said and more", "You said: next"]


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that sends nothing again within any test: what is lost stays lost."""
    env = {"CELERIAC_RESEND_SECONDS": "300", "CELERIAC_WORKER_CONCURRENCY": "2"}
    with Cluster(tmp_path_factory.mktemp("patient"), env=env) as made:
        yield made


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_worker_that_is_asked_to_stop_finishes_what_it_runs_and_hands_on_the_rest(
    patient: Cluster, pool: str
) -> None:
    patient.restore(0)
    first = patient.start_worker(name=pool, env={"CELERIAC_WORKER_POOL": pool})
    gate = f"warm-{pool}"
    busy = [patient.say(f'/tool look {{"gate": "{gate}"}}') for _ in range(2)]
    for session_id in busy:
        patient.running_call(session_id, "look")
    # Those behind have been received by the worker or wait in the queue.
    behind = [patient.say(f"message {number}") for number in range(10)]
    first.signal(signal.SIGTERM)
    wait_until(lambda: "Warm shutdown" in first.output(), "it has heard", timeout_seconds=PATIENCE)
    for session_id in busy:
        patient.first_lease_is_over(session_id)
    second = patient.start_worker(name="heir", env={"CELERIAC_WORKER_POOL": pool})
    patient.open_gate(gate)
    assert first.process.wait(PATIENCE) == 0
    for session_id in busy:
        snapshot = patient.idle(session_id)
        assert results(snapshot) == [f"seen {gate}"]
        assert statuses(patient, session_id, "CallTool") == ["succeeded"]
    for number, session_id in enumerate(behind):
        assert patient.answer(session_id) == f"You said: message {number}"
    second.kill()


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_worker_that_is_asked_to_stop_in_full_flight_loses_no_message(
    patient: Cluster, pool: str
) -> None:
    patient.restore(0)
    env = {"CELERIAC_WORKER_POOL": pool}
    first = patient.start_worker(name=pool, env=env)
    with ThreadPoolExecutor(8) as people:
        for turn in range(2):
            numbers = range(turn * 50, turn * 50 + 50)
            said = [people.submit(patient.say, f"message {number}") for number in numbers]
            said[10].result()
            first.signal(signal.SIGTERM)
            heir = patient.start_worker(name="heir", env=env)
            assert first.process.wait(PATIENCE) == 0
            for number, future in zip(numbers, said, strict=True):
                assert patient.answer(future.result()) == f"You said: message {number}"
            first = heir
    first.kill()
