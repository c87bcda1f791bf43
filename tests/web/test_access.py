from __future__ import annotations

import threading
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from pydantic import SecretStr

from celeriac.sessions.errors import ConfigurationError
from celeriac.sessions.ids import new_session_id
from celeriac.sessions.settings import Settings
from celeriac.web.keys import KEY_FILE, WebKey, load_web_key
from tests.web.conftest import MakeApp, content, operators
from tests.web.fake_client import FakeClient

HOSTILE_IDS = [
    "ses_" + "0" * 24,
    "x",
    "ses_:*",
    "*",
    "..",
    "%2e%2e",
    "..%2Fapprovals",
    "a%0Ab",
    "%00",
    "x" * 10_000,
    "ses_" + "I" * 24,
    "ses_" + "0" * 24 + "%0A",
    "%ED%A0%80",
]


@pytest.mark.parametrize("hostile", HOSTILE_IDS)
@pytest.mark.parametrize("with_token", [True, False])
def test_se_10_existing_missing_and_malformed_ids_are_refused_alike_before_any_lookup(
    web: FlaskClient, fake: FakeClient, held: dict[str, str], hostile: str, with_token: bool
) -> None:
    other = fake.create_session().session_id
    fake.touched.clear()
    headers = held if with_token else {}
    existing = web.get(f"/api/sessions/{other}", headers=headers)
    answer = web.get(f"/api/sessions/{hostile}", headers=headers)
    assert answer.status_code == existing.status_code == 403
    assert {**content(answer), "instance": ""} == {**content(existing), "instance": ""}
    assert fake.touched == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/messages"),
        ("GET", "/steps"),
        ("GET", "/events"),
        ("POST", "/messages"),
        ("POST", "/steer"),
        ("POST", "/cancel"),
        ("POST", "/calls/c1/decision"),
        ("DELETE", "/queue/m1"),
    ],
)
def test_se_10_another_sessions_token_opens_no_route(
    web: FlaskClient, fake: FakeClient, held: dict[str, str], method: str, path: str
) -> None:
    other = fake.create_session().session_id
    fake.touched.clear()
    for sid in (other, new_session_id()):
        answer = web.open(f"/api/sessions/{sid}{path}", method=method, headers=held, json={})
        assert (answer.status_code, content(answer)["code"]) == (403, "no_session_access")
    assert fake.touched == []


@pytest.mark.parametrize("wrong", ["", "0" * 64, "é", "x" * 100_000])
def test_a_wrong_session_token_is_403(web: FlaskClient, sid: str, wrong: str) -> None:
    headers = {"X-Agent-Session-Token": wrong.encode().decode("latin-1")}
    assert web.get(f"/api/sessions/{sid}", headers=headers).status_code == 403


@pytest.mark.parametrize(
    "name", ["session_token", "token", "X-Agent-Session-Token", "access_token"]
)
def test_se_06_a_token_in_the_address_is_refused_even_beside_a_good_header(
    web: FlaskClient, sid: str, held: dict[str, str], name: str
) -> None:
    token = held["X-Agent-Session-Token"]
    for headers in ({}, held):
        answer = web.get(f"/api/sessions/{sid}?{name}={token}", headers=headers)
        assert answer.status_code == 403
        assert content(answer)["code"] == "token_in_query"
        assert token not in answer.text


def test_se_06_pages_hold_no_session_token_and_a_copied_address_opens_nothing(
    make_app: MakeApp, fake: FakeClient, key: WebKey
) -> None:
    app = make_app()
    browser = app.test_client()
    csrf = _csrf(browser)
    started = browser.post("/sessions", data={"csrf_token": csrf, "message": "hello"})
    address = started.headers["Location"]
    sid = address.rsplit("/", 1)[1]
    page = browser.get(address)
    assert page.status_code == 200
    assert key.session_token(sid) not in page.text + str(started.headers) + str(page.headers)
    assert page.headers["Referrer-Policy"] == "same-origin"
    assert app.test_client().get(address).status_code == 403


def _csrf(client: FlaskClient) -> str:
    text: str = client.get("/login").text
    return text.split('name="csrf-token" content="', 1)[1].split('"', 1)[0]


