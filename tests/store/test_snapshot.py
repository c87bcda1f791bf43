"""What a page reads: one consistent moment, and older messages page by page."""

from __future__ import annotations

import threading

import pytest
import redis

from celeriac.sessions.calls import CallStatus
from celeriac.sessions.client import SessionClient
from celeriac.sessions.events import EventType, LiveEvent
from celeriac.sessions.inputs import QueuedMessageDeleted, TurnCancelled
from celeriac.sessions.messages import Role
from celeriac.sessions.settings import Settings
from celeriac.sessions.snapshot import Snapshot
from celeriac.sessions.state import SessionStatus, StepName
from celeriac.sessions.store.keys import SessionKeys
from celeriac.sessions.store.reader import SNAPSHOT_MESSAGES, SessionReader
from celeriac.sessions.store.sessions import SessionStore
from tests.store.driving import (
    answer,
    at_once,
    broke,
    claim,
    message,
    new_session,
    planned,
    respond,
    tool_ended,
    whole_turn,
)


def long_session(store: SessionStore, turns: int) -> str:
    sid = new_session(store, None)
    for _ in range(turns):
        whole_turn(store, sid, planned())
    return sid


def check_consistent(shown: Snapshot) -> None:
    """What can be wrong when the parts are of different moments."""
    asked = [ref.id for one in shown.messages for ref in one.calls]
    answered = [one.call_id for one in shown.messages if one.call_id is not None]
    assert [call.id for call in shown.calls] == asked
    assert answered == asked[: len(answered)]
    assert [one.seq for one in shown.messages] == list(range(len(shown.messages)))
    if shown.turn is None:
        assert answered == asked
    open_calls = {step.call_id: step.state for step in shown.turn.steps} if shown.turn else {}
    for call in shown.calls:
        assert (call.id in open_calls) is not call.status.settled
        if call.status is CallStatus.RUNNING:
            assert open_calls[call.id] == "running"
    assert all(item.text for item in shown.queue)
    unknown = [one.id for one in shown.calls if one.status is CallStatus.OUTCOME_UNKNOWN]
    assert list(shown.unknown_calls) == unknown


