"""A worker that is asked to stop ends within its time, and tells the truth of what it gave up."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from celeriac.sessions.calls import CallStatus
from tests.tasks.cluster import PATIENCE, Cluster, Running, assert_history_holds, results
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("shutdown")]

LONG = {"CELERIAC_LEASE_SECONDS": "300"}


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose leases outlast any test."""
    with Cluster(tmp_path_factory.mktemp("slow"), env=LONG) as made:
        yield made


def run_three(cluster: Cluster, gate: str) -> tuple[str, str, str]:
    model = cluster.say(f"/hold {gate} said")
    read = cluster.say(f'/tool look {{"gate": "{gate}"}}')
    once = cluster.say(f'/tool charge {{"gate": "{gate}"}}')
    cluster.entered("model", model)
    cluster.entered("look", cluster.running_call(read, "look").id)
    cluster.entered("before", cluster.running_call(once, "charge").id)
    return model, read, once


def assert_given_up_honestly(
    cluster: Cluster, gate: str, sessions: tuple[str, str, str], worker: Running
) -> None:
    model, read, once = sessions
    (call,) = cluster.idle(once).calls
    assert (call.status, call.attempts) == (CallStatus.OUTCOME_UNKNOWN, 1)
    assert call.error is not None
    assert call.error.startswith(f"its worker was shut down before it had ended ({worker.hostname}")
    assert cluster.marks("charge", call.id) == []
    cluster.start_worker(name="heir")
    cluster.entered("model", model, times=2)
    (call,) = cluster.snapshot(read).calls
    cluster.entered("look", call.id, times=2)
    cluster.open_gate(gate)
    assert cluster.answer(model) == "said and more"
    assert results(cluster.idle(read)) == [f"seen {gate}"]
    for session_id in sessions:
        assert_history_holds(cluster.snapshot(session_id))


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_what_still_runs_when_the_time_is_over_is_given_up(slow: Cluster, pool: str) -> None:
    slow.restore(0)
    env = {"CELERIAC_WORKER_POOL": pool, "CELERIAC_SHUTDOWN_SECONDS": "1"}
    worker = slow.start_worker(name=pool, env=env)
    # The model's call of the turn that ended unknown is made by somebody who does not stop.
    slow.start_worker("-Q", "celeriac.model", name="other")
    gate = f"bound-{pool}"
    sessions = hold_on(slow, worker, gate)
    assert worker.stop() == 1
    assert_given_up_honestly(slow, gate, sessions, worker)


def hold_on(cluster: Cluster, worker: Running, gate: str) -> tuple[str, str, str]:
    """Let `worker` run all three steps, while the other one is frozen."""
    others = [one for one in cluster.workers if one is not worker]
    for other in others:
        other.signal(signal.SIGSTOP)
    sessions = run_three(cluster, gate)
    for other in others:
        other.signal(signal.SIGCONT)
    return sessions


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_who_is_asked_twice_ends_at_once(slow: Cluster, pool: str) -> None:
    slow.restore(0)
    worker = slow.start_worker(name=pool, env={"CELERIAC_WORKER_POOL": pool})
    gate = f"twice-{pool}"
    sessions = run_three(slow, gate)
    worker.signal(signal.SIGTERM)
    wait_until(lambda: "Warm shutdown" in worker.output(), "it has heard", timeout_seconds=PATIENCE)
    assert worker.alive
    worker.signal(signal.SIGTERM)
    assert worker.process.wait(PATIENCE) == 1
    slow.start_worker("-Q", "celeriac.model", name="other")
    assert_given_up_honestly(slow, gate, sessions, worker)


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_an_idle_worker_ends_in_time_although_the_store_is_away(slow: Cluster, pool: str) -> None:
    slow.restore(0)
    env = {"CELERIAC_WORKER_POOL": pool, "CELERIAC_SHUTDOWN_SECONDS": "5"}
    worker = slow.start_worker(name=pool, env=env)
    slow.stop_store()
    assert worker.stop() in {0, 1}
    slow.start_store()


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_busy_worker_ends_in_time_although_the_store_is_away(slow: Cluster, pool: str) -> None:
    slow.restore(0)
    env = {"CELERIAC_WORKER_POOL": pool, "CELERIAC_SHUTDOWN_SECONDS": "2"}
    worker = slow.start_worker(name=pool, env=env)
    gate = f"away-{pool}"
    model, read, once = run_three(slow, gate)
    slow.stop_store()
    assert worker.stop() == 1
    slow.start_store()
    # Its successor finds what it held: with leases this long, nothing else would.
    slow.start_worker(name="heir")
    slow.entered("model", model, times=2)
    slow.entered("look", slow.snapshot(read).calls[0].id, times=2)
    slow.open_gate(gate)
    assert slow.answer(model) == "said and more"
    assert results(slow.idle(read)) == [f"seen {gate}"]
    (call,) = slow.idle(once).calls
    assert call.status is CallStatus.OUTCOME_UNKNOWN
