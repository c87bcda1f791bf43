"""CR-07: every connection belongs to the process that made it, and no session sees what is another's."""

from __future__ import annotations

import hashlib
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from celeriac.sessions.store.keys import SessionKeys
from tests.tasks.cluster import CHECKOUT, PATIENCE, Cluster, free_port, results
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("forks")]

AGENTS = str(Path(__file__).with_name("forked_agents.py"))


def test_cr_07_a_hundred_turns_on_eight_children(tmp_path: Path) -> None:
    env = {"CELERIAC_WORKER_POOL": "prefork", "CELERIAC_WORKER_CONCURRENCY": "8"}
    with Cluster(tmp_path, agents=AGENTS, env=env) as cluster:
        worker = cluster.start_worker(name="prefork")
        numbers = range(100)

        def say(number: int) -> str:
            note = f'{{"order_id": "1003", "note": "n{number}"}}'
            return cluster.say(f"/tools set_note {note} look_async {{}}")

        with ThreadPoolExecutor(8) as people:
            sessions = list(people.map(say, numbers))
        for number, session_id in zip(numbers, sessions, strict=True):
            snapshot = cluster.idle(session_id)
            note, seen = results(snapshot)
            assert f'"note":"n{number}"' in note.replace(" ", "")
            assert seen == "seen at once"
            events = repr(cluster.redis.xrange(SessionKeys.of(session_id).events))
            assert f"n{number}" in events
            assert not any(other in events for other in sessions if other != session_id)
        assert cluster.model_problems() == []
        makers = {mark.pid for mark in cluster.marks("connection")}
        users = {mark.pid for mark in cluster.marks("model")}
        assert len(users) == 8
        assert users < makers
        assert worker.pid not in users
        assert cluster.marks("foreign") == []


def test_cr_07_a_web_that_was_loaded_before_it_forks(tmp_path: Path) -> None:
    operator = f"ana:operator:{hashlib.sha256(b'ana').hexdigest()}"
    env = {"CELERIAC_OPERATORS": operator, "CELERIAC_WEB_PROCESSES": "3"}
    with Cluster(tmp_path, env=env) as cluster:
        cluster.start_worker()
        port = free_port()
        config = str(CHECKOUT / "web" / "gunicorn_conf.py")
        command = [sys.executable, "-m", "gunicorn", "--preload", "--config", config]
        web = cluster.start(
            "web", [*command, "tests.tasks.forked_web:app"], env={"CELERIAC_PORT": str(port)}
        )
        base = f"http://127.0.0.1:{port}"
        wait_until(lambda: is_ready(base), "the web is ready", timeout_seconds=PATIENCE)

        def turn(number: int) -> str:
            # A connection each, so that every process gets some.
            headers = {"Authorization": "Bearer ana"}
            with httpx.Client(base_url=base, headers=headers, timeout=PATIENCE) as person:
                made = person.post("/api/sessions", json={"message": f"message {number}"}).json()
                session_id: str = made["session_id"]
                cluster.idle(session_id)
                shown = person.get(f"/api/sessions/{session_id}").json()
            return str(shown["messages"][-1]["text"])

        with ThreadPoolExecutor(8) as people:
            answers = list(people.map(turn, range(40)))
        assert answers == [f"You said: message {number}" for number in range(40)]
        users = {mark.pid for mark in cluster.marks("connection")}
        assert len(users) == 3
        assert web.pid not in users
        assert cluster.marks("foreign") == []


def is_ready(base: str) -> bool:
    try:
        return httpx.get(f"{base}/readyz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
