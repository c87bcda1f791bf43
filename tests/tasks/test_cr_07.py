"""CR-07: every connection belongs to the process that made it, and no session sees what is another's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from celeriac.sessions.store.keys import SessionKeys
from tests.tasks.cluster import Cluster, results

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
