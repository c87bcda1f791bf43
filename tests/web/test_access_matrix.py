"""Every route of the contract with every kind of credential: who may, may, and nobody else does."""

from __future__ import annotations

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from celeriac.web.contract import CONTRACT, Access, Route
from celeriac.web.keys import WebKey
from celeriac.web.operators import Role
from celeriac.web.parts import EXTENSION
from celeriac.web.stream import StreamTiming
from tests.web.conftest import MakeApp, operators
from tests.web.fake_client import FakeClient

ROLES = {role.name.lower(): role for role in Role if role is not Role.NOBODY}
SESSION = "X-Agent-Session-Token"
ENDPOINTS = sorted(CONTRACT)
CHANGING = [one for one in ENDPOINTS if CONTRACT[one].body is not None or "delete" in one]
REFUSED = {401, 403}


@pytest.fixture
def app(make_app: MakeApp) -> Flask:
    made = make_app(operators=operators(*(f"{name}:{name}:token-of-{name}" for name in ROLES)))
    made.extensions[EXTENSION].streams.timing = StreamTiming(block=0.01, longest=0.01)
    return made


class Site:
    """Makes the request that a route wants, with some credential."""

    def __init__(self, app: Flask, fake: FakeClient, key: WebKey) -> None:
        self.web: FlaskClient = app.test_client()
        self.fake = fake
        self.key = key
        self.sid = fake.create_session(message="hello").session_id
        self.other = fake.create_session(message="hello").session_id
        self.call = fake.ask(self.sid).id
        self.paths = {rule.endpoint: rule for rule in app.url_map.iter_rules()}

    def send(self, endpoint: str, headers: dict[str, str], **more: object) -> TestResponse:
        route, rule = CONTRACT[endpoint], self.paths[endpoint]
        path = rule.rule.replace("<sid>", self.sid).replace("<call_id>", self.call)
        path = path.replace("<message_id>", "m1").replace("<image_id>", "img1")
        (method,) = (rule.methods or set()) - {"HEAD", "OPTIONS"}
        if route.body is not None and not more:
            example = route.example
            if isinstance(example, dict) and "id" in example:
                example = {**example, "id": self.sid}
            more = {"json": example}
        return self.web.open(path, method=method, headers=headers, **more)  # type: ignore[arg-type]


@pytest.fixture
def site(app: Flask, fake: FakeClient, key: WebKey) -> Site:
    return Site(app, fake, key)


@pytest.fixture
def proxied(make_app: MakeApp, fake: FakeClient, key: WebKey) -> Site:
    """A site behind a proxy on this machine that names who is logged in."""
    made = make_app(
        trusted_proxies="127.0.0.1",
        proxy_user_header="X-Remote-User",
        proxy_roles=",".join(f"{name}:{name}" for name in ROLES),
    )
    made.extensions[EXTENSION].streams.timing = StreamTiming(block=0.01, longest=0.01)
    return Site(made, fake, key)


def open_to(route: Route, role: Role) -> bool:
    """Whether an operator of a role may use a route."""
    return route.access is Access.OPEN or role >= route.role


def check(answer: TestResponse, *, may: bool, who: str) -> None:
    said = f"{who}: {answer.status}"
    if may:
        assert answer.status_code not in REFUSED, said
    else:
        assert answer.status_code in REFUSED, said
        assert answer.content_type == "application/problem+json"
    answer.close()


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_nobody_in_particular_gets_nothing(site: Site, endpoint: str) -> None:
    check(site.send(endpoint, {}), may=CONTRACT[endpoint].access is Access.OPEN, who="nobody")


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("name", ROLES)
def test_operators_may_what_their_role_says(site: Site, endpoint: str, name: str) -> None:
    answer = site.send(endpoint, {"Authorization": f"Bearer token-of-{name}"})
    check(answer, may=open_to(CONTRACT[endpoint], ROLES[name]), who=name)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_the_holder_of_a_session_may_all_of_it_and_nothing_else(site: Site, endpoint: str) -> None:
    own = {SESSION: site.key.session_token(site.sid)}
    may = CONTRACT[endpoint].access in {Access.OPEN, Access.SESSION}
    check(site.send(endpoint, own), may=may, who="holder")


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("kind", ["another session's", "one character off", "empty", "bearer off"])
def test_a_wrong_token_opens_nothing_and_reads_nothing(
    site: Site, endpoint: str, kind: str
) -> None:
    own = site.key.session_token(site.sid)
    headers = {
        "another session's": {SESSION: site.key.session_token(site.other)},
        "one character off": {SESSION: own[:-1] + ("0" if own[-1] != "0" else "1")},
        "empty": {SESSION: ""},
        "bearer off": {"Authorization": "Bearer token-of-operato"},
    }[kind]
    site.fake.touched.clear()
    check(site.send(endpoint, headers), may=CONTRACT[endpoint].access is Access.OPEN, who=kind)
    assert site.fake.touched == []


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("name", ROLES)
def test_whom_a_trusted_proxy_names_may_what_their_role_says(
    proxied: Site, endpoint: str, name: str
) -> None:
    csrf = proxied.web.get("/login").text.split('name="csrf-token" content="', 1)[1].split('"')[0]
    answer = proxied.send(endpoint, {"X-Remote-User": name, "X-CSRF-Token": csrf})
    check(answer, may=open_to(CONTRACT[endpoint], ROLES[name]), who=f"{name} by proxy")


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("forwarded", ["", "127.0.0.1"])
def test_a_proxy_header_of_somebody_else_opens_nothing_and_reads_nothing(
    proxied: Site, endpoint: str, forwarded: str
) -> None:
    proxied.web.environ_base["REMOTE_ADDR"] = "10.0.0.66"
    proxied.fake.touched.clear()
    headers = {"X-Remote-User": "operator", "X-Forwarded-For": forwarded}
    may = CONTRACT[endpoint].access is Access.OPEN
    check(proxied.send(endpoint, headers), may=may, who="somebody else")
    assert proxied.fake.touched == []


@pytest.mark.parametrize("endpoint", CHANGING)
def test_a_form_of_another_site_does_nothing_though_the_proxy_names_its_sender(
    proxied: Site, endpoint: str
) -> None:
    proxied.fake.touched.clear()
    check(proxied.send(endpoint, {"X-Remote-User": "operator"}), may=False, who="another site")
    assert proxied.fake.touched == []


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_another_site_cannot_make_a_browser_send_it(site: Site, endpoint: str) -> None:
    """A form of another site carries the cookies of the person who is logged in here."""
    site.web.post("/login", data={"token": "token-of-operator"})
    changes = CONTRACT[endpoint].body is not None or "delete" in endpoint
    answer = site.send(endpoint, {"Sec-Fetch-Site": "cross-site"})
    if changes:
        assert answer.status_code == 403
    answer.close()
    assert not any(item.queue for item in site.fake.sessions.values())


@pytest.mark.parametrize("endpoint", [one for one in ENDPOINTS if CONTRACT[one].body is not None])
def test_a_body_of_another_type_changes_nothing(site: Site, endpoint: str) -> None:
    headers = {"Authorization": "Bearer token-of-operator", "Content-Type": "text/plain"}
    events = len(site.fake.sessions[site.sid].events)
    answer = site.send(endpoint, headers, data=b'{"decision": "approve"}')
    assert answer.status_code == 400
    assert answer.get_json()["code"] == "invalid_json"
    assert len(site.fake.sessions[site.sid].events) == events
