"""Logins by a trusted proxy's header, and the address that a request comes from."""

from __future__ import annotations

import pytest
from flask.testing import FlaskClient
from pydantic import SecretStr

from celeriac.sessions.errors import ConfigurationError
from celeriac.sessions.settings import Settings
from celeriac.web.operators import Role
from celeriac.web.proxies import load_proxies
from tests.web.conftest import MakeApp, operators
from tests.web.fake_client import FakeClient

PROXY = "10.0.0.5"
SETTINGS: dict[str, object] = {
    "host": "0.0.0.0",
    "trusted_proxies": f"{PROXY}, fd00::/64",
    "proxy_user_header": "X-Remote-User",
    "proxy_roles": "ana:operator, *:viewer",
}


@pytest.fixture
def site(make_app: MakeApp) -> FlaskClient:
    """A browser whose requests come through the proxy."""
    web = make_app(**SETTINGS).test_client()
    web.environ_base["REMOTE_ADDR"] = PROXY
    return web


def user(name: str, **more: str) -> dict[str, str]:
    return {"X-Remote-User": name, **more}


def csrf_of(page: str) -> str:
    return page.split('name="csrf-token" content="', 1)[1].split('"', 1)[0]


def test_whom_the_proxy_names_is_logged_in_with_their_role(
    site: FlaskClient, fake: FakeClient, sid: str
) -> None:
    page = site.get("/approvals", headers=user("ana"))
    assert page.status_code == 200
    assert "ana" in page.text
    assert "Log out" not in page.text, "only the proxy can do that"
    call = fake.ask(sid)
    form = {"csrf_token": csrf_of(page.text), "decision": "approve", "digest": "d1"}
    path = f"/sessions/{sid}/calls/{call.id}/decision"
    assert site.post(path, data=form, headers=user("bo")).status_code == 403, "a viewer"
    assert site.post(path, data=form, headers=user("ana")).status_code == 303
    decision = fake.call(sid, call.id).decision
    assert decision is not None
    assert decision.by == "ana"
    assert site.get("/approvals", headers=user("bo")).status_code == 200


@pytest.mark.parametrize(
    "name",
    [
        "",
        "*",
        "ana,bo",
        "ana, ana",
        "a b",
        "ana:operator",
        "a\u202eb".encode().decode("latin-1"),
        "x" * 65,
    ],
)
def test_spoofed_names_and_two_headers_in_one_are_nobody(site: FlaskClient, name: str) -> None:
    assert site.get("/api/sessions", headers=user(name)).status_code == 401


@pytest.mark.parametrize(
    "address", ["10.0.0.6", "127.0.0.1", "::1", "fd01::1", "", "unix:", "::ffff:10.0.0.6"]
)
def test_spoofed_header_from_any_other_address_is_not_read(site: FlaskClient, address: str) -> None:
    site.environ_base["REMOTE_ADDR"] = address
    more = {"X-Forwarded-For": PROXY, "X-Real-IP": PROXY, "Forwarded": f"for={PROXY}"}
    for headers in (user("ana"), user("ana", **more)):
        assert site.get("/api/sessions", headers=headers).status_code == 401


@pytest.mark.parametrize("address", [PROXY, "fd00::17", f"::ffff:{PROXY}"])
def test_the_proxies_own_addresses_are_known_in_every_form(site: FlaskClient, address: str) -> None:
    site.environ_base["REMOTE_ADDR"] = address
    assert site.get("/api/sessions", headers=user("ana")).status_code == 200


def test_spoofed_header_is_not_read_unless_it_is_configured(make_app: MakeApp) -> None:
    web = make_app(trusted_proxies="127.0.0.1").test_client()
    assert web.get("/api/sessions", headers=user("ana")).status_code == 401


def test_a_form_of_another_site_does_nothing_though_the_proxy_names_its_sender(
    site: FlaskClient, fake: FakeClient, sid: str
) -> None:
    call = fake.ask(sid)
    path = f"/api/sessions/{sid}/calls/{call.id}/decision"
    answer = site.post(path, json={"decision": "approve"}, headers=user("ana"))
    assert (answer.status_code, answer.get_json()["code"]) == (403, "form_expired")
    assert fake.call(sid, call.id).decision is None


def test_a_bearer_token_is_itself_and_not_whom_the_proxy_names(make_app: MakeApp) -> None:
    web = make_app(**SETTINGS, operators=SecretStr(operators("cy:client:tc"))).test_client()
    web.environ_base["REMOTE_ADDR"] = PROXY
    headers = user("ana", Authorization="Bearer tc")
    assert web.get("/api/sessions", headers=headers).status_code == 403


def test_nobody_starts_sessions_without_a_name_where_a_proxy_gives_names(
    make_app: MakeApp,
) -> None:
    web = make_app(**{**SETTINGS, "host": "127.0.0.1", "trusted_proxies": "10.0.0.5"}).test_client()
    assert web.post("/api/sessions", json={}).status_code == 401


FORWARDED = [
    (PROXY, "", PROXY),
    (PROXY, "203.0.113.9", "203.0.113.9"),
    (PROXY, "evil, 203.0.113.9", "203.0.113.9"),
    (PROXY, "127.0.0.1, 203.0.113.9", "203.0.113.9"),
    (PROXY, "203.0.113.9, fd00::3", "203.0.113.9"),
    (PROXY, "fd00::3", "fd00::3"),
    (PROXY, "203.0.113.9, nonsense", PROXY),
    ("203.0.113.8", "127.0.0.1", "203.0.113.8"),
]


@pytest.mark.parametrize(("peer", "forwarded", "address"), FORWARDED)
def test_the_log_has_the_address_that_a_trusted_proxy_forwards_and_none_that_a_caller_made_up(
    site: FlaskClient, fake: FakeClient, peer: str, forwarded: str, address: str
) -> None:
    site.environ_base["REMOTE_ADDR"] = peer
    headers = {"Authorization": "Bearer wrong", "X-Forwarded-For": forwarded}
    site.get("/api/sessions", headers=headers)
    assert fake.recorded[0].address == address


WRONG: dict[str, dict[str, object]] = {
    "CELERIAC_TRUSTED_PROXIES: '10.0.0.300'": {"trusted_proxies": "10.0.0.300"},
    "host bits set": {"trusted_proxies": "10.0.0.5/8"},
    "is everybody": {"trusted_proxies": "0.0.0.0/0"},
    "needs CELERIAC_TRUSTED_PROXIES": {"trusted_proxies": None},
    "needs CELERIAC_PROXY_ROLES": {"proxy_roles": None},
    "'ana:boss' must be name:role": {"proxy_roles": "ana:boss"},
    "'ana' must be name:role": {"proxy_roles": "ana"},
    "'Authorization' cannot be that header": {"proxy_user_header": "Authorization"},
    "'X_Remote_User' cannot be that header": {"proxy_user_header": "X_Remote_User"},
}


@pytest.mark.parametrize("said", WRONG)
def test_a_wrong_setting_is_named(said: str) -> None:
    settings = Settings.model_validate(SETTINGS | WRONG[said])
    with pytest.raises(ConfigurationError) as caught:
        load_proxies(settings)
    assert said in str(caught.value)


def test_roles_are_read() -> None:
    proxies = load_proxies(Settings.model_validate(SETTINGS))
    assert proxies.roles == {"ana": Role.OPERATOR, "*": Role.VIEWER}
