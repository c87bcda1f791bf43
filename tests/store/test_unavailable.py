"""A store that is away, full, read-only, busy or silent: one kind of error, and nothing half done (CR-09)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import cast

import pytest
import redis
from pydantic import JsonValue

from celeriac.sessions.calls import CallStatus, DecisionVerb
from celeriac.sessions.client import SessionClient
from celeriac.sessions.errors import StoreUnavailable
from celeriac.sessions.events import EventType, LiveEvent
from celeriac.sessions.inputs import TurnCancelled
from celeriac.sessions.settings import Settings
from celeriac.sessions.store.connection import connect
from celeriac.sessions.store.embedded import EmbeddedStore
from celeriac.sessions.store.lists import SessionLists
from celeriac.sessions.store.reader import SessionReader
from celeriac.sessions.store.sessions import SessionStore
from tests.store.announced import AGENTS, WORKER
from tests.store.dispatcher import RecordingDispatcher
from tests.store.driving import (
    WRITE,
    answer,
    asking,
    claim,
    message,
    new_session,
    open_step,
    planned,
    reply,
    respond,
    tool_ended,
    try_claim,
    unknown,
)
from tests.store.indexes import check_indexes
from tests.store.kept_sessions import contents
from tests.waiting import wait_until

Works = dict[str, Callable[[], object]]


class Frail:
    """A store of this test alone, with sessions in every state, that can be made to fail."""

    def __init__(self, server: EmbeddedStore, settings: Settings, client: redis.Redis) -> None:
        self.server = server
        self.client = client
        self.dispatcher = RecordingDispatcher()
        self.store = SessionStore(client, self.dispatcher, settings)
        self.sessions = SessionClient(self.store, settings)
        self.lists = SessionLists(self.store, SessionReader(self.store, settings), settings)
        self.lists.announce(WORKER, AGENTS)
        self.idle = new_session(self.store, None)
        self.ready = new_session(self.store)
        self.running = new_session(self.store)
        self.claimed = claim(self.store, self.running)
        self.queued = new_session(self.store)
        self.store.apply(self.queued, message("waits", "m-1"))
        self.asking, self.asked = asking(self.store)
        self.unknown, self.lost = unknown(self.store)

    def reads(self) -> Works:
        each = self.sessions
        return {
            "load": lambda: self.store.load(self.ready),
            "peek": lambda: self.store.peek([self.ready, self.idle]),
            "message_known": lambda: self.store.records.message_known(self.queued, "m-1"),
            "ping": each.ping,
            "snapshot": lambda: each.snapshot(self.asking),
            "messages": lambda: each.messages(self.asking),
            "call": lambda: each.call(self.asking, self.asked),
            "steps": lambda: each.steps(self.asking),
            "events": lambda: each.events(self.asking, after="0-0"),
            "list_sessions": each.list_sessions,
            "approvals": each.approvals,
            "unknown_outcomes": each.unknown_outcomes,
            "agents": each.agents,
            "workers": each.workers,
        }

    def writes(self) -> Works:
        each = self.sessions
        step = self.claimed.step
        return {
            "create_session": each.create_session,
            "create_session with a message": lambda: each.create_session(message="hello"),
            "send_message": lambda: each.send_message(self.idle, "hello"),
            "send_message to the queue": lambda: each.send_message(self.ready, "hello"),
            "delete_queued": lambda: each.delete_queued(self.queued, "m-1"),
            "steer": lambda: each.steer(self.queued),
            "cancel_turn": lambda: each.cancel_turn(self.ready),
            "decide": lambda: each.decide(self.asking, self.asked, DecisionVerb.APPROVE, by="Ana"),
            "reconcile": lambda: each.reconcile(self.unknown, self.lost, succeeded=True, by="Ana"),
            "claim": lambda: try_claim(self.store, self.ready, step),
            "respond": lambda: self.store.apply(self.running, TurnCancelled()),
            "renew": lambda: self.store.renew(self.running, step.id, self.claimed.token),
            "take_due": lambda: self.store.take_due(range(64)),
            "take_idle": lambda: self.store.take_idle(range(64)),
            "reindex": lambda: self.store.reindex(self.ready),
            "announce": lambda: self.lists.announce(WORKER, AGENTS),
        }

    def contents(self) -> dict[bytes, JsonValue]:
        return {name: contents(self.client, name) for name in self.client.scan_iter(count=1000)}


@pytest.fixture
def frail(tmp_path: Path, settings: Settings) -> Iterator[Frail]:
    with (
        EmbeddedStore(tmp_path / "frail", appendfsync="everysec") as server,
        closing(connect(server.url)) as client,
    ):
        yield Frail(server, settings, client)


@contextmanager
def full(client: redis.Redis, *, room: int = 0) -> Iterator[None]:
    """Let the store have no memory left, but for some bytes."""
    used = cast("int", cast("dict[str, object]", client.info("memory"))["used_memory"])
    client.config_set("maxmemory", used + room if room else 1)
    yield
    client.config_set("maxmemory", 0)


@contextmanager
def read_only(client: redis.Redis) -> Iterator[None]:
    """Make it the replica of a server that is not there, as after a failover."""
    client.replicaof("127.0.0.1", "1")
    yield
    client.replicaof("NO", "ONE")


def check_unavailable(works: Works) -> None:
    for name, work in works.items():
        with pytest.raises(StoreUnavailable) as caught:
            work()
        assert caught.value.retry_after_seconds > 0, name


def check_whole(frail: Frail) -> None:
    """Everything goes on as if nothing had been."""
    check_indexes(frail.client, wake_scores=False)
    frail.sessions.send_message(frail.idle, "hello")
    answer(frail.store, frail.idle)
    answer(frail.store, frail.ready)
    frail.sessions.decide(frail.asking, frail.asked, DecisionVerb.REJECT, by="Ana")
    frail.sessions.reconcile(frail.unknown, frail.lost, succeeded=True, by="Ana")
    check_indexes(frail.client, wake_scores=False)


def test_every_call_says_that_the_store_is_away(frail: Frail) -> None:
    frail.server.stop()

    check_unavailable(frail.reads() | frail.writes())
    frail.store.publish(frail.ready, [LiveEvent(EventType.TEXT_DELTA, {"text": "lost"})])

    frail.server.start()
    check_whole(frail)


def test_a_full_store_is_read_but_not_written(frail: Frail) -> None:
    before = frail.contents()
    sent = list(frail.dispatcher.sent)

    with full(frail.client):
        check_unavailable(frail.writes())
        frail.store.publish(frail.ready, [LiveEvent(EventType.TEXT_DELTA, {"text": "lost"})])
        for work in frail.reads().values():
            work()

    assert frail.contents() == before
    assert frail.dispatcher.sent == sent
    check_whole(frail)


def test_a_store_that_fills_up_during_a_commit_takes_it_whole_or_not(frail: Frail) -> None:
    """However much room there is left when it begins."""
    calls = [planned("look", {"text": "x" * 500}, approval=True) for _ in range(20)]
    refused = 0
    for room in range(1, 60_000, 4_000):
        sid = new_session(frail.store)
        claimed = claim(frail.store, sid)
        before = frail.contents()
        with full(frail.client, room=room):
            try:
                reply(frail.store, claimed, "I will look.", calls)
            except StoreUnavailable:
                refused += 1
                assert frail.contents() == before
                continue
        shown = frail.sessions.snapshot(sid)
        assert [call.status for call in shown.calls] == [CallStatus.AWAITING_APPROVAL] * 20
        check_indexes(frail.client, wake_scores=False)
    assert refused > 0
    check_whole(frail)


def test_a_write_that_happened_is_recorded_once_there_is_room(frail: Frail) -> None:
    sid = new_session(frail.store)
    call = planned("cancel_order", effect=WRITE)
    respond(frail.store, sid, call)
    claimed = claim(frail.store, sid)

    with full(frail.client):
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                tool_ended(frail.store, claimed, {"cancelled": "A-1"})
        with pytest.raises(StoreUnavailable):
            frail.store.renew(sid, claimed.step.id, claimed.token)
        assert frail.sessions.call(sid, call.request.id).status is CallStatus.RUNNING
    tool_ended(frail.store, claimed, {"cancelled": "A-1"})

    record = frail.sessions.call(sid, call.request.id)
    assert (record.status, record.result) == (CallStatus.SUCCEEDED, {"cancelled": "A-1"})
    single = [one for one in frail.dispatcher.sent if one.call_id == call.request.id]
    assert len(single) == 1


def test_a_read_only_store_is_read_but_not_written(frail: Frail) -> None:
    before = frail.contents()

    with read_only(frail.client):
        check_unavailable(frail.writes())
        for work in frail.reads().values():
            work()
        assert frail.contents() == before

    check_whole(frail)


def test_a_store_that_is_busy_with_a_foreign_script_is_away(frail: Frail) -> None:
    frail.client.config_set("busy-reply-threshold", 1)
    with closing(connect(frail.server.url)) as other:
        thread = threading.Thread(target=run_for_ever, args=(other,))
        thread.start()
        try:
            wait_until(lambda: is_busy(frail.client), "the server is busy")
            check_unavailable(frail.reads() | frail.writes())
        finally:
            frail.client.script_kill()
            thread.join(10)

    check_whole(frail)


def run_for_ever(client: redis.Redis) -> None:
    with pytest.raises(redis.ResponseError):
        client.eval("while true do end", 0)


def is_busy(client: redis.Redis) -> bool:
    try:
        client.ping()
    except redis.ResponseError:
        return True
    return False


def test_an_answer_that_comes_too_late_is_no_answer_to_what_follows(
    frail: Frail, settings: Settings
) -> None:
    pid = frail.server.pid
    assert pid is not None
    with closing(redis.Redis.from_url(frail.server.url, socket_timeout=0.2)) as client:
        impatient = SessionStore(client, RecordingDispatcher(), settings)
        assert impatient.load(frail.idle).state.session_id == frail.idle
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(StoreUnavailable):
                impatient.load(frail.ready)
            with pytest.raises(StoreUnavailable):
                SessionClient(impatient, settings).agents()
        finally:
            os.kill(pid, signal.SIGCONT)

        for _ in range(3):
            for sid in (frail.idle, frail.asking):
                assert impatient.load(sid).state.session_id == sid


def test_a_store_that_was_restarted_is_used_again_at_once(frail: Frail) -> None:
    step = open_step(frail.store, frail.ready)
    before = frail.contents()
    frail.server.stop()
    frail.server.start()

    assert frail.contents() == before
    claimed = claim(frail.store, frail.ready, step)
    assert frail.store.renew(frail.ready, step.id, claimed.token)
    frail.client.script_flush()
    assert frail.store.renew(frail.ready, step.id, claimed.token)


@pytest.mark.parametrize("url", ["unix:///nowhere/valkey.sock", "redis://127.0.0.1:1/0"])
def test_a_store_that_was_never_there(settings: Settings, url: str) -> None:
    with closing(connect(url)) as client:
        store = SessionStore(client, RecordingDispatcher(), settings)
        with pytest.raises(StoreUnavailable, match="does not answer"):
            store.load("ses_000000000000000000000000")
        with pytest.raises(StoreUnavailable, match="does not answer"):
            SessionClient(store, settings).ping()
