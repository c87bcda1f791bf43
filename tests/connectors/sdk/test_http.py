"""A provider over HTTP: one request for each attempt, whatever it answers, and what is certain of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from pydantic import JsonValue

from celeriac.connectors.sdk.connector import Call
from celeriac.connectors.sdk.outcomes import Outcome
from celeriac.sessions.errors import ToolFailed, ToolNotRun, ToolOutcomeUnknown
from tests.connectors.sdk.calls import call
from tests.connectors.sdk.provider import (
    Answer,
    Behaviour,
    Provider,
    cut_after_headers,
    json_answer,
    lost,
    reset,
    running_provider,
)
from tests.connectors.sdk.things import KEY, SECRET, Things


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as running:
        yield running


def posts(provider: Provider, path: str = "/things", *, seconds: float = 20) -> JsonValue:
    async def handle(made: Call) -> Outcome:
        answer = await made.http.request("POST", f"{provider.url}{path}", body=b"{}")
        return Outcome("done", {"status": answer.status, "size": len(answer.body)})

    Things.handle = staticmethod(handle)
    environment = {
        f"{KEY}CONNECTOR": "things",
        f"{KEY}API_KEY": SECRET,
        f"{KEY}BASE_URL": provider.url,
    }
    return call(environment, "things.make", {}, seconds=seconds)


@pytest.mark.parametrize("behaviour", [lost, reset, cut_after_headers])
def test_an_answer_that_does_not_come_whole_leaves_it_open(
    provider: Provider, behaviour: Behaviour
) -> None:
    provider.script = [behaviour]
    with pytest.raises(ToolOutcomeUnknown):
        posts(provider)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("status", [200, 302, 307, 401, 404, 429, 500, 502, 503])
def test_every_status_is_one_request(provider: Provider, status: int) -> None:
    provider.script = [json_answer("{}", status, Location="/elsewhere", Retry_After="0")]
    assert posts(provider) == {"branch": "done", "status": status, "size": 2}
    assert [request.path for request in provider.requests] == ["/things"]


def test_no_connection_means_that_nothing_was_sent() -> None:
    with running_provider() as gone:
        pass
    with pytest.raises(ToolNotRun, match="no connection"):
        posts(gone)


def test_a_second_request_of_an_attempt_is_refused(provider: Provider) -> None:
    async def handle(made: Call) -> Outcome:
        await made.http.request("GET", provider.url)
        await made.http.request("POST", provider.url, body=b"{}")
        return Outcome("done")

    posts(provider)
    provider.requests.clear()
    Things.handle = staticmethod(handle)
    environment = {
        f"{KEY}CONNECTOR": "things",
        f"{KEY}API_KEY": SECRET,
        f"{KEY}BASE_URL": provider.url,
    }
    with pytest.raises(ToolOutcomeUnknown, match="an attempt makes one request"):
        call(environment, "things.make", {})
    assert [request.method for request in provider.requests] == ["GET"]


def test_another_host_is_refused_before_anything_is_sent(provider: Provider) -> None:
    async def handle(made: Call) -> Outcome:
        await made.http.request("GET", "https://evil.example/")
        return Outcome("done")

    posts(provider)
    Things.handle = staticmethod(handle)
    environment = {f"{KEY}CONNECTOR": "things", f"{KEY}API_KEY": SECRET}
    with pytest.raises(
        ToolFailed, match=r"nothing was sent: the host evil\.example is not allowed"
    ):
        call(environment, "things.make", {})


def test_a_long_answer_is_cut(provider: Provider) -> None:
    provider.script = [lambda _request: Answer(200, b"x" * (5 * 1024 * 1024))]
    result = posts(provider)
    assert result == {"branch": "done", "status": 200, "size": 4 * 1024 * 1024}


def test_no_url_is_logged(provider: Provider, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        posts(provider, "/people?email=ann@example.com")
    assert "ann@example.com" not in caplog.text


def test_variables_of_the_worker_add_no_proxy(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert posts(provider) == {"branch": "done", "status": 200, "size": 2}
