"""A commit whose answer is lost is sent again; it must not be stored twice, nor refused as a repetition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
import redis
from redis.connection import UnixDomainSocketConnection

from celeriac.sessions.audit import AuditAct
from celeriac.sessions.built_in import BuiltInTool
from celeriac.sessions.calls import DecisionVerb
from celeriac.sessions.client import SessionClient
from celeriac.sessions.errors import Conflict
from celeriac.sessions.inputs import TurnCancelled
from celeriac.sessions.messages import Role
from celeriac.sessions.settings import Settings
from celeriac.sessions.store import scripts
from celeriac.sessions.store.connection import connect
from celeriac.sessions.store.keys import SessionKeys
from celeriac.sessions.store.sessions import SessionStore
from tests.store.dispatcher import RecordingDispatcher
from tests.store.driving import (
    answer,
    asking,
    built_in,
    claim,
    message,
    new_session,
    planned,
    respond,
    tool_ended,
    unknown,
)
from tests.store.indexes import check_indexes


class Line:
    """Loses the answer to the next commit after the server has done it."""

    def __init__(self) -> None:
        self.cut_next = False
        self.lost = 0
        self.meanwhile: Callable[[], object] = lambda: None
        """What happens between the commit and its repetition."""

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
            line.meanwhile()
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


def asking_session(store: SessionStore) -> tuple[str, str]:
    return asking(store)


def question_session(store: SessionStore) -> tuple[str, str]:
    sid, call = new_session(store), built_in(BuiltInTool.ASK_USER, {"question": "Which?"})
    respond(store, sid, call)
    return sid, call.request.id


def planned_session(store: SessionStore) -> tuple[str, str]:
    sid = new_session(store)
    respond(store, sid, built_in(BuiltInTool.WRITE_TODOS, {"todos": [{"title": "Look"}]}))
    answer(store, sid)
    return sid, ""


def queueing_session(store: SessionStore) -> tuple[str, str]:
    sid = new_session(store)
    store.apply(sid, message("later", "m-later"))
    return sid, ""


Operation = Callable[[SessionClient, str, str], object]

OPERATIONS: dict[str, tuple[Callable[[SessionStore], tuple[str, str]], Operation]] = {
    "delete_queued": (queueing_session, lambda c, sid, _: c.delete_queued(sid, "m-later")),
    "steer": (queueing_session, lambda c, sid, _: c.steer(sid, by="Ana")),
    "steer_with_text": (queueing_session, lambda c, sid, _: c.steer(sid, text="now")),
    "cancel_turn": (asking_session, lambda c, sid, _: c.cancel_turn(sid, by="Ana")),
    "cancel_running": (queueing_session, lambda c, sid, _: c.cancel_turn(sid, turn_id="t1")),
    "decide": (
        asking_session,
        lambda c, sid, call: c.decide(sid, call, DecisionVerb.APPROVE, by="Ana"),
    ),
    "reject": (
        asking_session,
        lambda c, sid, call: c.decide(sid, call, DecisionVerb.REJECT, by="Ana"),
    ),
    "answer": (question_session, lambda c, sid, call: c.answer(sid, call, False, by="Ana")),
    "execute_plan": (planned_session, lambda c, sid, _: c.execute_plan(sid, revision=1)),
    "reconcile": (unknown, lambda c, sid, call: c.reconcile(sid, call, succeeded=True, by="Ana")),
}


@pytest.mark.parametrize("meanwhile", ["nothing", "others"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_what_a_person_does_is_done_once_and_never_refused(
    far: SessionStore,
    session_store: SessionStore,
    settings: Settings,
    line: Line,
    *,
    name: str,
    meanwhile: str,
) -> None:
    """Also when somebody else commits between the commit and its repetition."""
    prepare, operate = OPERATIONS[name]
    sid, call_id = prepare(far)
    others = iter(range(1, 4))

    def others_commit() -> None:
        for number in others:
            session_store.apply(sid, message("by the way", f"m-{number}"))

    if meanwhile == "others":
        line.meanwhile = others_commit

    line.cut_next = True
    operate(SessionClient(far, settings), sid, call_id)

    assert line.lost == 1
    # Done by hand on the same kind of session: the route is the same.
    twin, twin_call = prepare(session_store)
    operate(SessionClient(session_store, settings), twin, twin_call)
    route = [(one.name, one.status) for one in SessionClient(far, settings).steps(sid)]
    expected = [(one.name, one.status) for one in SessionClient(far, settings).steps(twin)]
    assert route[: len(expected)] == expected
    assert meanwhile == "others" or route == expected
    check_indexes(far.client)


def test_somebody_else_s_commit_is_not_taken_for_our_own(
    far: SessionStore, session_store: SessionStore
) -> None:
    """The name of a commit tells it from another one that was as quick."""
    sid, call_id = asking(far)
    loaded = far.load(sid)
    session_store.apply(sid, message("by the way"))

    assert far.try_apply(TurnCancelled(by="Ana"), loaded) is None
    assert far.load(sid).state.call(call_id) is not None


def test_a_decision_that_was_made_meanwhile_is_still_refused(
    far: SessionStore, session_store: SessionStore, settings: Settings, line: Line
) -> None:
    """A repetition that finds itself done is one thing, a person who comes second another."""
    sid, call_id = asking(far)
    other = SessionClient(session_store, settings)
    other.decide(sid, call_id, DecisionVerb.REJECT, by="Bo")

    with pytest.raises(Conflict) as caught:
        SessionClient(far, settings).decide(sid, call_id, DecisionVerb.APPROVE, by="Ana")

    assert caught.value.code == "already_decided"


def test_a_busy_session_keeps_few_names_of_commits(session_store: SessionStore) -> None:
    sid = new_session(session_store)
    for number in range(20):
        session_store.apply(sid, message("more", f"m-{number}"))

    names = session_store.client.hget(SessionKeys.of(sid).session, "commits")

    assert isinstance(names, bytes)
    assert len(set(names.split())) == 8
    assert len(names) == 8 * 13


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


def test_an_act_is_in_the_audit_log_once(
    far: SessionStore, session_store: SessionStore, settings: Settings, line: Line
) -> None:
    sid, call_id = asking(session_store)
    client = SessionClient(far, settings)

    line.cut_next = True
    client.decide(sid, call_id, DecisionVerb.APPROVE, by="Ana")

    assert line.lost == 1
    assert [(one.act, one.by) for one in client.audit().entries] == [(AuditAct.APPROVE, "Ana")]
