"""What goes on, as the store tells it: counts, queues, and sessions that do not move."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest

from celeriac.sessions.client import SessionClient
from celeriac.sessions.errors import NotFound, Refused
from celeriac.sessions.operations import ReasonKind
from celeriac.sessions.rates import Outcome, Work
from celeriac.sessions.settings import Settings
from celeriac.sessions.snapshot import WorkerInfo
from celeriac.sessions.state import SessionStatus
from celeriac.sessions.store.connection import DirectConnections
from celeriac.sessions.store.keys import PartitionKeys, SessionKeys
from celeriac.sessions.store.lists import SessionLists
from celeriac.sessions.store.reader import SessionReader
from celeriac.sessions.store.scripts import Argument, Script
from celeriac.sessions.store.sessions import SessionStore
from celeriac.tasks.celery import make_app
from celeriac.tasks.dispatch import CeleryDispatcher
from celeriac.tasks.names import MODEL_QUEUE, TOOL_QUEUE
from celeriac.tasks.queues import CeleryQueues
from tests.store.driving import (
    answer,
    asking,
    broke,
    claim,
    new_session,
    planned,
    unknown,
    whole_turn,
)

QUEUES = CeleryQueues(Settings())


def announce(store: SessionStore, client: SessionClient, *queues: str) -> None:
    seconds, _ = store.client.time()
    worker = WorkerInfo(
        name="worker-1",
        seen_at=seconds * 1000,
        pid=1,
        host="h",
        queues=queues,
        concurrency=4,
        version="0",
        running=0,
    )
    reader = SessionReader(store, store.settings)
    SessionLists(store, reader, store.settings).announce(worker, [])


def test_an_empty_store(session_client: SessionClient) -> None:
    found = session_client.operations.read(QUEUES)
    assert set(found.sessions.values()) == {0}
    assert [(one.name, one.depth, one.oldest_at, one.workers) for one in found.queues] == [
        (MODEL_QUEUE, 0, None, 0),
        (TOOL_QUEUE, 0, None, 0),
    ]
    assert (found.workers, found.slow, found.overdue) == ((), (), 0)


def test_sessions_and_calls_are_counted(
    session_store: SessionStore, session_client: SessionClient
) -> None:
    new_session(session_store)
    new_session(session_store)
    asking(session_store)
    unknown(session_store)
    found = session_client.operations.read(QUEUES)
    assert sum(found.sessions.values()) == 4
    assert found.sessions[SessionStatus.WAITING] == 1
    assert (found.approvals_waiting, found.unknown_outcomes) == (1, 1)


def test_sessions_at_work_come_with_their_reasons_the_slowest_first(
    session_store: SessionStore, session_client: SessionClient
) -> None:
    sids = [new_session(session_store) for _ in range(3)]
    keys = SessionKeys.of(sids[2])
    session_store.client.zadd(keys.partition.status(SessionStatus.RUNNING), {sids[2]: 1.0})
    found = session_client.operations.read(QUEUES)
    assert found.slow[0].session_id == sids[2]
    assert {one.session_id for one in found.slow} == set(sids)
    assert [reason.kind for reason in found.slow[0].reasons] == [ReasonKind.NO_WORKER]
    announce(session_store, session_client, MODEL_QUEUE)
    found = session_client.operations.read(QUEUES)
    assert [reason.kind for reason in found.slow[0].reasons] == [ReasonKind.STARTING]
    assert [one.workers for one in found.queues] == [1, 0]


def test_a_session_that_nobody_looks_after_is_overdue(
    session_store: SessionStore, session_client: SessionClient
) -> None:
    sid = new_session(session_store)
    session_store.client.zadd(SessionKeys.of(sid).partition.wake, {sid: 1.0})
    assert session_client.operations.read(QUEUES).overdue == 1


def test_the_oldest_message_of_a_queue_tells_since_when_its_step_is_ready(
    session_store: SessionStore, session_client: SessionClient
) -> None:
    sid = new_session(session_store)
    (step,) = session_store.load(sid).state.steps
    settings = session_store.settings
    dispatcher = CeleryDispatcher(make_app(settings), settings)
    try:
        for _, raw in dispatcher.writes(sid, [step]):
            session_store.client.lpush(MODEL_QUEUE, raw)
        session_store.client.lpush(MODEL_QUEUE, b"somebody else's")
        model, _ = session_client.operations.read(QUEUES).queues
        assert (model.depth, model.oldest_at) == (2, step.timing.not_before)
    finally:
        session_store.client.delete(MODEL_QUEUE)


def test_where_the_broker_is_another_one_nothing_is_said_of_depths(
    session_client: SessionClient,
) -> None:
    elsewhere = CeleryQueues(Settings(broker_url="amqp://guest@127.0.0.1//"))
    found = session_client.operations.read(elsewhere).queues
    assert [(queue.depth, queue.oldest_at) for queue in found] == [(None, None)] * 2


def test_why_one_session_is_where_it_is(
    session_store: SessionStore, session_client: SessionClient
) -> None:
    sid, _ = asking(session_store)
    state, now, reasons = session_client.operations.reasons(sid, QUEUES)
    assert state.session_id == sid
    assert [reason.kind for reason in reasons] == [ReasonKind.APPROVAL]
    assert now >= reasons[0].since
    with pytest.raises(NotFound):
        session_client.operations.reasons("ses_000000000000000000000000", QUEUES)


def ended(client: SessionClient) -> dict[tuple[Work, Outcome], int]:
    rates = client.operations.read(QUEUES).rates
    return {(one.work, one.outcome): sum(one.per_minute) for one in rates if sum(one.per_minute)}


def test_each_attempt_is_counted_once_in_the_commit_that_ends_it(
    session_store: SessionStore, session_client: SessionClient
) -> None:
    sid = new_session(session_store, None)
    whole_turn(session_store, sid, planned())
    assert ended(session_client) == {
        (Work.MODEL, Outcome.SUCCEEDED): 2,
        (Work.TOOL, Outcome.SUCCEEDED): 1,
    }
    unknown(session_store)
    assert ended(session_client)[Work.TOOL, Outcome.UNKNOWN] == 1


def test_a_failed_attempt_that_is_tried_again_is_a_retry_and_a_late_report_counts_nothing(
    session_store: SessionStore, session_client: SessionClient
) -> None:
    sid = new_session(session_store)
    claimed = claim(session_store, sid)
    broke(session_store, claimed)
    with suppress(Refused):
        broke(session_store, claimed)
    assert ended(session_client) == {(Work.MODEL, Outcome.RETRIED): 1}


def test_a_commit_that_is_sent_again_counts_once(
    session_store: SessionStore, session_client: SessionClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a lost answer."""
    run = Script.run

    def twice(
        self: Script,
        connections: DirectConnections,
        keys: Sequence[str],
        arguments: Sequence[Argument] = (),
    ) -> object:
        if self.name == "commit":
            assert run(self, connections, keys, arguments) == 1
        return run(self, connections, keys, arguments)

    sid = new_session(session_store)
    monkeypatch.setattr(Script, "run", twice)
    answer(session_store, sid)
    assert ended(session_client) == {(Work.MODEL, Outcome.SUCCEEDED): 1}


def test_counts_of_another_version_are_left_alone(
    session_store: SessionStore, session_client: SessionClient
) -> None:
    now = session_store.client.time()[0] * 1000
    key = PartitionKeys(3).rates(now // 3_600_000)
    session_store.client.hset(key, "0:video:succeeded", 5)
    session_store.client.expire(key, 100)
    assert ended(session_client) == {}


def test_a_session_at_work_says_which_turn_may_be_stopped(
    session_store: SessionStore, session_client: SessionClient
) -> None:
    sid = new_session(session_store)
    claim(session_store, sid)
    (slow,) = session_client.operations.read(QUEUES).slow
    turn = session_store.load(sid).state.turn
    assert turn is not None
    assert (slow.turn_id, slow.stopping) == (turn.id, False)
    session_client.cancel_turn(sid, turn_id=slow.turn_id)
    (slow,) = session_client.operations.read(QUEUES).slow
    assert slow.stopping