def test_roles(make_app: MakeApp, fake: FakeClient) -> None:
    setting = operators("cy:client:tc", "vi:viewer:tv", "ap:approver:ta", "op:operator:to")
    web = make_app(operators=setting).test_client()
    sid = fake.create_session().session_id
    call = fake.ask(sid)
    decision = f"/api/sessions/{sid}/calls/{call.id}/decision"

    def status(token: str, method: str, path: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        body = {"decision": "approve"} if path == decision else {"text": "hi"}
        if path == "/api/sessions":
            body = {}
        return web.open(path, method=method, headers=headers, json=body).status_code

    expected = {
        ("POST", "/api/sessions"): [201, 201, 201, 201],
        ("GET", "/api/sessions"): [403, 200, 200, 200],
        ("GET", "/api/approvals"): [403, 200, 200, 200],
        ("GET", "/api/unknown"): [403, 200, 200, 200],
        ("GET", f"/api/sessions/{sid}"): [403, 200, 200, 200],
        ("POST", f"/api/sessions/{sid}/messages"): [403, 403, 403, 202],
        ("POST", decision): [403, 403, 200, 200],
    }
    for (method, path), statuses in expected.items():
        got = [status(token, method, path) for token in ("tc", "tv", "ta", "to")]
        assert got == statuses, path
    assert fake.call(sid, call.id).decision is not None
    assert fake.call(sid, call.id).decision.by == "ap"  # type: ignore[union-attr]


def test_lists_need_an_operator(web: FlaskClient, held: dict[str, str]) -> None:
    for path in ("/api/sessions", "/api/approvals", "/api/unknown"):
        answer = web.get(path, headers=held)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_sessions_are_open_to_all_only_on_loopback_without_operators(make_app: MakeApp) -> None:
    def start(
        remote: str = "127.0.0.1", headers: dict[str, str] | None = None, **fields: object
    ) -> int:
        web = make_app(**fields).test_client()
        environ = {"REMOTE_ADDR": remote}
        answer = web.post("/api/sessions", json={}, headers=headers, environ_overrides=environ)
        return answer.status_code

    assert start() == 201
    assert start(remote="::1") == 201
    assert start(host="0.0.0.0") == 401
    assert start(remote="10.0.0.9") == 401
    assert start(headers={"X-Forwarded-For": "10.0.0.9"}) == 401
    assert start(operators=operators("ana:client:t")) == 401
    bearer = {"Authorization": "Bearer t"}
    assert start(host="0.0.0.0", operators=operators("ana:client:t"), headers=bearer) == 201
    assert start(headers={"Authorization": "Bearer nobody"}) == 401


@pytest.mark.parametrize(
    "entry",
    [
        "ana",
        "ana:boss:" + "a" * 64,
        "ana:viewer:s3cret",
        ":viewer:" + "a" * 64,
        "a b:viewer:" + "a" * 64,
    ],
)
def test_a_malformed_operator_is_named_and_its_token_is_not(make_app: MakeApp, entry: str) -> None:
    good = operators("bo:viewer:t")
    with pytest.raises(ConfigurationError, match=r"CELERIAC_OPERATORS, entry 2") as caught:
        make_app(operators=f"{good},{entry}")
    assert "s3cret" not in str(caught.value)
    assert "a" * 64 not in str(caught.value)


def test_the_operators_token_alone_in_the_setting_is_not_repeated(make_app: MakeApp) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make_app(operators="s3cret-token")
    assert "s3cret" not in str(caught.value)


def test_a_key_is_made_once_by_many_that_start_together(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "new")
    keys: list[str] = []
    barrier = threading.Barrier(8)

    def start() -> None:
        barrier.wait()
        keys.append(load_web_key(settings).session_token("ses_x"))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 8
    assert len(set(keys)) == 1
    file = tmp_path / "new" / KEY_FILE
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == [KEY_FILE]


def test_making_a_key_is_said_but_the_key_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load_web_key(Settings(data_dir=tmp_path))
    assert KEY_FILE in caplog.text
    assert (tmp_path / KEY_FILE).read_text() not in caplog.text


def test_keys_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="CELERIAC_SESSION_KEY"):
        load_web_key(Settings(session_key=SecretStr("  ")))
    (tmp_path / KEY_FILE).write_text("")
    with pytest.raises(ConfigurationError, match="damaged"):
        load_web_key(Settings(data_dir=tmp_path))


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8080", "evil@localhost.x"]
)
def test_other_names_of_a_loopback_server_are_refused(web: FlaskClient, host: str) -> None:
    answer = web.get("/api/settings", headers={"Host": host})
    assert answer.status_code == 400


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8080", "[::1]:8080", "[::1]"])
def test_loopback_names_are_answered(web: FlaskClient, host: str) -> None:
    assert web.get("/healthz", headers={"Host": host}).status_code == 200


def test_a_public_server_answers_to_any_name(make_app: MakeApp) -> None:
    web = make_app(host="0.0.0.0").test_client()
    assert web.get("/healthz", headers={"Host": "agents.example"}).status_code == 200


def test_other_sites_cannot_send(web: FlaskClient, fake: FakeClient) -> None:
    for site in ("cross-site", "same-site"):
        answer = web.post("/api/sessions", json={}, headers={"Sec-Fetch-Site": site})
        assert (answer.status_code, content(answer)["code"]) == (403, "cross_site")
    assert fake.sessions == {}


def test_no_cors_headers(web: FlaskClient) -> None:
    answer = web.get("/api/settings", headers={"Origin": "http://evil.example"})
    assert not [name for name, _ in answer.headers if name.startswith("Access-Control")]
