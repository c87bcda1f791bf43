"""Leases: a claim lives as long as its worker says so."""

from __future__ import annotations

import pytest
import redis

from celeriac.sessions.inputs import StepReturned, WokenUp
from celeriac.sessions.store.keys import SessionKeys, step_field
from celeriac.sessions.store.sessions import SessionStore
from tests.store.driving import (
    WRITE,
    at_once,
    claim,
    new_session,
    planned,
    respond,
    set_timing,
    tool_ended,
)
from tests.store.indexes import check_indexes


def wake_score(client: redis.Redis, session_id: str) -> float | None:
    return client.zscore(SessionKeys.of(session_id).partition.wake, session_id)


def test_a_lease_is_lengthened_from_now(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store)
    claimed = claim(session_store, sid, owner="worker-7")
    soon = claimed.loaded.read_at + 500
    set_timing(redis_client, sid, claimed.step.id, not_before=1, due=soon)

    assert session_store.renew(sid, claimed.step.id, claimed.token)

    loaded = session_store.load(sid)
    timing = loaded.state.steps[0].timing
    lease = session_store.rules.lease_ms
    assert timing.due is not None
    assert claimed.loaded.read_at + lease <= timing.due <= loaded.read_at + lease
    assert wake_score(redis_client, sid) == timing.due
    before = claimed.step.timing
    assert timing == before.model_copy(update={"not_before": 1, "due": timing.due})
    check_indexes(redis_client)


def test_a_renewal_in_time_disturbs_nobody(session_store: SessionStore) -> None:
    """Else every long step would make every decision of a person lose its race now and then."""
    sid = new_session(session_store)
    claimed = claim(session_store, sid)

    assert session_store.renew(sid, claimed.step.id, claimed.token)

    assert session_store.load(sid).version == claimed.loaded.version


@pytest.mark.parametrize("wrong", ["token", "step", "session", "ended"])
def test_what_is_not_held_is_not_renewed(
    session_store: SessionStore, redis_client: redis.Redis, wrong: str
) -> None:
    sid = new_session(session_store)
    other = new_session(session_store, None)
    claimed = claim(session_store, sid)
    step_id, token = claimed.step.id, claimed.token
    if wrong == "ended":
        session_store.apply(sid, StepReturned(step_id, token))
    if wrong == "token":
        token += 1
    if wrong == "step":
        step_id = "s99"
    before = redis_client.hgetall(SessionKeys.of(sid).session)

    assert not session_store.renew(other if wrong == "session" else sid, step_id, token)

    assert redis_client.hgetall(SessionKeys.of(sid).session) == before
    check_indexes(redis_client)


def test_renewing_an_expired_lease_makes_a_wake_commit_lose(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store)
    call = planned("cancel_order", effect=WRITE)
    respond(session_store, sid, call)
    claimed = claim(session_store, sid)
    set_timing(redis_client, sid, claimed.step.id)
    seen = session_store.load(sid)
    assert seen.state.steps[0].timing.due == 1

    assert session_store.renew(sid, claimed.step.id, claimed.token)

    assert session_store.try_apply(WokenUp(), seen) is None
    state, changed = session_store.apply(sid, WokenUp())
    assert not changed
    assert state.unknown == ()
    assert tool_ended(session_store, claimed).unknown == ()


def test_a_wake_commit_that_was_quicker_ends_the_lease(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store)
    claimed = claim(session_store, sid)
    set_timing(redis_client, sid, claimed.step.id)
    session_store.apply(sid, WokenUp())

    assert not session_store.renew(sid, claimed.step.id, claimed.token)
    field = redis_client.hget(SessionKeys.of(sid).session, step_field(claimed.step.id))
    assert isinstance(field, bytes)
    assert field.split(b" ")[3] == b"0"


def test_one_of_renewal_and_loss_wins(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    for _ in range(20):
        sid = new_session(session_store)
        respond(session_store, sid, planned("cancel_order", effect=WRITE))
        claimed = claim(session_store, sid)
        set_timing(redis_client, sid, claimed.step.id)

        def act(
            thread: int, sid: str = sid, step_id: str = claimed.step.id, token: int = claimed.token
        ) -> bool:
            if thread:
                return session_store.renew(sid, step_id, token)
            return bool(session_store.apply(sid, WokenUp())[0].unknown)

        lost, renewed = at_once(2, act)

        assert {lost, renewed} == {True, False}
        check_indexes(redis_client)


def test_after_a_renewal_the_earliest_step_is_still_looked_at_first(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store)
    respond(session_store, sid, planned(), planned(), planned(approval=True))
    claimed = claim(session_store, sid)
    ready = session_store.load(sid).state.steps[1]

    session_store.renew(sid, claimed.step.id, claimed.token)

    assert wake_score(redis_client, sid) == ready.timing.due
    check_indexes(redis_client)
