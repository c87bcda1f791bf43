"""The wake index: who is due is looked at by one, and by another one if that one dies (invariant 2)."""

from __future__ import annotations

import redis

from celeriac.sessions.inputs import WokenUp
from celeriac.sessions.store.keys import PARTITIONS, SessionKeys, partition_of
from celeriac.sessions.store.packing import pack_session
from celeriac.sessions.store.sessions import SessionStore
from tests.store.dispatcher import RecordingDispatcher
from tests.store.driving import (
    answer,
    asking,
    at_once,
    broke,
    claim,
    new_session,
    open_step,
    set_timing,
)
from tests.store.indexes import check_indexes
from tests.waiting import wait_until

ALL = range(PARTITIONS)


def due_session(store: SessionStore, *, partition: int | None = None) -> str:
    """A session whose ready step nobody claimed for a long time."""
    sid = new_session(store, partition=partition)
    set_timing(store.client, sid, open_step(store, sid).id)
    return sid


def test_only_what_is_due_is_taken(session_store: SessionStore) -> None:
    new_session(session_store, None)
    new_session(session_store)
    asking(session_store)
    due = {due_session(session_store) for _ in range(5)}

    taken = session_store.take_due(ALL)

    assert len(taken) == 5
    assert set(taken) == due


def test_only_the_partitions_asked_for_are_looked_at(session_store: SessionStore) -> None:
    sid = due_session(session_store)
    mine = partition_of(sid)

    assert session_store.take_due([n for n in ALL if n != mine]) == []
    assert session_store.take_due([mine]) == [sid]


def test_many_due_sessions_are_taken_in_portions_the_longest_due_first(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    ids = [due_session(session_store, partition=7) for _ in range(5)]
    for number, sid in enumerate(ids):
        set_timing(redis_client, sid, open_step(session_store, sid).id, due=5 - number)

    assert session_store.take_due([7], limit=2) == ids[:-3:-1]
    assert session_store.take_due([7], limit=2) == ids[2:0:-1]
    assert session_store.take_due([7], limit=2) == ids[:1]
    assert session_store.take_due([7], limit=2) == []


def test_two_takers_never_get_the_same(session_store: SessionStore) -> None:
    due = [due_session(session_store, partition=number % 4) for number in range(60)]

    def take(_: int) -> list[str]:
        mine: list[str] = []
        while got := session_store.take_due(range(4), limit=3):
            mine += got
        return mine

    results = at_once(6, take)

    taken = [sid for result in results if isinstance(result, list) for sid in result]
    assert len(results) == 6
    assert sorted(taken) == sorted(due)


def test_a_session_whose_taker_died_comes_back(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = due_session(session_store)
    assert session_store.take_due(ALL) == [sid]
    assert session_store.take_due(ALL) == []
    check_indexes(redis_client, wake_scores=False)

    again: list[str] = []

    def taken_again() -> bool:
        again.extend(session_store.take_due(ALL))
        return again != []

    wait_until(taken_again, "it is due again")

    assert again == [sid]


def test_what_was_taken_and_moved_on_is_in_its_place(
    session_store: SessionStore, redis_client: redis.Redis, dispatcher: RecordingDispatcher
) -> None:
    sid = due_session(session_store)
    session_store.take_due(ALL)

    _, changed = session_store.apply(sid, WokenUp())

    assert changed
    assert [sent.step_id for sent in dispatcher.sent] == [dispatcher.sent[0].step_id] * 2
    check_indexes(redis_client)


def test_a_dead_lease_becomes_a_retry(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store)
    claimed = claim(session_store, sid, owner="worker-9")
    set_timing(redis_client, sid, claimed.step.id)
    assert session_store.take_due(ALL) == [sid]

    session_store.apply(sid, WokenUp())

    step = open_step(session_store, sid)
    assert (step.attempt, step.timing.claimed) == (2, False)
    assert step.last_error == "the worker that ran it was lost (worker-9)"
    check_indexes(redis_client)


def test_a_session_looked_at_too_early_goes_back_to_its_place(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    """Its entry may say too early a time; then looking changes nothing."""
    retrying = new_session(session_store)
    broke(session_store, claim(session_store, retrying))
    waiting, _ = asking(session_store)
    idle = new_session(session_store)
    answer(session_store, idle)
    for sid in (retrying, waiting, idle):
        redis_client.zadd(SessionKeys.of(sid).partition.wake, {sid: 1})
    assert sorted(session_store.take_due(ALL)) == sorted([retrying, waiting, idle])

    for sid in (retrying, waiting, idle):
        assert not session_store.apply(sid, WokenUp())[1]
        session_store.reindex(sid)

    check_indexes(redis_client)
    assert session_store.take_due(ALL) == []


def test_a_session_that_became_idle_while_it_was_looked_at_is_still_packed(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    """The look changed nothing and its turn ended just then."""
    sid = new_session(session_store)
    redis_client.zadd(SessionKeys.of(sid).partition.wake, {sid: 1})
    assert session_store.take_due(ALL) == [sid]
    assert not session_store.apply(sid, WokenUp())[1]
    answer(session_store, sid)

    session_store.reindex(sid)

    check_indexes(redis_client)
    assert pack_session(session_store, sid)
    check_indexes(redis_client)


def test_idle_sessions_are_taken_to_be_packed_a_few_at_a_time_and_hold_up_nothing_that_is_due(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    idle = [new_session(session_store, partition=7) for _ in range(3)]
    for number, sid in enumerate(idle):
        answer(session_store, sid)
        redis_client.zadd(SessionKeys.of(sid).partition.pack, {sid: number})
    due = due_session(session_store, partition=7)

    assert session_store.take_due([7], limit=1) == [due]
    assert session_store.take_idle([7]) == [idle[0]]
    assert session_store.take_idle(ALL, limit=5) == idle[1:]
    assert session_store.take_idle(ALL) == []
    check_indexes(redis_client, wake_scores=False)
    session_store.leave_unpacked(idle[0])
    assert redis_client.zcard(SessionKeys.of(due).partition.pack) == 2
