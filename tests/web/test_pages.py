from __future__ import annotations

import re
import stat
import threading
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from pydantic import SecretStr

from celeriac.sessions.calls import CallStatus, ToolEffect
from celeriac.sessions.ids import new_session_id
from celeriac.sessions.messages import Role as MessageRole
from celeriac.sessions.settings import Settings
from celeriac.web.auth import consume_login_code, issue_login_code
from tests.web.conftest import MakeApp, content, operators
from tests.web.fake_client import FakeClient


def csrf(client: FlaskClient) -> str:
    found = re.search(r'name="csrf-token" content="([^"]+)"', client.get("/login").text)
    assert found is not None
    return found[1]


def log_in(client: FlaskClient, token: str) -> FlaskClient:
    answer = client.post("/login", data={"csrf_token": csrf(client), "operator_token": token})
    assert answer.status_code == 303
    return client


@pytest.fixture
def browser(make_app: MakeApp) -> FlaskClient:
    """A browser in which the operator Ana is logged in."""
    return log_in(make_app(operators=operators("Ana:operator:t")).test_client(), "t")


def test_every_page_has_the_headers(browser: FlaskClient, sid: str) -> None:
    for path in ("/sessions", f"/sessions/{sid}", "/approvals", "/login", "/nothing"):
        headers = browser.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'; trusted-types fragment" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-store"