def test_a_new_session_is_empty(
    session_client: SessionClient, session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = session_client.create_session().session_id

    shown = session_client.snapshot(sid)

    assert (shown.session_id, shown.agent, shown.model, shown.title) == (sid, "desk", "demo", "")
    assert (shown.status, shown.turn, shown.version) == (SessionStatus.IDLE, None, 1)
    assert (shown.messages, shown.calls, shown.queue, shown.has_older) == ((), (), (), False)
    assert shown.resume_token == "0-0"
    assert redis_client.exists(SessionKeys.of(sid).events) == 0


def test_a_running_turn_is_shown_with_its_steps(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = session_client.create_session(message="first").session_id
    calls = [planned(), planned(approval=True), planned()]
    respond(session_store, sid, *calls)
    claimed = claim(session_store, sid, owner="worker-3")

    shown = session_client.snapshot(sid)

    check_consistent(shown)
    assert shown.status is SessionStatus.RUNNING
    assert shown.turn is not None
    assert [(step.name, step.state, step.owner) for step in shown.turn.steps] == [
        (StepName.CALL_TOOL, "running", "worker-3"),
        (StepName.AWAIT_TOOL_APPROVAL, "waiting", None),
        (StepName.CALL_TOOL, "ready", None),
    ]
    assert [call.status for call in shown.calls] == [
        CallStatus.RUNNING,
        CallStatus.AWAITING_APPROVAL,
        CallStatus.PENDING,
    ]
    assert shown.calls[0].attempts == 1
    broke(session_store, claimed)
    again = session_client.snapshot(sid)
    assert again.turn is not None
    assert again.turn.steps[0].state == "retrying"
    assert again.calls[0].status is CallStatus.RETRYING


def test_calls_are_shown_with_the_messages_that_made_them(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = session_client.create_session(message="first").session_id
    one, two = planned("look", {"n": 1}), planned("look", {"n": 2})
    respond(session_store, sid, one, two)
    tool_ended(session_store, claim(session_store, sid), {"found": 1})
    tool_ended(session_store, claim(session_store, sid), {"found": 2})
    answer(session_store, sid)
    whole_turn(session_store, sid)

    shown = session_client.snapshot(sid)

    check_consistent(shown)
    assert [(call.id, call.arguments, call.result) for call in shown.calls] == [
        (one.request.id, {"n": 1}, {"found": 1}),
        (two.request.id, {"n": 2}, {"found": 2}),
    ]
    assert [one.text for one in shown.messages if one.role is Role.TOOL] == [
        '{"found":1}',
        '{"found":2}',
    ]


def test_queued_messages_are_shown_with_their_texts(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = session_client.create_session(message="first").session_id
    for number in range(5):
        session_client.send_message(sid, f"text {number} ✓", message_id=f"m-{number}")
    session_client.delete_queued(sid, "m-1")
    answer(session_store, sid)

    shown = session_client.snapshot(sid)

    assert [(one.id, one.text) for one in shown.queue] == [
        ("m-2", "text 2 ✓"),
        ("m-3", "text 3 ✓"),
        ("m-4", "text 4 ✓"),
    ]


def test_the_latest_messages_are_shown_and_older_ones_page(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = long_session(session_store, 60)  # four messages each

    shown = session_client.snapshot(sid)

    assert len(shown.messages) == SNAPSHOT_MESSAGES == 200
    assert shown.has_older
    assert [one.seq for one in shown.messages] == list(range(40, 240))
    assert len(shown.calls) == 50
    page = session_client.messages(sid, before=shown.messages[0].seq, limit=30)
    assert [one.seq for one in page.messages] == list(range(10, 40))
    assert page.has_older
    asked = [ref.id for one in page.messages for ref in one.calls]
    assert [call.id for call in page.calls] == asked
    assert {call.status for call in page.calls} == {CallStatus.SUCCEEDED}
    last = session_client.messages(sid, before=10, limit=30)
    assert [one.seq for one in last.messages] == list(range(10))
    assert not last.has_older


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_paging_loses_and_doubles_nothing(
    session_client: SessionClient, session_store: SessionStore, limit: int
) -> None:
    sid = long_session(session_store, 5)
    seqs: list[int] = []
    before: int | None = None
    while True:
        page = session_client.messages(sid, before=before, limit=limit)
        seqs = [*(one.seq for one in page.messages), *seqs]
        before = seqs[0]
        if not page.has_older:
            break

    assert seqs == list(range(20))


@pytest.mark.parametrize(
    ("before", "limit", "seqs"),
    [
        (None, 2, [2, 3]),
        (99, 2, [2, 3]),
        (4, 2, [2, 3]),
        (1, 2, [0]),
        (0, 2, []),
        (-5, 2, []),
        (2, 0, []),
    ],
)
def test_pages_at_the_edges(
    session_client: SessionClient,
    session_store: SessionStore,
    before: int | None,
    limit: int,
    seqs: list[int],
) -> None:
    sid = long_session(session_store, 1)

    page = session_client.messages(sid, before=before, limit=limit)

    assert [one.seq for one in page.messages] == seqs


def test_a_snapshot_goes_on_where_its_events_begin(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = session_client.create_session(message="first").session_id
    shown = session_client.snapshot(sid)

    session_store.publish(sid, [LiveEvent(EventType.TEXT_DELTA, {"text": "He"})])

    [event] = session_client.events(sid, after=shown.resume_token).events
    assert event.json == '{"type":"text.delta","data":{"text":"He"}}'
    assert session_client.snapshot(sid).resume_token == event.id


def test_a_call_that_settles_while_a_page_is_read_is_not_half_shown(
    session_client: SessionClient, session_store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sid = session_client.create_session(message="first").session_id
    respond(session_store, sid, planned(), planned())
    claimed = claim(session_store, sid)
    read_calls = SessionReader.calls
    ended = threading.Event()

    def end_it_first(self: SessionReader, *arguments: object) -> object:
        if not ended.is_set():
            ended.set()
            tool_ended(session_store, claimed)
        return read_calls(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SessionReader, "calls", end_it_first)

    check_consistent(session_client.snapshot(sid))
    assert ended.is_set()


def test_every_snapshot_of_a_busy_session_is_consistent(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = session_client.create_session().session_id
    done = threading.Event()

    def act(thread: int) -> int:
        if thread:
            shown = []
            while not done.is_set():
                shown.append(session_client.snapshot(sid))
                check_consistent(shown[-1])
            versions = [one.version for one in shown]
            assert versions == sorted(versions)
            return len(shown)
        try:
            for number in range(12):
                whole_turn(session_store, sid, planned(), planned())
                session_store.apply(sid, message("first"))
                session_store.apply(sid, message("second", f"m-{number}"))
                session_store.apply(sid, QueuedMessageDeleted(f"m-{number}"))
                session_store.apply(sid, TurnCancelled())
        finally:
            done.set()
        return 0

    results = at_once(3, act)

    assert results[0] == 0
    assert all(isinstance(one, int) for one in results), results


def test_the_sum_of_usage_is_shown(
    session_client: SessionClient, session_store: SessionStore, settings: Settings
) -> None:
    sid = session_client.create_session(message="first").session_id
    respond(session_store, sid, planned())
    tool_ended(session_store, claim(session_store, sid))
    answer(session_store, sid)

    usage = session_client.snapshot(sid).usage

    assert (usage.model_calls, usage.cost_usd, usage.input_tokens) == (2, None, None)
