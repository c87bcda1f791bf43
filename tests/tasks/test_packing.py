"""What workers do for the store: they pack idle sessions, and end the turns of those that are too large."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from celeriac.sessions.messages import Role
from celeriac.sessions.state import SessionStatus
from celeriac.sessions.store.keys import SessionKeys
from tests.tasks.cluster import PATIENCE, Cluster, results
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("packing")]


@pytest.fixture(scope="module")
def thrifty(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with a worker that packs at once and lets a session take 64 KiB."""
    env = {"CELERIAC_PACK_AFTER_SECONDS": "0", "CELERIAC_SESSION_MAX_BYTES": "65536"}
    worker = cluster.start_worker(name="thrifty", env=env)
    yield cluster
    worker.kill()


def await_packed(cluster: Cluster, session_id: str) -> None:
    keys = SessionKeys.of(session_id)

    def packed() -> bool:
        in_index = cluster.redis.zscore(keys.partition.pack, session_id) is not None
        return not in_index and not cluster.redis.exists(keys.steps, keys.calls)

    wait_until(packed, "the idle session is packed", timeout_seconds=PATIENCE)


def test_an_idle_session_is_packed_and_goes_on(thrifty: Cluster) -> None:
    session_id = thrifty.say("/tools look {} put {}")
    before = thrifty.idle(session_id)
    await_packed(thrifty, session_id)
    shown = thrifty.snapshot(session_id)
    assert len(results(shown)) == 2
    assert (shown.messages, shown.calls) == (before.messages, before.calls)
    assert {call.status.value for call in shown.calls} == {"succeeded"}
    steps = thrifty.client.steps(session_id)

    thrifty.client.send_message(session_id, "and now?")
    assert thrifty.answer(session_id) == "You said: and now?"
    await_packed(thrifty, session_id)
    assert thrifty.client.steps(session_id)[: len(steps)] == steps
    assert thrifty.model_problems() == []


def test_the_turns_of_a_session_that_is_too_large_fail_and_it_can_still_be_read(
    thrifty: Cluster,
) -> None:
    session_id = thrifty.say("x" * 70_000)
    shown = thrifty.idle(session_id)

    assert shown.status is SessionStatus.IDLE
    notice = shown.messages[-1]
    assert notice.role is Role.NOTICE
    assert "its limit is 65,536 (CELERIAC_SESSION_MAX_BYTES)" in notice.text
    assert len(thrifty.client.messages(session_id).messages[0].text) == 70_000
    attempts = [step for step in thrifty.client.steps(session_id) if step.name.value == "RunModel"]
    assert len(attempts) == 1, "another attempt would find it as large"
    await_packed(thrifty, session_id)
    thrifty.client.send_message(session_id, "and now?")
    assert "its limit is" in thrifty.idle(session_id).messages[-1].text