def test_pages_have_no_inline_script_or_style(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    fake.ask(sid)
    for path in ("/sessions", f"/sessions/{sid}", "/approvals", "/login"):
        html = browser.get(path).text
        assert " style=" not in html
        assert not re.search(r"<script(?![^>]*\bsrc=)", html)
        assert not re.search(r"\son[a-z]+=", html)


def test_static_files_are_kept_for_ever_under_their_digest(browser: FlaskClient) -> None:
    html = browser.get("/login").text
    address = re.findall(r'"(/static/[^"]+app\.js)"', html)[0]
    answer = browser.get(address)
    assert answer.headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert "immutable" in answer.headers["Cache-Control"]
    old = browser.get("/static/0000/js/app.js")
    assert (old.status_code, old.headers["Cache-Control"]) == (200, "no-store")
    for path in ("/static/x/../keys.py", "/static/x/js/none.js", "/static/x/%2e%2e/keys.py"):
        assert browser.get(path).status_code == 404


def test_a_visitor_on_this_machine_starts_a_session_and_only_he_opens_it(
    make_app: MakeApp, fake: FakeClient
) -> None:
    app = make_app()
    visitor = app.test_client()
    form = {"csrf_token": csrf(visitor), "message": "hello <b>there</b>"}
    started = visitor.post("/sessions", data=form)
    assert started.status_code == 303
    page = visitor.get(started.headers["Location"])
    assert page.status_code == 200
    assert "hello &lt;b&gt;there&lt;/b&gt;" in page.text
    assert "Started in this browser" in visitor.get("/sessions").text
    stranger = app.test_client().get(started.headers["Location"])
    missing = app.test_client().get(f"/sessions/{new_session_id()}")
    assert stranger.status_code == missing.status_code == 403
    assert stranger.text.split("<main")[1] == missing.text.split("<main")[1]


def test_the_holder_decides_on_his_own_session_without_scripts(
    make_app: MakeApp, fake: FakeClient
) -> None:
    visitor = make_app().test_client()
    token = csrf(visitor)
    address = visitor.post("/sessions", data={"csrf_token": token, "message": "hi"}).headers[
        "Location"
    ]
    sid = address.rsplit("/", 1)[1]
    call = fake.ask(sid)
    form = {"csrf_token": token, "digest": "d1", "decision": "approve"}
    decided = visitor.post(f"{address}/calls/{call.id}/decision", data=form)
    assert (decided.status_code, decided.headers["Location"]) == (303, address)
    assert "Approved by session user" in visitor.get(address).text


def test_lists_and_inbox_are_for_operators(web: FlaskClient, sid: str) -> None:
    assert web.get("/approvals").headers["Location"] == "/login"
    assert web.get("/approvals/fragment").status_code == 403
    assert sid not in web.get("/sessions").text
    assert web.get(f"/sessions/{sid}").status_code == 403


def test_without_a_login_a_public_server_shows_the_login(make_app: MakeApp) -> None:
    web = make_app(host="0.0.0.0").test_client()
    assert web.get("/").headers["Location"] == "/sessions"
    assert web.get("/sessions").headers["Location"] == "/login"
    assert web.post("/sessions", data={"csrf_token": csrf(web)}).headers["Location"] == "/login"


def test_an_operator_sees_the_list_and_filters_it(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    fake.send_message(sid, "find my order")
    fake.ask(sid)
    html = browser.get("/sessions").text
    assert "find my order" in html
    assert "Needs approval of cancel_order" in html
    assert "No session matches" in browser.get("/sessions?state=idle").text
    assert browser.get("/sessions?state=nonsense").status_code == 400
    assert browser.get("/sessions?cursor=x").status_code == 400


def test_a_conflict_shows_the_page_with_the_card_and_who_decided(
    browser: FlaskClient, fake: FakeClient, sid: str, held: dict[str, str]
) -> None:
    call = fake.ask(sid)
    other = browser.application.test_client()
    other.post(
        f"/api/sessions/{sid}/calls/{call.id}/decision", json={"decision": "reject"}, headers=held
    )
    form = {"csrf_token": csrf(browser), "digest": "d1", "decision": "approve"}
    path = f"/sessions/{sid}/calls/{call.id}/decision"
    answer = browser.post(path, data=form)
    assert answer.status_code == 409
    assert "Already rejected by session user" in answer.text
    assert f'id="call-{call.id}"' in answer.text
    inbox = browser.post(path, data={**form, "from": "approvals"})
    assert inbox.status_code == 409
    assert "Nothing needs you" in inbox.text
    script = browser.post(path, data=form, headers={"X-Enhanced": "1"})
    assert (script.status_code, content(script)["code"]) == (409, "already_decided")


def test_the_approval_card_shows_what_will_run(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    fake.ask(sid, arguments={"amount": 7, "to": "a\u202eb <script>", "memo": "x" * 300})
    for path in (f"/sessions/{sid}", "/approvals"):
        html = browser.get(path).text
        assert "Write, runs at most once, cannot be repeated safely" in html
        assert '<td class="arguments__type">number</td>' in html
        assert 'title="right-to-left override">U+202E</span>' in html
        assert "b &lt;script&gt;" in html
        assert "non_idempotent_write" not in html
        assert "awaiting_approval" not in html


def test_mc_10_the_card_of_a_servers_tool_shows_both_names_and_says_what_that_says_of_it(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    fake.ask(
        sid,
        "desk__pay_out_12345678",
        source="desk",
        original_name="pay/out",
        description="Pay <out>.",
    )
    for path in (f"/sessions/{sid}", "/approvals"):
        html = browser.get(path).text
        assert "desk: pay/out" in html
        assert "desk says of this tool: “Pay &lt;out&gt;.”" in html


def test_a_hostile_tool_name_is_text(browser: FlaskClient, fake: FakeClient, sid: str) -> None:
    fake.ask(sid, tool='"><img src=x onerror=alert(1)>', text="")
    html = browser.get(f"/sessions/{sid}").text
    assert "<img src=x" not in html


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (CallStatus.SUCCEEDED, "Done"),
        (CallStatus.FAILED, "Failed"),
        (CallStatus.OUTCOME_UNKNOWN, "May have happened. Check at the provider, then mark."),
        (CallStatus.REJECTED, "Rejected"),
        (CallStatus.CANCELLED, "Cancelled"),
        (CallStatus.RETRYING, "Trying again"),
    ],
)
def test_call_states_are_in_words(
    browser: FlaskClient, fake: FakeClient, sid: str, status: CallStatus, words: str
) -> None:
    fake.ask(sid, status=status, effect=ToolEffect.READ)
    html = browser.get(f"/sessions/{sid}").text
    assert words in html
    assert status.value not in re.sub(r'(class|id|data-key)="[^"]*"', "", html).split("<main")[1]


def test_a_skipped_call_was_not_run(browser: FlaskClient, fake: FakeClient, sid: str) -> None:
    fake.ask(sid, status=CallStatus.FAILED, skipped=True)
    assert "Not run" in browser.get(f"/sessions/{sid}").text


def test_an_unknown_outcome_is_marked_by_an_operator(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    call = fake.ask(sid, status=CallStatus.OUTCOME_UNKNOWN)
    assert "It did not happen" in browser.get("/approvals").text
    form = {"csrf_token": csrf(browser), "outcome": "failed", "from": "approvals"}
    done = browser.post(f"/sessions/{sid}/calls/{call.id}/reconcile", data=form)
    assert done.headers["Location"] == "/approvals"
    assert fake.call(sid, call.id).reconciled_by == "Ana"


def test_a_refused_message_keeps_its_text(browser: FlaskClient, sid: str) -> None:
    form = {"csrf_token": csrf(browser), "text": "long " * 300, "message_id": "m1"}
    answer = browser.post(f"/sessions/{sid}/messages", data=form)
    assert answer.status_code == 413
    assert form["text"] in answer.text


def test_queue_and_stop_work_without_scripts(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    token = csrf(browser)
    for name in ("m1", "m2", "m3"):
        form = {"csrf_token": token, "text": f"text {name}", "message_id": name}
        assert browser.post(f"/sessions/{sid}/messages", data=form).status_code == 303
    html = browser.get(f"/sessions/{sid}").text
    assert html.index("text m2") < html.index("text m3")
    only = {"csrf_token": token}
    assert browser.post(f"/sessions/{sid}/queue/m2/delete", data=only).status_code == 303
    assert browser.post(f"/sessions/{sid}/queue/m2/delete", data=only).status_code == 404
    assert browser.post(f"/sessions/{sid}/queue/m3/steer", data=only).status_code == 303
    assert browser.post(f"/sessions/{sid}/cancel", data=only).status_code == 303
    assert "Stopped by Ana" in browser.get(f"/sessions/{sid}").text


def test_without_a_worker_the_page_says_it_will_continue(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    fake.send_message(sid, "hello")
    fake.worker_names = []
    html = browser.get(f"/sessions/{sid}").text
    assert "Saved. No worker is running; it will continue when one starts." in html


def test_the_page_says_which_tools_are_missing(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    assert "tools are missing" not in browser.get(f"/sessions/{sid}").text
    fake.missing_tools = ["MCP server slow: <b>not ready</b> after 5 s"]
    html = browser.get(f"/sessions/{sid}").text
    assert "Some tools are missing just now; the agent answers without them." in html
    assert "MCP server slow: &lt;b&gt;not ready&lt;/b&gt; after 5 s" in html


def test_older_messages_are_a_link_away(browser: FlaskClient, fake: FakeClient, sid: str) -> None:
    for number in range(205):
        fake.say(sid, f"message number {number}.")
    latest = browser.get(f"/sessions/{sid}").text
    assert "message number 4." not in latest
    assert 'href="?before=5"' in latest
    older = browser.get(f"/sessions/{sid}?before=5").text
    assert "message number 4." in older
    assert "Back to the latest" in older


def test_a_page_says_that_older_messages_were_deleted(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    for number in range(205):
        fake.say(sid, f"message number {number}.")
    fake.sessions[sid].oldest_seq = 3
    deleted = "The messages before these were summarised and deleted."
    assert deleted not in browser.get(f"/sessions/{sid}").text
    older = browser.get(f"/sessions/{sid}?before=5").text
    assert deleted in older
    assert "Show older messages" not in older


def test_a_summary_is_a_quiet_line_with_its_text_behind_it(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    fake.say(sid, "They asked for **order 1002**.", role=MessageRole.SUMMARY)
    html = browser.get(f"/sessions/{sid}").text
    line = html.split("Older messages were summarised for the agent")[1]
    assert "<strong>order 1002</strong>" in line.split("</details>")[0]


def test_se_02_a_page_with_hostile_markdown_has_nothing_that_loads(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    fake.say(sid, "![x](https://evil.example/?q=1) <img src=https://evil.example>")
    main = browser.get(f"/sessions/{sid}").text.split("<main")[1]
    assert "<img" not in main


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/sessions", {}),
        ("/sessions/{sid}/messages", {"text": "x"}),
        ("/sessions/{sid}/cancel", {}),
        ("/logout", {}),
    ],
)
def test_forms_without_our_token_do_nothing(
    browser: FlaskClient, fake: FakeClient, sid: str, path: str, fields: dict[str, str]
) -> None:
    for token in ({}, {"csrf_token": "é"}, {"csrf_token": "x" * 32}):
        answer = browser.post(path.format(sid=sid), data={**fields, **token})
        assert answer.status_code == 403
    assert fake.sessions[sid].messages == []
    assert len(fake.sessions) == 1


def test_the_api_takes_a_cookie_only_with_our_token(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    path = f"/api/sessions/{sid}/messages"
    assert browser.get(f"/api/sessions/{sid}").status_code == 200
    assert browser.post(path, json={"text": "x"}).status_code == 403
    headers = {"X-CSRF-Token": csrf(browser)}
    assert browser.post(path, json={"text": "x"}, headers=headers).status_code == 202


def test_a_store_that_is_down_is_a_page_that_says_nothing_is_lost(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    fake.down = True
    for path in ("/sessions", f"/sessions/{sid}", "/approvals"):
        answer = browser.get(path)
        assert answer.status_code == 503
        assert answer.headers["Retry-After"]
        assert "Nothing is lost" in answer.text


def test_a_login_code_works_once_and_only_when_posted(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app()
    settings = Settings(data_dir=tmp_path)
    code = issue_login_code(settings)
    file = tmp_path / "login.code"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    first, second = app.test_client(), app.test_client()
    for client in (first, second):
        assert client.get(f"/login?code={code}").status_code == 200
    assert file.exists()
    form = {"csrf_token": csrf(first), "code": code}
    answer = first.post("/login", data=form)
    assert answer.status_code == 303
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert "Secure" not in cookie
    assert first.get("/approvals").status_code == 200
    used = second.post("/login", data={"csrf_token": csrf(second), "code": code})
    assert used.status_code == 403
    assert code not in used.text
    assert second.get("/approvals").status_code == 303


def test_of_many_that_use_a_code_one_wins(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    code = issue_login_code(settings)
    won: list[bool] = []
    barrier = threading.Barrier(8)

    def use() -> None:
        barrier.wait()
        won.append(consume_login_code(settings, code))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False] * 7 + [True]


def test_a_wrong_code_leaves_the_right_one(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    code = issue_login_code(settings)
    for wrong in ("", "x", "é" * 50):
        assert not consume_login_code(settings, wrong)
    assert consume_login_code(settings, code)


def test_over_https_the_cookie_is_secure(make_app: MakeApp) -> None:
    web = make_app(host="0.0.0.0").test_client()
    assert "Secure" in web.get("/login", base_url="https://a.example").headers["Set-Cookie"]
    proxied = web.get("/login", headers={"X-Forwarded-Proto": "https"})
    assert "Secure" in proxied.headers.get("Set-Cookie", "Secure")


def test_a_removed_operator_is_logged_out(make_app: MakeApp, fake: FakeClient) -> None:
    before = log_in(make_app(operators=operators("Ana:operator:t")).test_client(), "t")
    cookie = before.get_cookie("celeriac_8080")
    assert cookie is not None
    for setting in ("Bo:operator:t", "Ana:operator:other"):
        after = make_app(operators=operators(setting)).test_client()
        after.set_cookie("celeriac_8080", cookie.value)
        assert after.get("/approvals").status_code == 303


def test_a_cookie_signed_with_another_key_is_no_login(make_app: MakeApp) -> None:
    setting = operators("Ana:operator:t")
    before = log_in(make_app(operators=setting).test_client(), "t")
    cookie = before.get_cookie("celeriac_8080")
    assert cookie is not None
    after = make_app(
        operators=setting, session_key=SecretStr("another key, also long")
    ).test_client()
    after.set_cookie("celeriac_8080", cookie.value)
    assert after.get("/approvals").status_code == 303


def test_logout(browser: FlaskClient) -> None:
    assert browser.post("/logout", data={"csrf_token": csrf(browser)}).status_code == 303
    assert browser.get("/approvals").status_code == 303
