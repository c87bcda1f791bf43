"""A worker that takes nothing although work is queued connects anew, or ends so that it is started again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tasks.cluster import PATIENCE, Cluster
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("watchdog")]

DEAF = str(Path(__file__).with_name("deaf_agents.py"))


def deaf_cluster(root: Path, pool: str) -> Cluster:
    env = {
        "CELERIAC_WATCHDOG_SECONDS": "2",
        "CELERIAC_WORKER_POOL": pool,
        "CELERIAC_WORKER_CONCURRENCY": "2",
    }
    return Cluster(root, agents=DEAF, env=env)


def make_deaf(cluster: Cluster) -> list[str]:
    """Let the worker go deaf, and queue work; what it had asked for before, it still takes."""
    cluster.open_gate("deaf")
    wait_until((cluster.root / "is-deaf").exists, "it is deaf", timeout_seconds=PATIENCE)
    return [cluster.say(f"message {number}") for number in range(6)]


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_cr_03_a_worker_that_takes_nothing_connects_anew(tmp_path: Path, pool: str) -> None:
    with deaf_cluster(tmp_path, pool) as cluster:
        worker = cluster.start_worker(name=pool)
        assert cluster.answer(cluster.say("hello")) == "You said: hello"
        sessions = make_deaf(cluster)
        for number, session_id in enumerate(sessions):
            assert cluster.answer(session_id) == f"You said: message {number}"
        assert worker.output().count("connecting anew") == 1
        assert worker.stop() == 0


def test_cr_03_a_worker_that_stays_deaf_is_told_of_and_ends_with_an_error(tmp_path: Path) -> None:
    with deaf_cluster(tmp_path, "threads") as cluster:
        worker = cluster.start_worker()
        cluster.open_gate("deaf-for-good")
        sessions = make_deaf(cluster)
        wait_until(
            lambda: not worker.alive or any(one.stuck for one in cluster.client.workers()),
            "others are told",
            timeout_seconds=PATIENCE,
        )
        assert worker.process.wait(PATIENCE) == 1
        assert "this worker ends, to be started again" in worker.output()
        for gate in ("deaf", "deaf-for-good"):
            (cluster.root / f"gate-{gate}").unlink()
        cluster.start_worker()
        for number, session_id in enumerate(sessions):
            assert cluster.answer(session_id) == f"You said: message {number}"
