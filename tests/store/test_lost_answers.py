"""A commit whose answer is lost is sent again by redis-py; what it stored must not be stored twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
import redis
from redis.connection import UnixDomainSocketConnection

from celeriac.sessions.calls import CallStatus, DecisionVerb
from celeriac.sessions.client import SessionClient
from celeriac.sessions.messages import Role
from celeriac.sessions.settings import Settings
from celeriac.sessions.store import scripts
from celeriac.sessions.store.connection import connect
from celeriac.sessions.store.sessions import SessionStore
from tests.store.dispatcher import RecordingDispatcher
from tests.store.driving import answer, asking, claim, new_session, planned, respond, tool_ended
from tests.store.indexes import check_indexes


class Line:
    """Loses the answer to the next commit after the server has done it."""

    def __init__(self) -> None:
        self.cut_next = False
        self.lost = 0

    def cuts(self, command: object) -> bool:
        is_commit = isinstance(command, bytes) and scripts.COMMIT._digest.encode() in command
        if self.cut_next and is_commit:
            self.cut_next = False
            self.lost += 1
            return True
        return False


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    line = Line()
    send = UnixDomainSocketConnection.send_packed_command

    def send_and_maybe_lose(
        self: UnixDomainSocketConnection, command: object, check_health: bool = True
    ) -> None:
        send(self, command, check_health=check_health)  # type: ignore[no-untyped-call]
        packed = b"".join(command) if isinstance(command, list) else command
        if line.cuts(packed):
            self.read_response()
            self.disconnect()  # type: ignore[no-untyped-call]
            raise redis.ConnectionError("the answer was lost")

    monkeypatch.setattr(UnixDomainSocketConnection, "send_packed_command", send_and_maybe_lose)
    return line


@pytest.fixture
def far(
    session_client: SessionClient, store_url: str, settings: Settings, line: Line
) -> Iterator[SessionStore]:
    """A store behind that line."""
    with closing(connect(store_url)) as client:
        client.ping()
        yield SessionStore(client, RecordingDispatcher(), settings)


@pytest.mark.parametrize("message_id", ["m-1", None])
@pytest.mark.parametrize("running", [False, True])
def test_a_message_is_not_sent_twice(
    far: SessionStore, settings: Settings, line: Line, message_id: str | None, *, running: bool
) -> None:
    client = SessionClient(far, settings)
    sid = client.create_session(message="first" if running else None).session_id

    line.cut_next = True
    sent = client.send_message(sid, "second", message_id=message_id)

    assert line.lost == 1
    assert sent.queued is running
    shown = client.snapshot(sid)
    arrived = [*(one.text for one in shown.messages), *(one.text for one in shown.queue)]
    assert arrived.count("second") == 1
    check_indexes(far.client)


def test_a_session_is_created_once_and_without_an_error(
    far: SessionStore, settings: Settings, line: Line
) -> None:
    client = SessionClient(far, settings)

    line.cut_next = True
    created = client.create_session(message="first")

    assert line.lost == 1
    assert [one.session_id for one in client.list_sessions().sessions] == [created.session_id]
    assert [one.text for one in client.snapshot(created.session_id).messages] == ["first"]


def test_a_decision_counts_once(far: SessionStore, settings: Settings, line: Line) -> None:
    client = SessionClient(far, settings)
    sid, call_id = asking(far)

    line.cut_next = True
    record = client.decide(sid, call_id, DecisionVerb.APPROVE, by="Ana")

    assert line.lost == 1
    assert record.status is CallStatus.PENDING
    assert [step.call_id for step in far.load(sid).state.steps] == [call_id]


def test_a_response_and_a_result_count_once(
    far: SessionStore, settings: Settings, line: Line
) -> None:
    sid = new_session(far)
    call = planned()
    line.cut_next = True
    respond(far, sid, call)
    line.cut_next = True
    tool_ended(far, claim(far, sid), "found it")
    line.cut_next = True
    answer(far, sid, "Here you are.")

    assert line.lost == 3
    shown = SessionClient(far, settings).snapshot(sid)
    assert [(one.role, one.text) for one in shown.messages] == [
        (Role.USER, "Hello"),
        (Role.ASSISTANT, "I will look."),
        (Role.TOOL, "found it"),
        (Role.ASSISTANT, "Here you are."),
    ]
    assert shown.usage.model_calls == 2
