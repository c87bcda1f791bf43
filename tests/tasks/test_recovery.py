"""What a dead process ran is taken up again long before its lease is over: here that would take five minutes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from celeriac.sessions.calls import CallStatus
from celeriac.sessions.store.connection import DirectConnections
from celeriac.sessions.store.lives import Lives
from tests.tasks.cluster import PATIENCE, Cluster, assert_history_holds, last_answer, results
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("recovery")]

PREFORK = {"CELERIAC_WORKER_POOL": "prefork", "CELERIAC_WORKER_CONCURRENCY": "3"}


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose leases outlast any test."""
    env = {"CELERIAC_LEASE_SECONDS": "300"}
    with Cluster(tmp_path_factory.mktemp("slow"), env=env) as made:
        yield made


def statuses(cluster: Cluster, session_id: str, step: str) -> list[str]:
    return [one.status for one in cluster.client.steps(session_id) if one.name.value == step]


def owner_pid(cluster: Cluster, session_id: str) -> int:
    """The process that runs the session's step."""
    turn = cluster.snapshot(session_id).turn
    assert turn is not None
    (owner,) = {step.owner for step in turn.steps if step.owner}
    return int(owner.split("/")[1])


def lives_of(cluster: Cluster) -> Lives:
    return Lives(cluster.redis, DirectConnections(cluster.redis))


def run_three(cluster: Cluster, gate: str) -> tuple[str, str, str]:
    """A model call, a read and a single-attempt write, each running."""
    model = cluster.say(f"/hold {gate} said")
    read = cluster.say(f'/tool look {{"gate": "{gate}"}}')
    once = cluster.say(f'/tool charge {{"gate": "{gate}"}}')
    cluster.entered("model", model)
    cluster.entered("look", cluster.running_call(read, "look").id)
    cluster.entered("before", cluster.running_call(once, "charge").id)
    return model, read, once


def assert_taken_up(cluster: Cluster, gate: str, model: str, read: str, once: str) -> None:
    cluster.entered("model", model, times=2)
    (call,) = cluster.snapshot(read).calls
    cluster.entered("look", call.id, times=2)
    cluster.open_gate(gate)
    assert cluster.answer(model) == "said and more"
    assert statuses(cluster, model, "RunModel") == ["lost", "succeeded"]
    assert results(cluster.idle(read)) == [f"seen {gate}"]
    assert statuses(cluster, read, "CallTool") == ["lost", "succeeded"]
    assert "Outcome unknown" in last_answer(cluster.idle(once))
    (call,) = cluster.snapshot(once).calls
    assert (call.status, call.attempts) == (CallStatus.OUTCOME_UNKNOWN, 1)
    assert cluster.marks("charge", call.id) == []
    for session_id in (model, read, once):
        assert_history_holds(cluster.snapshot(session_id))


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_killed_worker_is_noticed_by_another(slow: Cluster, pool: str) -> None:
    slow.restore(0)
    env = {"CELERIAC_WORKER_POOL": pool}
    first = slow.start_worker(name=pool, env=env)
    sessions = run_three(slow, f"kill-{pool}")
    slow.start_worker(name="other")
    first.kill()
    assert_taken_up(slow, f"kill-{pool}", *sessions)


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_worker_releases_what_its_earlier_life_held(slow: Cluster, pool: str) -> None:
    slow.restore(0)
    env = {"CELERIAC_WORKER_POOL": pool}
    first = slow.start_worker("--hostname", f"same-{pool}@here", env=env)
    sessions = run_three(slow, f"same-{pool}")
    first.kill()
    slow.start_worker("--hostname", f"same-{pool}@here", env=env)
    assert_taken_up(slow, f"same-{pool}", *sessions)


def test_cr_05_a_killed_child_is_noticed_by_its_parent_and_the_others_go_on(slow: Cluster) -> None:
    slow.restore(0)
    slow.start_worker(name="prefork", env=PREFORK)
    held = slow.say('/tool look {"gate": "held"}')
    call = slow.running_call(held, "look")
    model, read, once = run_two_children(slow)
    assert len(slow.marks("look", call.id)) == 1
    for session_id in (model, read, once):
        assert_history_holds(slow.idle(session_id))
    slow.open_gate("held")
    assert results(slow.idle(held)) == ["seen held"]
    assert statuses(slow, held, "CallTool") == ["succeeded"]


def run_two_children(cluster: Cluster) -> tuple[str, str, str]:
    """Kill the child of each of three steps, one after the other."""
    model = cluster.say("/hold child said")
    cluster.entered("model", model)
    os.kill(owner_pid(cluster, model), signal.SIGKILL)
    cluster.entered("model", model, times=2)
    cluster.open_gate("child")
    assert cluster.answer(model) == "said and more"
    read = cluster.say('/tool look {"end": "exit"}')
    (call,) = cluster.idle(read).calls
    assert (call.status, call.attempts) == (CallStatus.FAILED, 3)
    assert len(cluster.marks("look", call.id)) == 3
    once = cluster.say('/tool charge {"end": "kill"}')
    (call,) = cluster.idle(once).calls
    assert (call.status, call.attempts) == (CallStatus.OUTCOME_UNKNOWN, 1)
    return model, read, once


def test_a_child_that_is_replaced_in_good_order_is_no_loss(slow: Cluster) -> None:
    slow.restore(0)
    worker = slow.start_worker("--max-tasks-per-child", "1", name="recycled", env=PREFORK)
    sessions = [slow.say("/tool look {}") for _ in range(6)]
    for session_id in sessions:
        assert results(slow.idle(session_id)) == ["seen at once"]
        assert statuses(slow, session_id, "RunModel") == ["succeeded", "succeeded"]
        assert statuses(slow, session_id, "CallTool") == ["succeeded"]
    pids = {mark.pid for session_id in sessions for mark in slow.marks("model", session_id)}
    assert len(pids) == 12
    assert f"of {worker.hostname} is dead" not in worker.output()
    assert worker.stop() == 0
    assert lives_of(slow).all() == {}


def test_a_worker_that_lives_keeps_its_claims_whatever_happens_to_its_connections(
    slow: Cluster,
) -> None:
    slow.restore(0)
    worker = slow.start_worker()
    other = slow.start_worker(name="other")
    session_id = slow.say('/tool charge {"gate": "cut"}')
    slow.entered("before", slow.running_call(session_id, "charge").id)
    lives = lives_of(slow)
    for _ in range(5):
        slow.redis.client_kill_filter(_type="pubsub")
        wait_until(
            lambda: lives.missing("")[1] == {} and len(lives.all()) == 2,
            "everybody is seen again",
            timeout_seconds=PATIENCE,
        )
    for looker, looked_at in ((worker, other), (other, worker)):
        assert f"of {looked_at.hostname} is dead" not in looker.output()
    slow.open_gate("cut")
    assert results(slow.idle(session_id)) == ["charged"]
    assert statuses(slow, session_id, "CallSingleAttemptTool") == ["succeeded"]
