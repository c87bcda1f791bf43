"""Living processes are seen by their subscription, and the claims of dead ones are found."""

from __future__ import annotations

import pytest

from celeriac.sessions.inputs import WokenUp
from celeriac.sessions.store.keys import PARTITIONS
from celeriac.sessions.store.lives import LifeRecord, Lives
from celeriac.sessions.store.sessions import SessionStore
from tests.store.driving import claim, new_session, planned, respond
from tests.waiting import wait_until

RECORD = LifeRecord(worker="w", machine="m", pid=1, parent=0, lease_ms=8_000)


@pytest.fixture
def lives(session_store: SessionStore) -> Lives:
    return Lives(session_store.client, session_store.direct)


def test_a_process_is_missed_once_its_subscription_has_ended(lives: Lives) -> None:
    assert lives.missing("w/1") == (False, {})
    with lives.subscribe("w/1"):
        lives.register("w/1", RECORD)
        lives.register("w/2", RECORD)
        assert lives.missing("w/1") == (True, {"w/2": RECORD})
        assert lives.missing("w/2") == (False, {"w/2": RECORD})
    wait_until(lambda: "w/1" in lives.missing("w/2")[1], "its connection is gone")
    assert lives.missing("w/1")[0] is False
    assert lives.forget("w/1")
    assert not lives.forget("w/1")
    assert set(lives.all()) == {"w/2"}


def test_the_claims_of_an_owner_are_found_in_every_partition(
    session_store: SessionStore, lives: Lives
) -> None:
    mine = [new_session(session_store, partition=number) for number in range(PARTITIONS)]
    for session_id in mine:
        claim(session_store, session_id, owner="w/1")
    other = new_session(session_store)
    claim(session_store, other, owner="w/11")
    new_session(session_store)
    assert sorted(lives.claims_of({"w/1"}, 8_000)) == sorted(mine)
    assert set(lives.claims_of({"w/1", "w/11"}, 8_000)) == {*mine, other}
    # One that somebody looks at just now is found as well.
    session_store.client.zadd("celeriac:{0}:wake", {mine[0]: 1})
    assert session_store.take_due(range(PARTITIONS)) == [mine[0]]
    assert mine[0] in set(lives.claims_of({"w/1"}, 500))


def test_the_claims_of_the_dead_are_given_back(session_store: SessionStore, lives: Lives) -> None:
    session_id = new_session(session_store)
    respond(session_store, session_id, planned("a"), planned("b"))
    claim(session_store, session_id, owner="w/1")
    claim(session_store, session_id, owner="w/2")
    (found,) = lives.claims_of({"w/1"}, 8_000)
    state, changed = session_store.apply(found, WokenUp(dead_owners={"w/1": "it was lost"}))
    assert changed
    assert [step.timing.owner for step in state.steps] == ["", "w/2"]
    assert list(lives.claims_of({"w/1"}, 8_000)) == []
