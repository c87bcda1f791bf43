"""When the wake loop takes an expired lease for a dead worker, and when for an outage of the store."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import pytest

from celeriac.sessions.store.keys import SessionKeys, step_field
from celeriac.sessions.store.sessions import SessionStore
from celeriac.tasks import wake
from celeriac.tasks.runtime import Runtime
from celeriac.tasks.wake import WakeLoop
from tests.store.driving import claim, new_session

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
        values = {"lease_seconds": LEASE, "wake_interval_seconds": interval}
        settings = store.settings.model_copy(update=values)
        nobody = {"lives": None, "life": None, "owner": "w/1", "worker": "w"}
        here = SimpleNamespace(store=store, settings=settings, **nobody)
        self.loop = WakeLoop(cast("Runtime", here), (), "w", 1)
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
