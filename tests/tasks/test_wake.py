"""When the wake loop takes an expired lease for a dead worker, and when for an outage of the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import pytest

from celeriac.sessions.store.keys import SessionKeys, step_field
from celeriac.sessions.store.packing import pack_session
from celeriac.sessions.store.sessions import SessionStore
from celeriac.tasks import wake
from celeriac.tasks.names import MODEL_QUEUE, TOOL_QUEUE
from celeriac.tasks.runtime import Runtime
from celeriac.tasks.wake import WakeLoop
from tests.store.driving import answer, claim, message, new_session

LEASE = 8.0


@dataclass
class Clock:
    """The time that the loop reads."""

    now: float = 1_000.0

    def monotonic(self) -> float:
        return self.now


class Watch:
    """A loop, its clock, and one claimed step."""

    def __init__(self, store: SessionStore, interval: float, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.interval = interval
        self.queues: tuple[str, ...] = ()
        values = {"lease_seconds": LEASE, "wake_interval_seconds": interval}
        settings = store.settings.model_copy(update=values)
        nobody = {"lives": None, "life": None, "owner": "w/1", "worker": "w"}
        here = SimpleNamespace(store=store, settings=settings, agents={}, **nobody)
        self.loop = WakeLoop(cast("Runtime", here), lambda: self.queues)
        self.session_id = new_session(store)
        self.claimed = claim(store, self.session_id)

    def end_lease(self) -> None:
        """Let the lease be over, as it is when nobody renewed it."""
        keys = SessionKeys.of(self.session_id)
        field = step_field(self.claimed.step.id)
        raw = self.store.client.hget(keys.session, field)
        assert isinstance(raw, bytes)
        not_before, _, rest = raw.decode().split(" ", 2)
        self.store.client.hset(keys.session, field, f"{not_before} 1 {rest}")
        self.store.client.zadd(keys.partition.wake, {self.session_id: 1})

    def look_after(self, seconds: float) -> None:
        self.clock.now += seconds
        self.loop.look()

    @property
    def is_held(self) -> bool:
        (step,) = self.store.load(self.session_id).state.steps
        return step.timing.token == self.claimed.token


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(wake, "time", clock)
    return clock


@pytest.fixture(params=[0.5, 30.0], ids=["often", "seldom"])
def watch(request: pytest.FixtureRequest, session_store: SessionStore, clock: Clock) -> Watch:
    return Watch(session_store, request.param, clock)


def test_a_lease_that_ends_between_two_looks_is_a_dead_worker(watch: Watch) -> None:
    watch.look_after(watch.interval)
    watch.end_lease()
    watch.look_after(watch.interval * 1.29)
    assert not watch.is_held


def test_a_lease_that_ended_while_the_store_was_away_is_extended_once(watch: Watch) -> None:
    watch.look_after(watch.interval)
    watch.end_lease()
    watch.look_after(watch.interval * 1.3 + LEASE)
    assert watch.is_held
    for _ in range(1 + int(LEASE / watch.interval)):
        watch.look_after(watch.interval)
    watch.end_lease()
    watch.look_after(watch.interval)
    assert not watch.is_held


def test_the_first_look_after_an_outage_may_find_nothing_due(watch: Watch) -> None:
    """A look that timed out may have been done by a frozen store, and put everything off."""
    watch.look_after(watch.interval)
    watch.look_after(watch.interval * 1.3 + LEASE)
    watch.end_lease()
    watch.look_after(min(watch.interval, 2.0))
    assert watch.is_held


def test_a_look_that_fails_makes_the_next_one_the_first_after_the_outage(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(watch.store, "take_due", fail)
        for _ in range(5):
            with pytest.raises(ConnectionError):
                watch.look_after(LEASE)
    watch.end_lease()
    watch.look_after(watch.interval)
    assert watch.is_held


def test_a_session_that_cannot_be_read_keeps_no_other_from_being_looked_at(watch: Watch) -> None:
    broken = [new_session(watch.store) for _ in range(20)]
    for session_id in broken:
        keys = SessionKeys.of(session_id)
        state = watch.store.client.hget(keys.session, "state")
        assert isinstance(state, bytes)
        newer = state.replace(b"{", b'{"of_a_later_version":1,', 1)
        watch.store.client.hset(keys.session, "state", newer)
        watch.store.client.zadd(keys.partition.wake, {session_id: 1})
    watch.end_lease()
    watch.look_after(watch.interval)
    assert not watch.is_held
    for session_id in broken:
        watch.store.client.zrem(SessionKeys.of(session_id).partition.wake, session_id)


def test_a_queue_that_this_worker_no_longer_consumes_is_not_waited_for(watch: Watch) -> None:
    """Else its watchdog would end a worker that an operator told to leave a queue alone."""
    watch.store.client.rpush(TOOL_QUEUE, "a message")
    watch.queues = (MODEL_QUEUE, TOOL_QUEUE)
    assert watch.loop.queued() == {TOOL_QUEUE}
    watch.queues = (MODEL_QUEUE,)
    assert watch.loop.queued() == frozenset()


# --- idle sessions are packed


class Packer:
    """Packs, or does not; remembers what it was asked to pack."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.seconds = 0.0
        self.fails_for: str | None = None
        self.asked: list[str] = []

    def pack(self, store: SessionStore, session_id: str, deletes: Callable[[str], bool]) -> bool:
        self.asked.append(session_id)
        self.clock.now += self.seconds
        if session_id == self.fails_for:
            raise ValueError("a record that nobody can read")
        return pack_session(store, session_id, deletes)


@pytest.fixture
def packer(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Packer:
    packer = Packer(clock)
    monkeypatch.setattr(wake, "pack_session", packer.pack)
    return packer


def idle_sessions(store: SessionStore, count: int, due: int = 1) -> list[str]:
    ids = [new_session(store) for _ in range(count)]
    for session_id in ids:
        answer(store, session_id)
        store.client.zadd(SessionKeys.of(session_id).partition.pack, {session_id: due})
    return ids


def in_index(store: SessionStore, session_id: str) -> bool:
    return store.client.zscore(SessionKeys.of(session_id).partition.pack, session_id) is not None


def test_an_idle_session_that_is_due_is_packed(watch: Watch, packer: Packer) -> None:
    (idle,) = idle_sessions(watch.store, 1)
    (later,) = idle_sessions(watch.store, 1, due=2**48)
    watch.look_after(watch.interval)
    assert packer.asked == [idle]
    assert not in_index(watch.store, idle)
    assert watch.store.client.exists(SessionKeys.of(idle).chunks)
    assert in_index(watch.store, later)


def test_a_session_that_cannot_be_packed_is_left_alone_until_its_next_turn(
    watch: Watch, packer: Packer
) -> None:
    broken, sound = idle_sessions(watch.store, 2)
    packer.fails_for = broken
    watch.look_after(watch.interval)
    assert sorted(packer.asked) == sorted([broken, sound])
    assert not in_index(watch.store, broken)
    watch.store.apply(broken, message("go on"))
    answer(watch.store, broken)
    assert in_index(watch.store, broken)


def test_packing_does_not_keep_the_loop_from_its_work(watch: Watch, packer: Packer) -> None:
    """What one look does not get to stays due."""
    ids = idle_sessions(watch.store, 3)
    packer.seconds = 1.0
    watch.look_after(watch.interval)
    assert len(packer.asked) == 1
    assert sum(in_index(watch.store, session_id) for session_id in ids) == 2
