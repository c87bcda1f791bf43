"""Sessions that earlier versions stored are read and go on; `kept_sessions` says how they are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest
import redis

from celeriac.sessions import codec
from celeriac.sessions.calls import CallStatus, DecisionVerb
from celeriac.sessions.client import SessionClient
from celeriac.sessions.inputs import WokenUp
from celeriac.sessions.state import SCHEMA_VERSION, SessionState, SessionStatus, StepName
from celeriac.sessions.store.keys import SessionKeys
from celeriac.sessions.store.packing import pack_session
from celeriac.sessions.store.sessions import SessionStore
from tests.store.driving import answer, claim, message, open_step, set_timing, tool_ended
from tests.store.indexes import check_indexes
from tests.store.kept_sessions import FOLDER, SHAPES, Kept, put, seen, take

FILES = sorted(FOLDER.glob("v*/*.json"))
SEEN = ("status", "title", "messages", "calls", "unknown", "queue", "plan", "steps")


def read(path: Path) -> Kept:
    return cast("Kept", json.loads(path.read_text()))


@pytest.fixture(params=FILES, ids=[f"{path.parent.name}-{path.stem}" for path in FILES])
def kept(request: pytest.FixtureRequest) -> Kept:
    return read(request.param)


def go_on(store: SessionStore, client: SessionClient, session_id: str) -> None:
    """Do whatever the session waits for, until it is idle with nothing queued."""
    for _ in range(60):
        state = store.load(session_id).state
        if state.turn is None:
            if not state.queue:
                return
            store.apply(session_id, message("go on"))
            continue
        _one_step(store, client, state)
    pytest.fail(f"{session_id} does not come to an end: {store.load(session_id).state.steps}")


def _one_step(store: SessionStore, client: SessionClient, state: SessionState) -> None:
    sid = state.session_id
    for call in state.turn.calls if state.turn else ():
        if call.status is CallStatus.AWAITING_APPROVAL:
            client.decide(sid, call.id, DecisionVerb.APPROVE, by="Ana")
            return
        if call.status is CallStatus.AWAITING_ANSWER:
            client.answer(sid, call.id, "L", by="Ana")
            return
    step = open_step(store, sid)
    set_timing(store.client, sid, step.id)
    if step.timing.claimed or step.name.waits:
        store.apply(sid, WokenUp())
    elif step.name is StepName.RUN_MODEL:
        answer(store, sid)
    else:
        tool_ended(store, claim(store, sid, step))


def test_there_is_one_of_each_kind_for_this_version() -> None:
    assert {path.stem for path in (FOLDER / f"v{SCHEMA_VERSION}").glob("*.json")} == set(SHAPES)


@pytest.mark.parametrize("name", SHAPES)
def test_what_is_kept_comes_back_as_it_was(
    session_store: SessionStore, redis_client: redis.Redis, name: str
) -> None:
    kept = take(session_store, SHAPES[name](session_store))
    redis_client.flushall()
    again = take(session_store, put(redis_client, cast("Kept", json.loads(json.dumps(kept)))))
    assert again == kept


def test_a_kept_session_is_read(
    session_store: SessionStore, redis_client: redis.Redis, kept: Kept
) -> None:
    sid = put(redis_client, kept)
    now = cast("Kept", json.loads(json.dumps(seen(session_store, sid))))
    then = cast("Kept", kept["seen"])
    assert {key: now[key] for key in SEEN} == {key: then[key] for key in SEEN}


def test_a_kept_session_goes_on_to_its_end(
    session_store: SessionStore,
    session_client: SessionClient,
    redis_client: redis.Redis,
    kept: Kept,
) -> None:
    sid = put(redis_client, kept)
    go_on(session_store, session_client, sid)
    session_store.apply(sid, message("one more"))
    for entry in session_store.load(sid).state.unknown:
        session_client.reconcile(sid, entry.id, succeeded=True, by="Ana")
    go_on(session_store, session_client, sid)

    before = seen(session_store, sid)
    assert pack_session(session_store, sid)
    assert seen(session_store, sid) == before
    assert session_client.snapshot(sid).status is SessionStatus.IDLE
    assert not redis_client.exists(SessionKeys.of(sid).calls)
    check_indexes(redis_client)


def test_a_session_without_the_fields_that_packing_needs_works(
    session_store: SessionStore, session_client: SessionClient, redis_client: redis.Redis
) -> None:
    sid = SHAPES["idle_with_tools"](session_store)
    before = seen(session_store, sid)
    redis_client.hdel(SessionKeys.of(sid).session, "bytes", "commits")
    redis_client.zrem(SessionKeys.of(sid).partition.pack, sid)
    assert session_store.load(sid).stored_bytes == 0
    assert seen(session_store, sid) == before

    go_on(session_store, session_client, sid)
    session_store.apply(sid, message("one more"))
    go_on(session_store, session_client, sid)
    assert pack_session(session_store, sid)
    assert session_store.load(sid).stored_bytes > 1_000


def test_a_session_of_an_older_schema_is_upcast_when_it_is_read_and_stored_so_at_its_next_commit(
    session_store: SessionStore,
    session_client: SessionClient,
    redis_client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a schema that there never was: its states call the agent `assistant`."""
    sid = SHAPES["queued_messages"](session_store)
    before = seen(session_store, sid)
    key = SessionKeys.of(sid).session
    data = json.loads(cast("bytes", redis_client.hget(key, "state")))
    older = {"schema_version": SCHEMA_VERSION - 1, "assistant": data.pop("agent")}
    redis_client.hset(key, "state", json.dumps({**data, **older}))

    def upcast(old: dict[str, object]) -> dict[str, object]:
        old["agent"] = old.pop("assistant")
        return old

    monkeypatch.setattr(codec, "UPCASTERS", {SCHEMA_VERSION - 1: upcast})
    assert seen(session_store, sid) == before
    go_on(session_store, session_client, sid)

    raw = cast("bytes", redis_client.hget(key, "state"))
    assert json.loads(raw)["schema_version"] == SCHEMA_VERSION
    assert b"assistant" not in raw
