from __future__ import annotations

import pytest
from flask.testing import FlaskClient

from celeriac.sessions.calls import CallStatus
from celeriac.web.keys import WebKey
from tests.web.conftest import MakeApp, content, operators
from tests.web.fake_client import FakeClient


def test_a_started_session_opens_with_the_token_it_returned(web: FlaskClient) -> None:
    created = web.post("/api/sessions", json={"message": "hello"})
    assert created.status_code == 201
    assert created.headers["Location"] == f"/api/sessions/{content(created)['session_id']}"
    headers = {"X-Agent-Session-Token": content(created)["session_token"]}
    snapshot = web.get(created.headers["Location"], headers=headers)
    assert snapshot.status_code == 200
    assert content(snapshot)["messages"][0]["text"] == "hello"
    assert snapshot.headers["Cache-Control"] == "no-store"


def test_the_server_picks_session_ids(web: FlaskClient) -> None:
    answer = web.post("/api/sessions", json={"session_id": "ses_" + "0" * 24})
    assert answer.status_code == 400
    assert "session_id" in content(answer)["detail"]


def test_the_same_message_id_again_changes_nothing(
    web: FlaskClient, fake: FakeClient, sid: str, held: dict[str, str]
) -> None:
    body = {"text": "once", "message_id": "m-1"}
    answers = [web.post(f"/api/sessions/{sid}/messages", json=body, headers=held) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert content(answers[0]) == content(answers[1]) == {"message_id": "m-1", "queued": False}
    assert [message.text for message in fake.sessions[sid].messages] == ["once"]


def test_queue_delete_steer_and_cancel(
    web: FlaskClient, fake: FakeClient, sid: str, held: dict[str, str]
) -> None:
    base = f"/api/sessions/{sid}"
    web.post(f"{base}/messages", json={"text": "first"}, headers=held)
    for name in ("m-2", "m-3"):
        sent = web.post(f"{base}/messages", json={"text": name, "message_id": name}, headers=held)
        assert content(sent)["queued"] is True
    assert web.delete(f"{base}/queue/m-2", headers=held).status_code == 204
    assert web.delete(f"{base}/queue/m-2", headers=held).status_code == 404
    steered = web.post(f"{base}/steer", json={"message_ids": ["m-3"]}, headers=held)
    assert steered.status_code == 202
    assert fake.sessions[sid].messages[-1].text == "m-3"
    assert web.post(f"{base}/steer", headers=held).status_code == 409
    assert web.post(f"{base}/cancel", json={}, headers=held).status_code == 202
    again = web.post(f"{base}/cancel", headers=held)
    assert (again.status_code, content(again)["code"]) == (409, "no_open_turn")


def test_the_first_decision_wins_and_the_other_is_told_who(
    web: FlaskClient, fake: FakeClient, sid: str, held: dict[str, str]
) -> None:
    call = fake.ask(sid)
    path = f"/api/sessions/{sid}/calls/{call.id}/decision"
    approve = {"decision": "approve", "digest": "d1"}
    first = web.post(path, json=approve, headers=held)
    assert first.status_code == 200
    assert content(first)["decision"]["by"] == "session user"
    assert web.post(path, json=approve, headers=held).status_code == 200
    other = web.post(path, json={"decision": "reject"}, headers=held)
    assert (other.status_code, content(other)["code"]) == (409, "already_decided")
    assert "session user" in content(other)["detail"]


def test_a_decision_on_a_changed_call_is_refused(
    web: FlaskClient, fake: FakeClient, sid: str, held: dict[str, str]
) -> None:
    call = fake.ask(sid)
    answer = web.post(
        f"/api/sessions/{sid}/calls/{call.id}/decision",
        json={"decision": "approve", "digest": "old"},
        headers=held,
    )
    assert (answer.status_code, content(answer)["code"]) == (409, "changed")
    assert fake.call(sid, call.id).decision is None


@pytest.mark.parametrize("path", ["decision", "reconcile"])
def test_get_decides_nothing(
    web: FlaskClient, fake: FakeClient, sid: str, held: dict[str, str], path: str
) -> None:
    call = fake.ask(sid)
    answer = web.get(f"/api/sessions/{sid}/calls/{call.id}/{path}?decision=approve", headers=held)
    assert answer.status_code == 405
    assert answer.headers["Allow"]
    assert answer.content_type == "application/problem+json"
    assert fake.call(sid, call.id).decision is None


def test_only_operators_reconcile(make_app: MakeApp, fake: FakeClient, key: WebKey) -> None:
    web = make_app(operators=operators("ana:operator:t1", "bo:approver:t2")).test_client()
    sid = fake.create_session().session_id
    call = fake.ask(sid, status=CallStatus.OUTCOME_UNKNOWN)
    path = f"/api/sessions/{sid}/calls/{call.id}/reconcile"
    body = {"outcome": "succeeded", "result": {"id": 7}}
    holder = web.post(path, json=body, headers={"X-Agent-Session-Token": key.session_token(sid)})
    assert holder.status_code == 401
    assert web.post(path, json=body, headers={"Authorization": "Bearer t2"}).status_code == 403
    done = web.post(path, json=body, headers={"Authorization": "Bearer t1"})
    assert content(done)["reconciled_by"] == "ana"
    again = web.post(path, json=body, headers={"Authorization": "Bearer t1"})
    assert (again.status_code, content(again)["code"]) == (409, "not_unknown")


BAD_BODIES = [
    (b"no json", "invalid_json"),
    (b"[]", "invalid_json"),
    (b"", "invalid_json"),
    (b'{"text": NaN}', "invalid_json"),
    (b"[" * 5000, "invalid_json"),
    (b"\xff\xfe", "invalid_json"),
    (b"{}", "blank_message"),
    (b'{"text": 5}', "invalid_body"),
    (b'{"text": null}', "invalid_body"),
    (b'{"text": "a", "more": 1}', "invalid_body"),
    (b'{"text": "a", "plan_mode": "yes"}', "invalid_body"),
    (b'{"text": "a", "message_id": "../x"}', "invalid_body"),
    (b'{"text": "a", "message_id": "x\\n"}', "invalid_body"),
    (b'{"text": "  "}', "blank_message"),
]


@pytest.mark.parametrize("case", BAD_BODIES)
def test_a_wrong_body_gets_400_and_changes_nothing(
    web: FlaskClient, fake: FakeClient, sid: str, held: dict[str, str], case: tuple[bytes, str]
) -> None:
    body, code = case
    answer = web.post(
        f"/api/sessions/{sid}/messages", data=body, headers=held, content_type="application/json"
    )
    assert answer.status_code == 400
    assert answer.content_type == "application/problem+json"
    problem = content(answer)
    assert set(problem) == {"type", "title", "status", "detail", "code", "instance"}
    assert (problem["code"], problem["status"]) == (code, 400)
    assert problem["instance"] == f"/api/sessions/{sid}/messages"
    assert fake.sessions[sid].messages == []


def test_a_form_is_no_json(web: FlaskClient, sid: str, held: dict[str, str]) -> None:
    answer = web.post(f"/api/sessions/{sid}/messages", data={"text": "a"}, headers=held)
    assert (answer.status_code, content(answer)["code"]) == (400, "invalid_json")


def test_lone_surrogates_are_replaced_not_refused(
    web: FlaskClient, fake: FakeClient, sid: str, held: dict[str, str]
) -> None:
    answer = web.post(
        f"/api/sessions/{sid}/messages",
        data=rb'{"text": "a\ud800b\u0000"}',
        headers=held,
        content_type="application/json",
    )
    assert answer.status_code == 202
    assert fake.sessions[sid].messages[0].text == "a\ufffdb\ufffd"


def test_mh_14_too_large_is_413(web: FlaskClient, sid: str, held: dict[str, str]) -> None:
    path = f"/api/sessions/{sid}/messages"
    text = web.post(path, json={"text": "x" * 5000}, headers=held)
    assert (text.status_code, content(text)["code"]) == (413, "message_too_large")
    request = web.post(f"/api/sessions/{sid}/steer", json={"text": "x" * 1_100_000}, headers=held)
    assert (request.status_code, content(request)["code"]) == (413, "request_too_large")


def test_older_messages_page(
    web: FlaskClient, fake: FakeClient, sid: str, held: dict[str, str]
) -> None:
    for number in range(5):
        fake.say(sid, f"message {number}")
    page = content(web.get(f"/api/sessions/{sid}/messages?before=3&limit=2", headers=held))
    assert [message["seq"] for message in page["messages"]] == [1, 2]
    assert page["has_older"] is True
    for query in ("before=x", "before=-1", "limit=0", "limit=201", "before=٣"):
        answer = web.get(f"/api/sessions/{sid}/messages?{query}", headers=held)
        assert (answer.status_code, content(answer)["code"]) == (400, "invalid_argument")


def test_step_history(web: FlaskClient, sid: str, held: dict[str, str]) -> None:
    steps = content(web.get(f"/api/sessions/{sid}/steps", headers=held))["steps"]
    assert steps[0]["name"] == "RunModel"


def test_a_store_that_is_down_gives_503_and_says_nothing_is_lost(
    web: FlaskClient, fake: FakeClient, sid: str, held: dict[str, str]
) -> None:
    fake.down = True
    answer = web.get(f"/api/sessions/{sid}", headers=held)
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "3"
    assert content(answer)["code"] == "store_unavailable"
    assert "Nothing is lost" in content(answer)["detail"]


def test_an_unexpected_error_tells_only_a_reference(
    web: FlaskClient,
    fake: FakeClient,
    held: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(session_id: str) -> None:
        raise RuntimeError("the secret of the house")

    monkeypatch.setattr(fake, "snapshot", broken)
    (sid,) = fake.sessions
    answer = web.get(f"/api/sessions/{sid}", headers=held)
    assert (answer.status_code, content(answer)["code"]) == (500, "internal_error")
    assert "secret" not in answer.text
    reference = content(answer)["detail"].rsplit(" ", 1)[1]
    assert reference in caplog.text


@pytest.mark.parametrize("path", ["/api", "/api/nothing", "/api/sessions/"])
def test_unknown_addresses_are_problems(web: FlaskClient, path: str) -> None:
    answer = web.get(path)
    assert answer.status_code in {403, 404}
    if path != "/api":
        assert answer.content_type == "application/problem+json"


def test_settings_name_what_a_session_can_choose(web: FlaskClient) -> None:
    settings = content(web.get("/api/settings"))
    assert settings["default"] == {"agent": "demo", "model": "demo/echo"}
    assert settings["models"] == ["demo/echo", "demo/slow"]
    assert settings["tools"] == {"demo": ["cancel_order"]}
    assert settings["limits"]["request_max_bytes"] == 1024 * 1024


def test_health_and_readiness(web: FlaskClient, fake: FakeClient) -> None:
    ready = {"status": "ready", "store": "ok", "workers": 1, "reason": None}
    assert content(web.get("/readyz")) == ready
    fake.stuck_workers = {"worker-1"}
    stuck = web.get("/readyz")
    assert stuck.status_code == 503
    assert "no worker takes" in content(stuck)["reason"]
    fake.worker_names = []
    without = web.get("/readyz")
    assert without.status_code == 503
    assert "worker" in content(without)["reason"]
    fake.down = True
    down = web.get("/readyz")
    assert (down.status_code, content(down)["store"]) == (503, "unreachable")
    assert web.get("/healthz").status_code == 200
