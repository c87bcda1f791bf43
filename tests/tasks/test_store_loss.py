"""The store or the broker goes away, flaps, freezes or forgets its messages: work goes on by itself."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from celeriac.sessions.calls import CallStatus, DecisionVerb
from celeriac.sessions.store.embedded import EmbeddedStore
from tests.tasks.cluster import (
    PATIENCE,
    Cluster,
    assert_history_holds,
    broker_keys,
    last_answer,
    plain_redis,
    results,
)
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("store-loss")]


@pytest.fixture(params=["threads", "prefork"], scope="module")
def workers_of(request: pytest.FixtureRequest, cluster: Cluster) -> Cluster:
    """The cluster, whose workers will have one pool or the other."""
    cluster.restore(0)
    cluster.env["CELERIAC_WORKER_POOL"] = str(request.param)
    cluster.env["CELERIAC_WORKER_CONCURRENCY"] = "6"
    return cluster


@pytest.fixture
def pair(workers_of: Cluster) -> Iterator[Cluster]:
    """Two workers, and a store that runs before and after."""
    cluster = workers_of
    cluster.restore(2)
    yield cluster
    cluster.resume_store()
    if not cluster.store.alive():
        cluster.start_store()


def test_all_broker_keys_may_go_whatever_sessions_are_doing(pair: Cluster) -> None:
    gate = f"keys-{len(pair.marks('look'))}"
    model = pair.say(f"/hold {gate} said")
    tools = pair.say(f'/tools look {{"gate": "{gate}"}} put {{"gate": "{gate}"}}')
    once = pair.say(f'/tool charge {{"gate": "{gate}"}}')
    approval = pair.say("/tool charge_approved {}")
    retrying = pair.say("/fail 2")
    pair.entered("model", model)
    for tool in ("look", "put"):
        pair.running_call(tools, tool)
    pair.running_call(once, "charge")
    call = pair.waiting(approval)
    # With no worker there, what is sent next stays in the queues until they are deleted.
    pair.kill_workers()
    ready = [pair.say(f"message {number}") for number in range(3)]
    pair.client.decide(approval, call.id, DecisionVerb.APPROVE, by="ana")
    assert pair.redis.llen("celeriac.model") >= 3
    assert pair.redis.llen("celeriac.tool") >= 1
    pair.drop_broker_keys()
    assert pair.broker_keys() == []
    pair.open_gate(gate)
    pair.start_workers(2)
    pair.drop_broker_keys()
    for number, session_id in enumerate(ready):
        assert pair.answer(session_id) == f"You said: message {number}"
        pair.drop_broker_keys()
    assert pair.answer(model) == "said and more"
    assert results(pair.idle(tools)) == [f"seen {gate}", "put"]
    assert pair.answer(retrying) == "Attempt 3 worked."
    assert "Outcome unknown" in last_answer(pair.idle(once))
    assert results(pair.idle(approval)) == ["charged"]
    assert len(pair.marks("charge", call.id)) == 1


def run_turns(cluster: Cluster, gate: str) -> dict[str, str]:
    """Let sessions be in each kind of step."""
    sessions = {
        "model": cluster.say(f"/hold {gate} said"),
        "read": cluster.say(f'/tool look_async {{"gate": "{gate}"}}'),
        "once": cluster.say(f'/tool charge {{"gate": "{gate}"}}'),
        "approval": cluster.say("/tool charge_approved {}"),
    }
    cluster.entered("model", sessions["model"])
    cluster.running_call(sessions["read"], "look_async")
    cluster.running_call(sessions["once"], "charge")
    cluster.waiting(sessions["approval"])
    return sessions


def assert_all_ended(cluster: Cluster, sessions: dict[str, str]) -> None:
    """Nothing ran twice, and no result was lost: the workers were alive all the time."""
    assert cluster.answer(sessions["model"]) == "said and more"
    assert len(cluster.marks("model", sessions["model"])) == 1
    (read,) = cluster.idle(sessions["read"]).calls
    assert (read.status, read.attempts) == (CallStatus.SUCCEEDED, 1)
    (once,) = cluster.idle(sessions["once"]).calls
    assert (once.status, once.reconciled_by) == (CallStatus.SUCCEEDED, None)
    assert len(cluster.marks("charge", once.id)) == 1
    call = cluster.waiting(sessions["approval"])
    cluster.client.decide(sessions["approval"], call.id, DecisionVerb.APPROVE, by="ana")
    assert results(cluster.idle(sessions["approval"])) == ["charged"]
    for session_id in sessions.values():
        assert_history_holds(cluster.snapshot(session_id))


def assert_each_worker_works(cluster: Cluster) -> None:
    """One that hangs would be hidden by another that does its work."""
    for worker in cluster.workers:
        others = [other for other in cluster.workers if other is not worker]
        for other in others:
            other.signal(signal.SIGSTOP)
        session_id = cluster.say("/tools look {} look_async {}")
        assert results(cluster.idle(session_id)) == ["seen at once", "seen at once"]
        for other in others:
            other.signal(signal.SIGCONT)


def told_of_the_outage(cluster: Cluster) -> None:
    """Wait until some worker has noticed, so that the outage was longer than its patience."""
    for worker in cluster.workers:
        before = worker.output().count("waits for the store")
        wait_until(
            lambda worker=worker, before=before: (  # type: ignore[misc]
                worker.output().count("waits for the store") > before
            ),
            f"{worker.hostname} has noticed",
            timeout_seconds=PATIENCE,
        )


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_cr_03_workers_go_on_by_themselves_after_an_outage(pair: Cluster, how: str) -> None:
    workers = pair.workers
    gate = f"outage-{how}-{len(pair.marks('model'))}"
    sessions = run_turns(pair, gate)
    if how == "stopped":
        pair.stop_store()
    else:
        pair.kill_store()
    told_of_the_outage(pair)
    # What runs ends while the store is away: its outcome is kept until it is back.
    pair.open_gate(gate)
    wait_until(
        lambda: "waits: The session store" in "".join(worker.output() for worker in workers),
        "an outcome waits",
        timeout_seconds=PATIENCE,
    )
    pair.start_store()
    assert_all_ended(pair, sessions)
    assert pair.workers == workers
    assert_each_worker_works(pair)


def test_cr_03_an_outage_with_idle_workers_and_flaps(pair: Cluster) -> None:
    workers = pair.workers
    for _ in range(6):
        pair.kill_store()
        pair.start_store()
    assert_each_worker_works(pair)
    told = [pair.say(f"message {number}") for number in range(8)]
    for number, session_id in enumerate(told):
        assert pair.answer(session_id) == f"You said: message {number}"
    pair.stop_store()
    told_of_the_outage(pair)
    pair.start_store()
    told = [pair.say("/tool look {}") for _ in range(8)]
    for session_id in told:
        assert results(pair.idle(session_id)) == ["seen at once"]
    assert pair.workers == workers
    assert_each_worker_works(pair)


def test_cr_03_an_outage_of_twenty_seconds_while_children_are_recycled(cluster: Cluster) -> None:
    cluster.restore(0)
    env = {"CELERIAC_WORKER_POOL": "prefork", "CELERIAC_WORKER_CONCURRENCY": "2"}
    worker = cluster.start_worker("--max-tasks-per-child", "2", name="recycled", env=env)
    gate = f"recycled-{len(cluster.marks('look'))}"
    before = [cluster.say("/tool look {}") for _ in range(4)]
    for session_id in before:
        assert results(cluster.idle(session_id)) == ["seen at once"]
    running = cluster.say(f'/tool look {{"gate": "{gate}"}}')
    cluster.entered("look", cluster.running_call(running, "look").id)
    behind = [cluster.say("/tool look {}") for _ in range(4)]
    stopped_at = time.monotonic()
    cluster.stop_store()
    cluster.open_gate(gate)
    # The length of the outage is what the case is about.
    wait_until(
        lambda: time.monotonic() - stopped_at > 20, "20 s are over", timeout_seconds=PATIENCE
    )
    cluster.start_store()
    assert results(cluster.idle(running)) == [f"seen {gate}"]
    (call,) = cluster.snapshot(running).calls
    assert call.attempts == 1
    for session_id in behind:
        assert results(cluster.idle(session_id)) == ["seen at once"]
    assert cluster.workers == [worker]
    worker.kill()


def test_a_frozen_store_costs_no_attempt(pair: Cluster) -> None:
    gate = f"freeze-{len(pair.marks('model'))}"
    sessions = run_turns(pair, gate)
    pair.freeze_store()
    pair.open_gate(gate)
    # Longer than a lease and than what a command waits for its answer.
    told_of_the_outage(pair)
    pair.resume_store()
    assert_all_ended(pair, sessions)
    assert_each_worker_works(pair)


@pytest.fixture
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, EmbeddedStore]]:
    """A cluster whose broker is another Redis than its store."""
    root = tmp_path_factory.mktemp("apart")
    with EmbeddedStore(root / "broker", appendfsync="everysec") as broker:
        url = broker.url.replace("unix://", "redis+socket://").replace("?db=", "?virtual_host=")
        with Cluster(root / "cluster", env={"CELERIAC_BROKER_URL": url}) as cluster:
            cluster.start_workers(2)
            yield cluster, broker


def test_another_broker_may_lose_everything(apart: tuple[Cluster, EmbeddedStore]) -> None:
    cluster, broker = apart
    sessions = run_turns(cluster, "apart")
    assert cluster.broker_keys() == []
    broker_client = plain_redis(broker.url)
    assert broker_keys(broker_client)
    cluster.open_gate("apart")
    assert_all_ended(cluster, sessions)
    cluster.kill_workers()
    lost = [cluster.say(f"message {number}") for number in range(3)]
    assert broker_client.llen("celeriac.model") == 3
    broker_client.flushall()
    cluster.start_workers(2)
    for number, session_id in enumerate(lost):
        assert cluster.answer(session_id) == f"You said: message {number}"
    broker_client.close()


def test_another_broker_may_be_away(apart: tuple[Cluster, EmbeddedStore]) -> None:
    cluster, broker = apart
    workers = cluster.workers
    sessions = run_turns(cluster, "away")
    broker.stop()
    cluster.open_gate("away")
    # The message is stored, though nobody can be told of it.
    stored = cluster.say("while it was away")
    broker.start()
    assert_all_ended(cluster, sessions)
    assert cluster.answer(stored) == "You said: while it was away"
    assert cluster.workers == workers
    assert_each_worker_works(cluster)
