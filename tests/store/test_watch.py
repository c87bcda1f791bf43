"""One connection waits for news of many sessions."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import redis

from celeriac.sessions.store.sessions import SessionStore
from celeriac.sessions.store.watch import EventWatch
from tests.store.driving import new_session
from tests.store.test_events import delta, streamed
from tests.waiting import wait_until


@pytest.fixture
def watch(redis_client: redis.Redis) -> Iterator[EventWatch]:
    with closing(EventWatch(redis_client)) as made:
        yield made


def blocked(client: redis.Redis) -> int:
    return int(client.info("clients")["blocked_clients"])


def test_it_says_which_sessions_moved_and_how_far(
    session_store: SessionStore, watch: EventWatch
) -> None:
    moved, still = streamed(session_store, ["a", "b"]), new_session(session_store, None)
    positions = {moved: "0-0", still: "0-0"}
    news = watch.wait(positions, block_ms=1)
    assert list(news) == [moved]
    positions.update(news)
    assert watch.wait(positions, block_ms=1) == {}
    session_store.publish(still, [delta("c")])
    assert list(watch.wait(positions, block_ms=1)) == [still]


def test_a_wait_ends_when_something_happens_or_somebody_interrupts_it(
    session_store: SessionStore, watch: EventWatch, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store, None)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(watch.wait, {sid: "0-0"}, block_ms=5_000)
        wait_until(lambda: blocked(redis_client) == 1, "the watch waits")
        watch.interrupt()
        assert waiting.result() == {}
        waiting = pool.submit(watch.wait, {sid: "0-0"}, block_ms=5_000)
        wait_until(lambda: blocked(redis_client) == 1, "the watch waits again")
        session_store.publish(sid, [delta("a")])
        assert list(waiting.result()) == [sid]


def test_interrupting_before_or_after_a_wait_changes_nothing(watch: EventWatch) -> None:
    watch.interrupt()
    watch.close()
    watch.interrupt()


def test_a_cut_connection_is_replaced(
    session_store: SessionStore, watch: EventWatch, redis_client: redis.Redis
) -> None:
    sid = streamed(session_store, ["a"])
    assert watch.wait({sid: "0-0"}, block_ms=1)
    redis_client.client_kill_filter(_type="normal", skipme=True)
    assert watch.wait({sid: "0-0"}, block_ms=1)
