"""One behaviour of two clients: `SessionClient` on the store, `HttpSessionClient` on the real web over it."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_type_hints

import pytest
from pydantic import JsonValue, SecretStr
from werkzeug.serving import make_server

from celeriac import HttpSessionClient
from celeriac.sessions.built_in import BuiltInTool
from celeriac.sessions.calls import CallStatus, DecisionVerb
from celeriac.sessions.client import SessionClient
from celeriac.sessions.errors import (
    CeleriacError,
    ConfigurationError,
    Conflict,
    InvalidRequest,
    NotFound,
    Refused,
    StoreUnavailable,
)
from celeriac.sessions.settings import Settings
from celeriac.sessions.state import SessionStatus
from celeriac.sessions.store.sessions import SessionStore
from celeriac.web import create_app
from tests.pictures import png
from tests.store.driving import asking, built_in, new_session, planned, respond, unknown
from tests.store.test_events import delta
from tests.web.conftest import KEY, operators
from tests.web.cutting_proxy import CuttingProxy

Client = SessionClient | HttpSessionClient

TOKEN = "a-token-that-only-Ana-knows"
STARTER = "a-token-that-may-only-start-sessions"
NOWHERE = "ses_" + "0" * 24

NOT_SERVED = {
    "acting_as",
    "call",
    "check_rate",
    "event_watch",
    "events",
    "operations",
    "record",
}
ONLY_HTTP = {"close", "follow", "read_operations", "session_reasons", "settings"}


@pytest.fixture
def port(session_client: SessionClient, settings: Settings, tmp_path: Path) -> Iterator[int]:
    given = settings.model_copy(
        update={
            "data_dir": tmp_path,
            "session_key": SecretStr(KEY),
            "operators": SecretStr(operators(f"ana:operator:{TOKEN}", f"bot:client:{STARTER}")),
        }
    )
    server = make_server("127.0.0.1", 0, create_app(session_client, given), threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def http(port: int) -> Iterator[HttpSessionClient]:
    with HttpSessionClient(f"http://127.0.0.1:{port}", token=TOKEN) as client:
        yield client


@pytest.fixture(params=["local", "http"])
def client(request: pytest.FixtureRequest) -> Client:
    name = "session_client" if request.param == "local" else "http"
    found: Client = request.getfixturevalue(name)
    return found


@pytest.fixture
def proxy(port: int) -> Iterator[CuttingProxy]:
    with CuttingProxy(port) as proxy:
        yield proxy


@pytest.fixture
def through(proxy: CuttingProxy) -> Iterator[HttpSessionClient]:
    with HttpSessionClient(f"http://127.0.0.1:{proxy.port}", token=TOKEN) as client:
        yield client


def refused(kind: type[CeleriacError], code: str, act: Callable[[], object]) -> str:
    with pytest.raises(kind) as caught:
        act()
    assert type(caught.value) is kind
    assert getattr(caught.value, "code", "") == code
    return str(caught.value)


# --- the same methods


def public(kind: type[Client]) -> set[str]:
    held = {"operations"} if kind is SessionClient else set()
    return {name for name in vars(kind) if not name.startswith("_")} | held


def test_both_clients_have_the_same_methods_but_for_those_that_are_named() -> None:
    assert public(SessionClient) - NOT_SERVED == public(HttpSessionClient) - ONLY_HTTP
    assert public(HttpSessionClient).isdisjoint(NOT_SERVED)


@pytest.mark.parametrize("name", sorted(public(SessionClient) - NOT_SERVED))
def test_a_method_takes_and_returns_the_same(name: str) -> None:
    local, over_http = getattr(SessionClient, name), getattr(HttpSessionClient, name)
    taken = inspect.signature(over_http).parameters
    assert list(taken.values()) == list(inspect.signature(local).parameters.values())
    given, wanted = get_type_hints(over_http)["return"], get_type_hints(local)["return"]
    assert given == wanted or issubclass(given, wanted)


# --- the same behaviour


def test_a_session_is_started_read_and_listed(client: Client) -> None:
    started = client.create_session(
        agent="desk", model="other", message="Hello\u2028there", message_id="m-1"
    )
    sid = started.session_id
    assert (started.agent, started.model, started.message_id) == ("desk", "other", "m-1")
    snapshot = client.snapshot(sid)
    assert [one.text for one in snapshot.messages] == ["Hello\u2028there"]
    assert snapshot.turn is not None
    assert client.messages(sid, before=1, limit=5).messages == snapshot.messages
    assert {one.status for one in client.steps(sid)} == {"succeeded"}
    page = client.list_sessions(status=SessionStatus.RUNNING, agent="desk", limit=1)
    assert [one.session_id for one in page.sessions] == [sid]
    assert [one.name for one in client.agents()] == ["desk", "helper"]
    assert client.workers() == ()
    client.ping()


def test_messages_queue_are_deleted_steered_and_stopped(
    client: Client, session_store: SessionStore
) -> None:
    sid = new_session(session_store)
    assert client.send_message(sid, "second", message_id="m-2").queued
    assert client.send_message(sid, "second", message_id="m-2").queued
    assert client.send_message(sid, "third", message_id="m-3").queued
    assert [one.id for one in client.snapshot(sid).queue] == ["m-2", "m-3"]
    client.delete_queued(sid, "m-3")
    refused(NotFound, "unknown_message", lambda: client.delete_queued(sid, "m-3"))
    refused(NotFound, "unknown_message", lambda: client.steer(sid, message_ids=("m-9",)))
    refused(Conflict, "turn_ended", lambda: client.cancel_turn(sid, turn_id="t9"))
    client.steer(sid, text="Use the blue one.", by="ana")
    snapshot = client.snapshot(sid)
    assert [one.text for one in snapshot.messages if one.role == "user"][1:] == [
        "second",
        "Use the blue one.",
    ]
    client.cancel_turn(sid, by="ana")
    assert client.snapshot(sid).turn is None
    refused(Conflict, "no_open_turn", lambda: client.cancel_turn(sid))
    refused(Conflict, "no_plan", lambda: client.execute_plan(sid, revision=1))


def test_an_approval_is_listed_decided_once_and_logged(
    client: Client, session_store: SessionStore
) -> None:
    sid, call_id = asking(session_store)
    [item] = client.approvals(limit=5)
    assert (item.session_id, item.call.id) == (sid, call_id)

    def decide(verb: DecisionVerb, digest: str | None) -> CallStatus:
        return client.decide(sid, call_id, verb, by="ana", note=" Fine. ", digest=digest).status

    refused(Conflict, "changed", lambda: decide(DecisionVerb.APPROVE, "of something else"))
    assert decide(DecisionVerb.APPROVE, item.call.digest) is CallStatus.PENDING
    assert decide(DecisionVerb.APPROVE, item.call.digest) is CallStatus.PENDING
    words = refused(Conflict, "already_decided", lambda: decide(DecisionVerb.REJECT, None))
    assert "ana" in words
    assert client.approvals() == ()
    [entry] = client.audit(session_id=sid, limit=5).entries
    assert (entry.by, entry.call_id) == ("ana", call_id)


@pytest.mark.parametrize("answer", ["blue", False, 0, ""])
def test_a_question_is_answered_once(
    client: Client, session_store: SessionStore, answer: JsonValue
) -> None:
    sid = new_session(session_store)
    question = built_in(BuiltInTool.ASK_USER, {"question": "Which?"})
    respond(session_store, sid, question)
    call_id = question.request.id
    refused(InvalidRequest, "no_answer", lambda: client.answer(sid, call_id, None, by="ana"))
    record = client.answer(sid, call_id, answer, by="ana")
    assert (record.result, record.answered_by) == (answer, "ana")
    refused(Conflict, "already_answered", lambda: client.answer(sid, call_id, "red", by="ana"))


def test_an_unknown_outcome_is_listed_and_settled(
    client: Client, session_store: SessionStore
) -> None:
    sid, call_id = unknown(session_store)
    assert [one.call.id for one in client.unknown_outcomes(limit=5)] == [call_id]
    refused(Conflict, "not_checkable", lambda: client.check_call(sid, call_id, by="ana"))
    record = client.reconcile(
        sid, call_id, succeeded=True, by="ana", note="Seen.", result={"ok": True}
    )
    assert (record.status, record.result) == (CallStatus.SUCCEEDED, {"ok": True})
    assert client.unknown_outcomes() == ()
    again = refused(
        Conflict,
        "not_unknown",
        lambda: client.reconcile(sid, call_id, succeeded=False, by="ana"),
    )
    assert again


def test_images_go_there_and_back(client: Client) -> None:
    image = client.read_image(png(), "a.png")
    sid = client.create_session(message="Look", images=[image]).session_id
    [shown] = client.snapshot(sid).messages[0].images
    assert shown == image.reference
    assert client.image(sid, shown.id) == image.data
    refused(NotFound, "unknown_image", lambda: client.image(sid, "img_" + "0" * 32))
    refused(InvalidRequest, "not_an_image", lambda: client.read_image(b"text"))


def test_what_is_wrong_is_refused_in_the_same_words(client: Client) -> None:
    sid = client.create_session().session_id
    send = client.send_message
    refused(InvalidRequest, "unknown_agent", lambda: client.create_session(agent="nobody"))
    refused(InvalidRequest, "unknown_model", lambda: client.create_session(model="none"))
    refused(InvalidRequest, "blank_message", lambda: send(sid, " \n"))
    refused(InvalidRequest, "invalid_message_id", lambda: send(sid, "Hi", message_id="a b"))
    refused(InvalidRequest, "plan_mode_unavailable", lambda: send(sid, "Hi", plan_mode=True))
    refused(InvalidRequest, "message_too_large", lambda: send(sid, "x" * 300_000))
    refused(InvalidRequest, "invalid_cursor", lambda: client.list_sessions(cursor="?"))
    assert NOWHERE in refused(NotFound, "unknown_session", lambda: client.snapshot(NOWHERE))
    refused(NotFound, "unknown_session", lambda: send(NOWHERE, "Hi"))
    refused(
        NotFound,
        "unknown_call",
        lambda: client.decide(sid, "call_x", DecisionVerb.APPROVE, by="ana"),
    )
    assert client.snapshot(sid).messages == ()


# --- only over HTTP


def test_a_client_without_a_server_of_its_own_refuses_before_it_sends() -> None:
    with HttpSessionClient("http://127.0.0.1:1", retries=0) as client:
        refused(NotFound, "unknown_session", lambda: client.snapshot("../operations"))
        refused(InvalidRequest, "blank_message", lambda: client.send_message(NOWHERE, ""))
        refused(
            NotFound,
            "unknown_call",
            lambda: client.decide(NOWHERE, "a/b", DecisionVerb.APPROVE, by="ana"),
        )
        refused(NotFound, "unknown_image", lambda: client.image(NOWHERE, "x"))
        refused(InvalidRequest, "invalid_message_id", lambda: client.delete_queued(NOWHERE, ".."))
        words = refused(StoreUnavailable, "", lambda: client.cancel_turn(NOWHERE))
        assert "cannot be reached" in words
        assert "nothing was done" in words


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8080", "ftp://host", "http://u:geheim@host", "http://host/?a=geheim"]
)
def test_an_address_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="base_url") as caught:
        HttpSessionClient(url)
    assert "geheim" not in str(caught.value)


def test_tokens_are_never_shown(http: HttpSessionClient, port: int) -> None:
    started = http.create_session()
    assert started.session_token not in repr(started)
    assert TOKEN not in repr(http) + str(vars(http))
    for bad in ("", "geheim geheim", "geheim\n", "gehüm"):
        with pytest.raises(ConfigurationError) as caught:
            HttpSessionClient(f"http://127.0.0.1:{port}", token=bad)
        assert "geh" not in str(caught.value)


def test_the_token_of_a_session_opens_it_and_nothing_else(
    http: HttpSessionClient, port: int
) -> None:
    address = f"http://127.0.0.1:{port}"
    started, other = http.create_session(message="Hi"), http.create_session()
    tokens = {started.session_id: started.session_token}
    with HttpSessionClient(address, session_tokens=tokens) as holder:
        assert holder.snapshot(started.session_id).messages
        refused(Refused, "no_session_access", lambda: holder.snapshot(other.session_id))
        refused(Refused, "operator_needed", holder.list_sessions)


def test_who_may_only_start_sessions_holds_those_that_it_started(
    http: HttpSessionClient, port: int, session_store: SessionStore
) -> None:
    foreign = http.create_session().session_id
    with HttpSessionClient(f"http://127.0.0.1:{port}", token=STARTER) as starter:
        sid = starter.create_session(message="Hi").session_id
        call = planned("cancel_order", approval=True)
        respond(session_store, sid, call)
        record = starter.decide(sid, call.request.id, DecisionVerb.REJECT, by="somebody else")
        assert record.decision is not None
        assert record.decision.by == "bot"
        refused(Refused, "no_session_access", lambda: starter.snapshot(foreign))


def test_what_goes_on_is_read(http: HttpSessionClient, session_store: SessionStore) -> None:
    sid, _ = asking(session_store)
    assert http.read_operations().approvals_waiting == 1
    assert [one.kind for one in http.session_reasons(sid).reasons] == ["approval"]
    assert http.settings().default.agent == "desk"


# --- lost connections


def test_a_message_whose_answer_was_lost_is_sent_again_and_counts_once(
    proxy: CuttingProxy, through: HttpSessionClient, session_client: SessionClient
) -> None:
    sid = session_client.create_session().session_id
    proxy.cuts = [0, 40]
    sent = through.send_message(sid, "Hello")
    assert proxy.connections == 3
    [message] = session_client.snapshot(sid).messages
    assert (message.text, message.message_id) == ("Hello", sent.message_id)
    assert not sent.queued


def test_a_decision_is_sent_again_only_with_the_digest_of_what_was_shown(
    proxy: CuttingProxy, through: HttpSessionClient, session_store: SessionStore
) -> None:
    sid, call_id = asking(session_store)
    digest = through.approvals()[0].call.digest
    before = proxy.connections
    through.close()
    proxy.cuts = [0]
    with HttpSessionClient(f"http://127.0.0.1:{proxy.port}", token=TOKEN) as client:
        record = client.decide(sid, call_id, DecisionVerb.APPROVE, by="ana", digest=digest)
    assert record.status is CallStatus.PENDING
    assert proxy.connections == before + 2

    proxy.cuts = [0]
    with HttpSessionClient(f"http://127.0.0.1:{proxy.port}", token=TOKEN) as client:
        words = refused(
            StoreUnavailable,
            "",
            lambda: client.decide(sid, call_id, DecisionVerb.APPROVE, by="ana"),
        )
    assert "not known" in words
    assert proxy.connections == before + 3


def test_a_session_whose_answer_was_lost_is_not_started_twice(
    proxy: CuttingProxy, through: HttpSessionClient, session_client: SessionClient
) -> None:
    proxy.cuts = [0]
    words = refused(StoreUnavailable, "", lambda: through.create_session(message="Hi"))
    assert "not known" in words
    assert len(session_client.list_sessions().sessions) == 1
    assert TOKEN not in words


def test_events_go_on_where_the_stream_was_cut(
    proxy: CuttingProxy,
    through: HttpSessionClient,
    session_client: SessionClient,
    session_store: SessionStore,
) -> None:
    sid = session_client.create_session().session_id
    after = through.snapshot(sid).resume_token
    texts = [f"piece {n} \u2028 é" for n in range(30)]
    session_store.publish(sid, [delta(text) for text in texts])
    through.close()
    proxy.cuts = [1500, 2600]
    seen: list[JsonValue] = []
    with HttpSessionClient(f"http://127.0.0.1:{proxy.port}", token=TOKEN) as client:
        batches = client.follow(sid, after=after)
        for batch in batches:
            seen += [json.loads(one.json)["data"]["text"] for one in batch.events]
            if len(seen) >= len(texts):
                break
        batches.close()  # type: ignore[attr-defined]
    assert seen == texts
    assert proxy.connections >= 4


def test_a_position_that_is_none_of_this_session_is_refused(
    http: HttpSessionClient, session_store: SessionStore
) -> None:
    sid = http.create_session().session_id
    other = http.create_session().session_id
    session_store.publish(sid, [delta("x")])
    for after in ("garbage\r\n", "1-0.0123456789abcdef", http.snapshot(other).resume_token):
        with pytest.raises(InvalidRequest) as caught:
            next(iter(http.follow(sid, after=after)))
        assert caught.value.code == "invalid_resume_token"
