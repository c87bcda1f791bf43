"""Operations over HTTP: who may look, what the page says, and metrics that Prometheus can read."""

from __future__ import annotations

import re

import pytest
from flask.testing import FlaskClient

from celeriac.sessions.operations import QueueInfo, Reason, ReasonKind, SlowSession
from celeriac.sessions.state import StepName
from tests.web.conftest import MakeApp, content, operators
from tests.web.fake_client import FakeClient
from tests.web.fake_operations import NOON

SETTING = operators("vi:viewer:tv", "cl:client:tc", "op:operator:to")
VIEWER = {"Authorization": "Bearer tv"}
STUCK = SlowSession(
    session_id="ses_000000000000000000000000",
    agent="support",
    title="<b>My order</b>",
    updated_at=NOON - 60_000,
    reasons=(
        Reason(
            kind=ReasonKind.NO_WORKER,
            since=NOON - 60_000,
            step=StepName.CALL_TOOL,
            tool="cancel_order",
            queue="celeriac.slow",
        ),
    ),
)


@pytest.fixture
def site(make_app: MakeApp) -> FlaskClient:
    return make_app(operators=SETTING).test_client()


def login(site: FlaskClient, token: str) -> str:
    """Log in, and return what forms need to be from our own page."""
    csrf = site.get("/login").text.split('name="csrf-token" content="', 1)[1].split('"', 1)[0]
    site.post("/login", data={"csrf_token": csrf, "operator_token": token})
    text = site.get("/operations").text
    return text.split('name="csrf-token" content="', 1)[1].split('"', 1)[0]


def page(site: FlaskClient, token: str = "tv") -> str:
    login(site, token)
    return site.get("/operations").text


def test_the_api_says_what_goes_on(site: FlaskClient, fake: FakeClient, sid: str) -> None:
    read = content(site.get("/api/operations", headers=VIEWER))
    assert read["sessions"] == {"idle": 12_345, "running": 3, "waiting": 2}
    assert read["queues"][1] == {
        "name": "celeriac.tool",
        "depth": 2,
        "oldest_at": NOON - 4_000,
        "workers": 1,
    }
    one = content(site.get(f"/api/operations/sessions/{sid}", headers=VIEWER))
    assert one["reasons"][0]["kind"] == "message"
    assert site.get("/api/operations/sessions/ses_none", headers=VIEWER).status_code == 404


def test_the_page_says_that_all_is_well(site: FlaskClient) -> None:
    text = page(site)
    assert "Everything works: 1 worker, nothing waits too long." in text
    assert "12,345" in text
    assert "3 of 16 busy" in text
    assert "2 waiting, the oldest since 4 s" in text


def test_the_page_says_what_is_wrong_and_what_to_do(site: FlaskClient, fake: FakeClient) -> None:
    fake.operations.queues = (QueueInfo(name="celeriac.slow", depth=1, workers=0),)
    fake.operations.slow = (STUCK,)
    text = page(site)
    assert "No worker takes the queue celeriac.slow, where 1 step waits." in text
    assert "no worker takes the queue celeriac.slow, where cancel_order waits since 60 s" in text
    assert "not moving" in text
    assert "<b>My order" not in text


def test_the_page_is_for_operators(site: FlaskClient) -> None:
    assert site.get("/operations").status_code == 303
    assert site.get("/operations/fragment").status_code == 403


_PAIR = r'[a-z_]+="(?:[^"\\\n]|\\.)*"'
_LINE = re.compile(rf"celeriac_[a-z_]+(\{{{_PAIR}(?:,{_PAIR})*\}})? -?[0-9.e+]+")


def test_metrics_are_as_prometheus_reads_them(site: FlaskClient, fake: FakeClient) -> None:
    name = 'a "queue"\\with\nall'
    fake.operations.queues = (QueueInfo(name=name, depth=4, workers=1),)
    response = site.get("/metrics", headers=VIEWER)
    assert response.content_type == "text/plain; version=0.0.4; charset=utf-8"
    lines = response.text.splitlines()
    samples = [line for line in lines if not line.startswith("#")]
    assert all(_LINE.fullmatch(line) for line in samples), samples
    assert 'celeriac_sessions{status="idle"} 12345' in samples
    assert 'celeriac_queue_depth{queue="a \\"queue\\"\\\\with\\nall"} 4' in samples
    assert 'celeriac_attempts_total{work="tool",outcome="unknown"} 0' in samples
    assert "# TYPE celeriac_attempts_total counter" in lines
    types = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types))


def test_metrics_are_not_for_everybody(site: FlaskClient) -> None:
    assert site.get("/metrics").status_code == 401
    assert site.get("/metrics", headers={"Authorization": "Bearer tc"}).status_code == 403


def test_the_page_draws_the_last_hour_and_says_it_in_words(site: FlaskClient) -> None:
    text = page(site)
    total = sum(5 + ago * 7 % 30 for ago in range(50))
    assert f'aria-label="Model calls: {total:,} in the last hour, at most 34 a minute"' in text
    assert 'aria-label="Failed: none in the last hour"' in text


def test_an_operator_stops_a_session_from_the_page_and_comes_back_to_it(
    site: FlaskClient, fake: FakeClient, sid: str
) -> None:
    fake.send_message(sid, "Hello")
    turn = fake.snapshot(sid).turn
    assert turn is not None
    fake.operations.slow = (STUCK.model_copy(update={"session_id": sid, "turn_id": turn.id}),)
    csrf = login(site, "to")
    assert f'action="/sessions/{sid}/cancel"' in site.get("/operations").text
    form = {"turn_id": turn.id, "from": "operations"}
    assert site.post(f"/sessions/{sid}/cancel", data=form).status_code == 403
    form["csrf_token"] = csrf
    done = site.post(f"/sessions/{sid}/cancel", data=form)
    assert (done.status_code, done.headers["Location"]) == (303, "/operations")
    form["turn_id"] = "turn_gone"
    refused = site.post(f"/sessions/{sid}/cancel", data=form)
    assert refused.status_code == 409
    assert "<h1>Operations</h1>" in refused.text
    assert 'role="alert"' in refused.text


def test_who_may_only_look_is_offered_no_act(site: FlaskClient, fake: FakeClient, sid: str) -> None:
    fake.operations.slow = (STUCK.model_copy(update={"session_id": sid, "turn_id": "turn_1"}),)
    csrf = login(site, "tv")
    assert "/cancel" not in site.get("/operations").text
    form = {"turn_id": "turn_1", "from": "operations", "csrf_token": csrf}
    assert site.post(f"/sessions/{sid}/cancel", data=form).status_code == 403


def test_a_session_that_is_being_stopped_and_a_look_up_that_may_be_done_now(
    site: FlaskClient, fake: FakeClient, sid: str
) -> None:
    look_up = Reason(
        kind=ReasonKind.LOOK_UP,
        since=NOON,
        step=StepName.RECONCILE_CALL,
        call_id="call_1",
        tool="refund",
    )
    facts = {"session_id": sid, "turn_id": "t", "stopping": True, "reasons": (look_up,)}
    fake.operations.slow = (STUCK.model_copy(update=facts),)
    text = page(site, "to")
    assert "Stopping at the next safe moment" in text
    assert "/cancel" not in text
    assert f'action="/sessions/{sid}/calls/call_1/check"' in text
    assert "Check refund now" in text
