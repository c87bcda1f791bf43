"""What reaches the audit log over the API and from pages, and who may read it."""

from __future__ import annotations

import pytest
from flask.testing import FlaskClient

from celeriac.sessions.audit import AuditAct, AuditEntry
from celeriac.web.audit_words import act_words
from celeriac.web.keys import WebKey
from tests.web.conftest import MakeApp, content, operators
from tests.web.fake_client import FakeClient

SETTING = operators("ap:approver:ta", "op:operator:to")


@pytest.fixture
def site(make_app: MakeApp) -> FlaskClient:
    return make_app(operators=SETTING).test_client()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def log_in(site: FlaskClient, token: str) -> str:
    """Log a browser in; returns its CSRF token, whatever came of it."""
    page = site.get("/login").text
    csrf = str(page.split('name="csrf-token" content="', 1)[1].split('"', 1)[0])
    site.post("/login", data={"csrf_token": csrf, "operator_token": token})
    return str(site.get("/login").text.split('name="csrf-token" content="', 1)[1].split('"', 1)[0])


def test_who_acts_is_told_to_the_log(
    site: FlaskClient, fake: FakeClient, key: WebKey, sid: str
) -> None:
    call = fake.ask(sid)
    address = f"/api/sessions/{sid}/calls/{call.id}/decision"
    site.post(address, headers=bearer("ta"), json={"decision": "approve"})
    assert (fake.actor.name, fake.actor.role, fake.actor.way) == ("ap", "approver", "api")
    assert (fake.actor.address, fake.actor.own) == ("127.0.0.1", False)

    held = {"X-Agent-Session-Token": key.session_token(sid)}
    site.post(f"/api/sessions/{sid}/messages", headers=held, json={"text": "hi"})
    assert (fake.actor.name, fake.actor.role, fake.actor.own) == (None, "session", True)

    csrf = log_in(site, "to")
    site.post(f"/sessions/{sid}/messages", data={"csrf_token": csrf, "text": "hi"})
    assert (fake.actor.name, fake.actor.role, fake.actor.way) == ("op", "operator", "page")


def test_logins_and_logouts_are_logged(site: FlaskClient, fake: FakeClient) -> None:
    log_in(site, "wrong")
    csrf = log_in(site, "to")
    site.post("/logout", data={"csrf_token": csrf})

    assert [(one.act, one.by) for one in fake.recorded] == [
        (AuditAct.LOGIN_REFUSED, None),
        (AuditAct.LOGIN, "op"),
        (AuditAct.LOGOUT, "op"),
    ]
    assert "wrong" not in str(fake.recorded)


def test_nobody_is_logged_in_whose_login_cannot_be_logged(
    site: FlaskClient, fake: FakeClient
) -> None:
    page = site.get("/login").text
    csrf = page.split('name="csrf-token" content="', 1)[1].split('"', 1)[0]
    fake.down = True
    answer = site.post("/login", data={"csrf_token": csrf, "operator_token": "to"})
    assert answer.status_code == 503
    fake.down = False
    assert site.get("/api/audit").status_code == 401


def test_refused_tokens_are_logged_without_themselves(
    site: FlaskClient, fake: FakeClient, sid: str
) -> None:
    site.get(f"/api/sessions/{sid}", headers={"X-Agent-Session-Token": "guess-one"})
    site.get(f"/api/sessions/{sid}", headers=bearer("guess-two"))
    site.get("/api/sessions", headers=bearer("guess-three"))
    site.get("/api/sessions/not-an-id*", headers={"X-Agent-Session-Token": "guess-four"})

    assert [(one.act, one.session_id) for one in fake.recorded] == [
        (AuditAct.TOKEN_REFUSED, sid),
        (AuditAct.TOKEN_REFUSED, sid),
        (AuditAct.TOKEN_REFUSED, None),
        (AuditAct.TOKEN_REFUSED, None),
    ]
    assert "guess" not in str(fake.recorded)


def test_a_refusal_needs_no_store(site: FlaskClient, fake: FakeClient, sid: str) -> None:
    fake.down = True
    answer = site.get(f"/api/sessions/{sid}", headers=bearer("wrong"))
    assert answer.status_code == 403


def test_the_log_is_read_by_operators_only(site: FlaskClient, fake: FakeClient, sid: str) -> None:
    site.get(f"/api/sessions/{sid}", headers=bearer("wrong"))
    assert site.get("/api/audit", headers=bearer("ta")).status_code == 403

    answer = site.get("/api/audit", headers=bearer("to"))
    assert content(answer)["entries"][0]["act"] == "token_refused"
    assert content(answer)["cursor"] is None
    none = site.get("/api/audit?session_id=ses_x", headers=bearer("to"))
    assert content(none)["entries"] == []


def test_the_page_says_it_in_words_and_shows_hostile_text_as_text(
    site: FlaskClient, fake: FakeClient, sid: str
) -> None:
    assert site.get("/audit").headers["Location"] == "/login"
    log_in(site, "ta")
    assert site.get("/audit").status_code == 403

    log_in(site, "to")
    fake.recorded = [
        AuditEntry(
            act=AuditAct.RECONCILE,
            by="<b>Bo</b>",
            role="operator",
            way="cli",
            address="host\u202e1",
            session_id=sid,
            call_id="c1",
            tool="cancel_order",
            detail="failed",
        )
    ]
    page = site.get("/audit").text
    assert "said that cancel_order did not happen" in page
    assert f'href="/sessions/{sid}"' in page
    assert "<b>Bo" not in page
    assert "\u202e" not in page
    assert "Nothing is in the log about" in site.get("/audit?session_id=ses_x").text


@pytest.mark.parametrize("act", AuditAct)
def test_every_act_has_words(act: AuditAct) -> None:
    assert act_words(AuditEntry(act=act, way="api"))
