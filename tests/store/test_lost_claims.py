"""A claim whose answer is lost is made again under its name, instead of blocking its step for a lease."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import redis

from celeriac.sessions.store import scripts
from celeriac.sessions.store.connection import DirectConnections
from celeriac.sessions.store.keys import SessionKeys, step_field
from celeriac.sessions.store.sessions import Claim, SessionStore, Verdict, new_claim_name
from tests.store.driving import claim, new_session


def claim_named(store: SessionStore, sid: str, name: str) -> Claim | Verdict:
    (step,) = store.load(sid).state.steps
    return store.claim(sid, step.id, step.name, step.call_id, "worker-1", claim_name=name)


def test_the_same_claim_again_gets_the_same_token(session_store: SessionStore) -> None:
    sid = new_session(session_store)
    name = new_claim_name()
    first = claim_named(session_store, sid, name)
    second = claim_named(session_store, sid, name)
    assert isinstance(first, Claim)
    assert isinstance(second, Claim)
    assert second.token == first.token
    assert second.messages == first.messages
    assert second.loaded.version == session_store.load(sid).version
    assert second.step.timing.owner == "worker-1"


def test_another_claim_of_the_same_worker_is_refused(session_store: SessionStore) -> None:
    sid = new_session(session_store)
    claim_named(session_store, sid, new_claim_name())
    assert claim_named(session_store, sid, new_claim_name()) == Verdict("busy")


def test_a_claim_that_comes_again_after_its_lease_is_good_if_nobody_decided_otherwise(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store)
    name = new_claim_name()
    first = claim_named(session_store, sid, name)
    assert isinstance(first, Claim)
    _end_lease(redis_client, sid, first.step.id)
    assert claim_named(session_store, sid, new_claim_name()) == Verdict("expired")
    again = claim_named(session_store, sid, name)
    assert isinstance(again, Claim)
    assert again.token == first.token
    due = again.step.timing.due
    assert due is not None
    assert due > again.loaded.now


def test_no_second_claim_is_made_when_redis_py_sends_the_command_again(
    session_store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sid = new_session(session_store)
    run = scripts.CLAIM.run

    def twice(
        client: DirectConnections, keys: Sequence[str], arguments: Sequence[scripts.Argument] = ()
    ) -> object:
        run(client, keys, arguments)
        return run(client, keys, arguments)

    monkeypatch.setattr(scripts.CLAIM, "run", twice)
    claimed = claim(session_store, sid)
    (step,) = session_store.load(sid).state.steps
    assert step.timing.token == claimed.token


def _end_lease(client: redis.Redis, sid: str, step_id: str) -> None:
    key, field = SessionKeys.of(sid).session, step_field(step_id)
    raw = client.hget(key, field)
    assert isinstance(raw, bytes)
    not_before, _, rest = raw.decode().split(" ", 2)
    client.hset(key, field, f"{not_before} 1 {rest}")
