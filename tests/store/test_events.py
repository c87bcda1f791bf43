"""Live events: positions, what cannot be resumed, waiting, and how long they live."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from celeriac.sessions.client import SessionClient
from celeriac.sessions.events import EventBatch, EventType, LiveEvent
from celeriac.sessions.settings import Settings
from celeriac.sessions.store.keys import SessionKeys
from celeriac.sessions.store.sessions import SessionStore
from tests.store.dispatcher import RecordingDispatcher
from tests.store.driving import answer, claim, message, new_session, planned, respond
from tests.waiting import wait_until


def delta(text: str) -> LiveEvent:
    return LiveEvent(EventType.TEXT_DELTA, {"step_id": "s1", "attempt": 1, "text": text})


def said(batch: EventBatch) -> list[str]:
    return [json.loads(event.json)["data"].get("text") for event in batch.events]


def kinds(batch: EventBatch) -> list[str]:
    return [json.loads(event.json)["type"] for event in batch.events]


def streamed(store: SessionStore, texts: Sequence[str]) -> str:
    """An idle session with just these events."""
    sid = new_session(store, None)
    for text in texts:
        store.publish(sid, [delta(text)])
    return sid


def test_a_commit_tells_what_it_changed(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = session_client.create_session().session_id
    session_client.send_message(sid, "first")
    session_client.send_message(sid, "second")
    respond(session_store, sid, planned(), planned(approval=True))

    batch = session_client.events(sid, after="0-0")

    assert not batch.reload
    assert kinds(batch) == [
        "turn.started",
        "message.added",
        "queue.changed",
        "step.started",
        "step.ended",
        "message.added",
        "call.updated",
        "call.updated",
    ]


def test_reading_goes_on_after_a_position(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = streamed(session_store, "abcde")
    first = session_client.events(sid, after="0-0", limit=2)
    assert said(first) == ["a", "b"]

    rest = session_client.events(sid, after=first.events[-1].id)
    assert said(rest) == ["c", "d", "e"]
    nothing = session_client.events(sid, after=rest.events[-1].id)
    assert nothing == EventBatch()


def test_events_of_one_batch_keep_their_order(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = new_session(session_store, None)
    session_store.publish(sid, [delta(str(number)) for number in range(50)])

    batch = session_client.events(sid, after="0-0")

    assert said(batch) == [str(number) for number in range(50)]


def test_text_of_any_kind_comes_back_as_it_was(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    text = 'ä ✓ 𝄞 "quoted" \\u0000 \n\r\x1b'
    sid = streamed(session_store, [text])

    assert said(session_client.events(sid, after="0-0")) == [text]


def test_a_session_without_events(session_client: SessionClient) -> None:
    sid = session_client.create_session().session_id

    assert session_client.events(sid, after="0-0") == EventBatch()
    assert session_client.events("ses_000000000000000000000000", after="0-0") == EventBatch()


def test_a_position_from_the_future_must_reload(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    """As after a restore of an older copy of the store."""
    sid = streamed(session_store, "ab")
    last = session_client.events(sid, after="0-0").events[-1].id
    milliseconds, _, sequence = last.partition("-")

    for later in (f"{int(milliseconds) + 1}-0", f"{milliseconds}-{int(sequence) + 1}"):
        assert session_client.events(sid, after=later) == EventBatch(reload=True)


def test_a_position_older_than_the_stream_must_reload(
    session_client: SessionClient, session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = streamed(session_store, "abcdef")
    ids = [event.id for event in session_client.events(sid, after="0-0").events]
    redis_client.xtrim(SessionKeys.of(sid).events, maxlen=3, approximate=False)

    assert session_client.events(sid, after=ids[0]).reload
    assert session_client.events(sid, after=ids[1]).reload
    assert said(session_client.events(sid, after=ids[3])) == ["e", "f"]


@pytest.mark.parametrize("said_since", [False, True])
def test_a_position_of_an_expired_stream_must_reload(
    session_client: SessionClient,
    session_store: SessionStore,
    redis_client: redis.Redis,
    *,
    said_since: bool,
) -> None:
    sid = streamed(session_store, "ab")
    last = session_client.events(sid, after="0-0").events[-1].id
    redis_client.delete(SessionKeys.of(sid).events)
    wait_until(
        lambda: session_store.load(sid).read_at > int(last.partition("-")[0]), "a millisecond"
    )
    if said_since:
        session_store.publish(sid, [delta("c")])

    assert session_client.events(sid, after=last) == EventBatch(reload=True)
    assert not session_client.events(sid, after=session_client.snapshot(sid).resume_token).reload


def test_the_beginning_of_a_stream_that_was_cut_must_reload(
    redis_client: redis.Redis, settings: Settings
) -> None:
    few = settings.model_copy(update={"events_max": 100})
    store = SessionStore(redis_client, RecordingDispatcher(), few)
    sid = new_session(store, None)
    store.publish(sid, [delta(str(number)) for number in range(1_000)])

    assert SessionClient(store, few).events(sid, after="0-0") == EventBatch(reload=True)


def test_the_stream_is_capped(redis_client: redis.Redis, settings: Settings) -> None:
    few = settings.model_copy(update={"events_max": 100})
    store = SessionStore(redis_client, RecordingDispatcher(), few)
    sid = new_session(store, None)
    for number in range(600):
        store.apply(sid, message(f"text {number}"))

    # Redis trims whole nodes of a hundred entries.
    assert 100 <= redis_client.xlen(SessionKeys.of(sid).events) <= 300


@pytest.mark.parametrize("end", ["answered", "step"])
def test_events_live_for_a_while_after_the_last_of_them(
    session_store: SessionStore, redis_client: redis.Redis, settings: Settings, end: str
) -> None:
    sid = new_session(session_store)
    events = SessionKeys.of(sid).events
    redis_client.expire(events, 5)
    if end == "answered":
        answer(session_store, sid)
    else:
        claim(session_store, sid)

    assert redis_client.ttl(events) > settings.events_ttl_seconds - 60
    redis_client.expire(events, 5)
    session_store.publish(sid, [delta("more")])
    assert redis_client.ttl(events) > settings.events_ttl_seconds - 60


@pytest.mark.parametrize("empty", [False, True])
def test_a_waiting_reader_wakes_up(
    session_client: SessionClient,
    session_store: SessionStore,
    redis_client: redis.Redis,
    *,
    empty: bool,
) -> None:
    sid = streamed(session_store, [] if empty else "ab")
    position = session_client.snapshot(sid).resume_token

    def blocked() -> bool:
        return any(
            "b" in one["flags"] and one["cmd"] == "xread" for one in redis_client.client_list()
        )

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(session_client.events, sid, after=position, block_ms=5_000)
        wait_until(blocked, "the reader waits")
        session_store.publish(sid, [delta("c"), delta("d")])
        batch = waiting.result(10)

    assert not batch.reload
    assert said(batch)[0] == "c"
    assert said(session_client.events(sid, after=position)) == ["c", "d"]


def test_a_reader_does_not_wait_for_ever(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = streamed(session_store, "a")
    position = session_client.snapshot(sid).resume_token

    assert session_client.events(sid, after=position, block_ms=20) == EventBatch()


def test_a_reader_that_goes_on_and_on_misses_nothing(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = new_session(session_store, None)
    texts = [str(number) for number in range(300)]
    ready = threading.Event()

    def read() -> list[str]:
        got: list[str] = []
        position = "0-0"
        ready.set()
        while len(got) < len(texts):
            batch = session_client.events(sid, after=position, block_ms=2_000, limit=7)
            assert not batch.reload
            assert batch.events
            position = batch.events[-1].id
            got += said(batch)
        return got

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        ready.wait(10)
        for text in texts:
            session_store.publish(sid, [delta(text)])

        assert reading.result(30) == texts
