"""CR-09: a store that is full. Nothing is half written, nothing runs twice, and work goes on by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import redis

from celeriac.sessions.calls import CallStatus
from celeriac.sessions.errors import StoreUnavailable
from tests.tasks.cluster import PATIENCE, Cluster, assert_history_holds, results
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("full-store")]

MEGABYTE = 1024 * 1024


@contextmanager
def full(client: redis.Redis) -> Iterator[None]:
    """Fill 20 MB to the last byte."""
    client.config_set("maxmemory", 20 * MEGABYTE)
    size = MEGABYTE
    while size >= 1:
        try:
            client.append("filler", b"x" * size)
        except redis.exceptions.OutOfMemoryError:
            size //= 2
    yield
    client.delete("filler")


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_cr_09_work_goes_on_once_there_is_memory(tmp_path: Path, pool: str) -> None:
    operator = f"ana:operator:{hashlib.sha256(b'ana').hexdigest()}"
    env = {"CELERIAC_WORKER_POOL": pool, "CELERIAC_OPERATORS": operator}
    with Cluster(tmp_path, env=env) as cluster:
        worker = cluster.start_worker(name=pool)
        _, base = cluster.start_web()
        write = cluster.say('/tool charge {"after": "full"}')
        call = cluster.running_call(write, "charge")
        cluster.entered("charge", call.id)
        read = cluster.say('/tool look {"gate": "full"}')
        cluster.entered("look", cluster.running_call(read, "look").id)
        with full(cluster.redis):
            cluster.open_gate("full")
            wait_until(
                lambda: worker.output().count("Outcome of step") >= 4,
                "the outcomes were refused several times",
                timeout_seconds=PATIENCE,
            )
            with pytest.raises(StoreUnavailable):
                cluster.client.send_message(read, "are you there?")
            with httpx.Client(base_url=base, headers={"Authorization": "Bearer ana"}) as web:
                answer = web.post("/api/sessions", json={"message": "hello"})
            assert answer.status_code == 503
            assert int(answer.headers["Retry-After"]) > 0
            # What can be read is whole.
            assert cluster.snapshot(write).calls[0].status is CallStatus.RUNNING
        (settled,) = cluster.idle(write).calls
        assert settled.status in {CallStatus.SUCCEEDED, CallStatus.OUTCOME_UNKNOWN}
        assert len(cluster.marks("charge", call.id)) == 1
        assert results(cluster.idle(read)) == ["seen full"]
        assert cluster.answer(cluster.say("hello")) == "You said: hello"
        assert len(cluster.marks("charge", call.id)) == 1
        for session_id in (write, read):
            assert_history_holds(cluster.snapshot(session_id))


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_cr_09_a_worker_refuses_a_store_that_may_drop_sessions(
    cluster: Cluster, policy: str
) -> None:
    cluster.restore(0)
    try:
        cluster.redis.config_set("maxmemory", 200 * MEGABYTE)
        cluster.redis.config_set("maxmemory-policy", policy)
        worker = cluster.start_worker(ready=False)
        assert worker.process.wait(PATIENCE) == 1
        assert f"maxmemory-policy is {policy}" in worker.output()
        assert "noeviction" in worker.output()
    finally:
        cluster.redis.config_set("maxmemory-policy", "noeviction")
        cluster.redis.config_set("maxmemory", 0)
    cluster.start_worker()
