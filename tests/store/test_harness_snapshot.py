"""The snapshot of a harness: stored in the very commit of its step, or not at all."""

from __future__ import annotations

from dataclasses import replace

from celeriac.sessions.inputs import ModelReplied
from celeriac.sessions.store.sessions import Claim, SessionStore
from tests.store.driving import claim, message, new_session, planned


def replied(store: SessionStore, claimed: Claim, snapshot: str | None, *, ends: bool) -> None:
    calls = () if ends else (planned(approval=True),)
    event = ModelReplied(claimed.step.id, claimed.token, "Well.", calls, snapshot=snapshot)
    store.apply(claimed.loaded.state.session_id, event)


def test_it_is_replaced_left_and_deleted_with_the_step(session_store: SessionStore) -> None:
    sid = new_session(session_store)
    assert session_store.harness_snapshot(sid) is None
    kept = []
    for snapshot in ('{"a": 1}', '{"a": 2}', None, ""):
        replied(session_store, claim(session_store, sid), snapshot, ends=True)
        kept.append(session_store.harness_snapshot(sid))
        session_store.apply(sid, message())
    assert kept == ['{"a": 1}', '{"a": 2}', '{"a": 2}', None]


def test_a_step_that_has_lost_its_claim_writes_none(session_store: SessionStore) -> None:
    sid = new_session(session_store)
    claimed = claim(session_store, sid)
    stale = replace(claimed, token=claimed.token - 1)
    replied(session_store, stale, '{"of": "the loser"}', ends=False)
    assert session_store.harness_snapshot(sid) is None
    replied(session_store, claimed, '{"of": "the holder"}', ends=False)
    replied(session_store, claimed, '{"of": "a repetition"}', ends=False)
    assert session_store.harness_snapshot(sid) == '{"of": "the holder"}'
