"""Who is taken for dead, and when: never a process that may be alive."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from celeriac.sessions.store.lives import LifeRecord, Lives
from celeriac.sessions.store.sessions import SessionStore
from celeriac.tasks import life as life_module, lost
from celeriac.tasks.life import Life, certainly_ended, record_of_this_process
from celeriac.tasks.lost import Undertaker
from tests.waiting import wait_until

LEASE = 8.0
ELSEWHERE = LifeRecord(worker="other", machine="elsewhere", pid=1, parent=0, lease_ms=8_000)
EARLIER = ELSEWHERE.model_copy(update={"worker": "here"})


@dataclass
class Clock:
    now: float = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lost, "time", clock)
    monkeypatch.setattr(life_module, "time", clock)
    return clock


@pytest.fixture
def lives(session_store: SessionStore) -> Lives:
    return Lives(session_store.client, session_store.direct)


@pytest.fixture
def life(lives: Lives, clock: Clock) -> Iterator[Life]:
    life = Life(lives, "here/1", record_of_this_process("here", LEASE))
    life.start()
    held(lives)
    yield life
    life.end()


@pytest.fixture
def undertaker(lives: Lives, life: Life) -> Undertaker:
    return Undertaker(lives, life, "here/1", "here", LEASE)


def held(lives: Lives) -> None:
    wait_until(lambda: lives.missing("here/1")[0], "its life is held")


def cut_connections(session_store: SessionStore) -> None:
    """What an outage does: every connection of this kind ends."""
    session_store.client.client_kill_filter(_type="pubsub")


def test_who_is_missed_twice_is_dead_and_found_by_one_looker_only(
    undertaker: Undertaker, lives: Lives, life: Life, clock: Clock
) -> None:
    second = Undertaker(lives, life, "here/1", "here", LEASE)
    lives.register("other/1", ELSEWHERE)
    clock.now += LEASE
    assert not undertaker.look()
    assert not second.look()
    clock.now += 0.4
    assert not undertaker.look()
    clock.now += 0.1
    assert undertaker.look() == {"other/1": ELSEWHERE}
    assert not second.look()
    assert set(lives.all()) == {"here/1"}


def test_nobody_is_judged_for_a_lease_after_this_process_began(
    undertaker: Undertaker, lives: Lives, clock: Clock
) -> None:
    lives.register("other/1", ELSEWHERE)
    for _ in range(int(LEASE)):
        assert not undertaker.look()
        clock.now += 1
    assert not undertaker.look()
    clock.now += 1
    assert undertaker.look()


def test_nobody_is_judged_for_a_lease_after_every_connection_was_cut(
    undertaker: Undertaker, lives: Lives, life: Life, clock: Clock, session_store: SessionStore
) -> None:
    lives.register("other/1", ELSEWHERE)
    lives.register("here/0", EARLIER)
    clock.now += LEASE
    assert not undertaker.look()
    clock.now += 1
    cut_connections(session_store)
    wait_until(lambda: not life.is_first, "the loss is noticed")
    held(lives)
    for _ in range(int(LEASE)):
        assert not undertaker.look()
        clock.now += 1
    # Its own subscription may have come back a moment after the others; then the lease begins there.
    judged: set[str] = set()
    for _ in range(int(LEASE) + 2):
        judged |= set(undertaker.look())
        clock.now += 1
    assert judged == {"other/1", "here/0"}


def test_who_comes_back_between_two_looks_lives(
    undertaker: Undertaker, lives: Lives, clock: Clock
) -> None:
    lives.register("other/1", ELSEWHERE)
    clock.now += LEASE
    for _ in range(3):
        assert not undertaker.look()
        with lives.subscribe("other/1"):
            clock.now += 1
            assert not undertaker.look()
        wait_until(lambda: lives.missing("here/1")[1], "its connection is gone again")


def test_an_earlier_life_of_the_same_worker_is_not_given_a_lease(
    undertaker: Undertaker, lives: Lives, clock: Clock
) -> None:
    lives.register("here/0", EARLIER)
    assert not undertaker.look()
    clock.now += 0.5
    assert undertaker.look() == {"here/0": EARLIER}


def test_a_process_of_this_machine_that_has_ended_is_dead_at_once(
    undertaker: Undertaker, lives: Lives
) -> None:
    record = record_of_this_process("other", LEASE)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        alive = record.model_copy(update={"pid": child.pid, "started": ""})
        lives.register("other/1", alive)
        assert not certainly_ended(alive)
        assert not undertaker.look()
        child.kill()
        # Not reaped yet: it is a zombie, and runs nothing.
        wait_until(lambda: certainly_ended(alive), "it is dead")
        assert undertaker.look() == {"other/1": alive}
    assert certainly_ended(alive)


def test_a_later_process_of_the_same_id_is_another() -> None:
    record = record_of_this_process("here", LEASE)
    assert not certainly_ended(record)
    if record.started:
        assert certainly_ended(record.model_copy(update={"started": "1"}))
    assert not certainly_ended(record.model_copy(update={"machine": "elsewhere", "pid": 2**22}))
    assert record.pid == os.getpid()


def test_one_that_is_not_seen_itself_judges_nobody(lives: Lives, life: Life, clock: Clock) -> None:
    """Where subscriptions cannot be seen, as behind some proxies, leases alone count."""
    undertaker = Undertaker(lives, life, "nobody/1", "nobody", LEASE)
    lives.register("other/1", ELSEWHERE)
    clock.now += LEASE
    for _ in range(3):
        assert not undertaker.look()
        clock.now += 1


def test_a_life_that_ends_in_good_order_leaves_nothing_behind(
    lives: Lives, life: Life, undertaker: Undertaker
) -> None:
    life.end()
    assert lives.all() == {}
    assert not undertaker.look()


def test_a_process_that_was_taken_for_dead_registers_again(
    lives: Lives, session_store: SessionStore, life: Life
) -> None:
    assert lives.forget("here/1")
    cut_connections(session_store)
    wait_until(lambda: "here/1" in lives.all(), "it is registered again")
    held(lives)
