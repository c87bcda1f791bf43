"""Rate limits: who is counted in what, and what they are told."""

from __future__ import annotations

from flask.testing import FlaskClient

from celeriac.sessions.store.limits import Limited
from celeriac.web.keys import WebKey
from tests.web.conftest import MakeApp, content, operators
from tests.web.fake_client import FakeClient


def csrf_of(page: str) -> str:
    return page.split('name="csrf-token" content="', 1)[1].split('"', 1)[0]


def test_too_many_sessions_are_refused_with_the_time_to_wait(
    web: FlaskClient, fake: FakeClient
) -> None:
    fake.most = {Limited.SESSIONS: 2}
    assert [web.post("/api/sessions", json={}).status_code for _ in range(3)] == [201, 201, 429]
    answer = web.post("/api/sessions", json={})
    assert answer.content_type == "application/problem+json"
    assert content(answer)["code"] == "too_many_requests"
    assert answer.headers["Retry-After"] == "17"
    assert len(fake.sessions) == 2
    elsewhere = {"REMOTE_ADDR": "::1"}
    assert web.post("/api/sessions", json={}, environ_overrides=elsewhere).status_code == 201


def test_operators_are_counted_by_name(make_app: MakeApp, fake: FakeClient) -> None:
    web = make_app(operators=operators("a:client:ta", "b:client:tb")).test_client()
    for token in ("ta", "ta", "tb"):
        web.post("/api/sessions", json={}, headers={"Authorization": f"Bearer {token}"})
    assert fake.counted == {
        (Limited.SESSIONS, "name a"): 2,
        (Limited.SESSIONS, "name b"): 1,
    }


def test_messages_are_counted_by_their_session_over_every_way_in(
    web: FlaskClient, fake: FakeClient, held: dict[str, str], sid: str
) -> None:
    fake.most = {Limited.MESSAGES: 3}
    path = f"/api/sessions/{sid}"
    message = {"id": "m9", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    chat = {"id": sid, "messages": [message]}
    assert web.post(f"{path}/messages", headers=held, json={"text": "1"}).status_code == 202
    assert web.post(f"{path}/messages", headers=held, json={"text": "2"}).status_code == 202
    assert web.post(f"{path}/steer", headers=held, json={"text": "3"}).status_code == 202
    assert web.post(f"{path}/steer", headers=held, json={"text": "4"}).status_code == 429
    assert web.post("/api/chat", headers=held, json=chat).status_code == 429
    assert web.post(f"{path}/messages", headers=held, json={"text": "5"}).status_code == 429
    assert web.get(path, headers=held).status_code == 200


def test_a_page_keeps_the_text_that_was_too_much(web: FlaskClient, fake: FakeClient) -> None:
    csrf = csrf_of(web.get("/login").text)
    started = web.post("/sessions", data={"csrf_token": csrf, "message": "hello"})
    fake.most = {Limited.MESSAGES: 0, Limited.SESSIONS: 0}
    form = {"csrf_token": csrf, "text": "A long thought"}
    answer = web.post(f"{started.headers['Location']}/messages", data=form)
    assert answer.status_code == 429
    assert "A long thought" in answer.text
    again = web.post("/sessions", data={"csrf_token": csrf, "message": "Another thought"})
    assert again.status_code == 429
    assert "Another thought" in again.text


def test_logins_are_counted_by_address_right_or_wrong(make_app: MakeApp, fake: FakeClient) -> None:
    web = make_app(operators=operators("op:operator:to")).test_client()
    fake.most = {Limited.LOGINS: 2}
    csrf = csrf_of(web.get("/login").text)
    form = {"csrf_token": csrf, "operator_token": "guess"}
    assert [web.post("/login", data=form).status_code for _ in range(2)] == [403, 403]
    answer = web.post("/login", data={"csrf_token": csrf, "operator_token": "to"})
    assert answer.status_code == 429
    assert answer.headers["Retry-After"] == "17"
    assert web.get("/api/audit").status_code == 401


def test_the_log_takes_only_so_many_refusals_of_an_address(
    web: FlaskClient, fake: FakeClient, key: WebKey, sid: str
) -> None:
    fake.most = {Limited.REFUSALS: 3}
    wrong = {"X-Agent-Session-Token": "wrong"}
    answers = [web.get(f"/api/sessions/{sid}", headers=wrong).status_code for _ in range(6)]
    assert answers == [403] * 6
    assert len(fake.recorded) == 3
    right = {"X-Agent-Session-Token": key.session_token(sid)}
    assert web.get(f"/api/sessions/{sid}", headers=right).status_code == 200
