"""Configured requests and webhooks: what is sent, what each answer means, and what is refused."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from typing import cast
from urllib.parse import urlsplit

import pytest
from pydantic import JsonValue

from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.errors import (
    ConfigurationError,
    ToolFailed,
    ToolNotRun,
    ToolOutcomeUnknown,
)
from tests.connectors.sdk.calls import call, definition_of
from tests.connectors.sdk.provider import (
    Behaviour,
    Provider,
    cut_after_headers,
    json_answer,
    lost,
    reset,
    running_provider,
)

TOKEN = "a-token-Qm3Vt8aa1Zz"
SECRET = "whsec_" + base64.b64encode(b"a secret of 24 bytes....").decode()
TEXT: dict[str, JsonValue] = {"type": "string", "description": "A text."}


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as running:
        yield running


def _requests(url: str) -> dict[str, JsonValue]:
    return {
        "read": {
            "method": "GET",
            "url": f"{url}/things/{{id}}?view=full",
            "description": "Read a thing.",
            "parameters": {"id": TEXT, "page": {"type": "integer"}},
            "optional": ["page"],
        },
        "make": {
            "method": "POST",
            "url": f"{url}/things/{{id}}",
            "description": "Make a thing.",
            "parameters": {"id": TEXT, "title": TEXT, "dry": {"type": "boolean"}},
            "optional": ["dry"],
            "query": ["dry"],
            "headers": {"X-Team": "support"},
        },
        "keep": {
            "method": "PUT",
            "url": f"{url}/things",
            "description": "Keep a thing.",
            "parameters": {"title": TEXT},
            "idempotencyHeader": "Idempotency-Key",
        },
        "quoted": {
            "method": "POST",
            "url": f"{url}/things",
            "description": "Keep a thing.",
            "parameters": {"title": TEXT},
            "idempotencyHeader": "Idempotency-Key",
            "keyFormat": "sfString",
        },
        "closed": {
            "method": "POST",
            "url": f"{url}/hooks",
            "description": "Tell that it is closed.",
            "parameters": {"id": TEXT},
        },
    }


def _environment(url: str, **values: JsonValue) -> dict[str, str]:
    prefix = "CELERIAC_CONNECTION_MAIN_"
    given: dict[str, JsonValue] = {
        "ALLOWED_HOSTS": [urlsplit(url).netloc],
        "REQUESTS": _requests(url),
        **values,
    }
    written = {f"{prefix}{name}": json.dumps(value) for name, value in given.items()}
    fixed = {"CONNECTOR": "http", "TOKEN": TOKEN, "WEBHOOK_SECRET": SECRET}
    return written | {f"{prefix}{name}": value for name, value in fixed.items()}


def _run(
    provider: Provider, operation: str, request: str, /, attempt: int = 1, **values: JsonValue
) -> dict[str, JsonValue]:
    result = call(
        _environment(provider.url),
        f"http.{operation}",
        {"parameters": values},
        fixed={"request": request},
        attempt=attempt,
    )
    return cast("dict[str, JsonValue]", result)


def test_a_read(provider: Provider) -> None:
    provider.script = [json_answer('{"id": 7}')]
    found = _run(provider, "get", "read", id="a/b?c#d é", page=2)
    assert found == {"branch": "found", "status": 200, "body": {"id": 7}}
    (request,) = provider.requests
    assert request.path == "/things/a%2Fb%3Fc%23d%20%C3%A9?view=full&page=2"
    assert request.headers["authorization"] == f"Bearer {TOKEN}"


def test_a_write(provider: Provider) -> None:
    assert _run(provider, "send", "make", id="1", title="x\r\ny", dry=True)["status"] == 200
    (request,) = provider.requests
    assert (request.method, request.path) == ("POST", "/things/1?dry=true")
    assert json.loads(request.body) == {"title": "x\r\ny"}
    assert request.headers["x-team"] == "support"
    assert request.headers["content-type"] == "application/json"


@pytest.mark.parametrize("value", ["..", ".", ""])
def test_a_value_cannot_leave_its_place_in_the_path(provider: Provider, value: str) -> None:
    with pytest.raises(ToolFailed, match="nothing was sent"):
        _run(provider, "send", "make", id=value, title="x")
    assert provider.requests == []


def test_a_key_is_sent_as_the_server_wants_it(provider: Provider) -> None:
    _run(provider, "sendWithKey", "keep", title="x")
    _run(provider, "sendWithKey", "quoted", title="x")
    bare, quoted = (request.headers["idempotency-key"] for request in provider.requests)
    assert bare == "http.sendWithKey/call_0123456789abcdef"
    assert quoted == f'"{bare}"'


def test_a_webhook_is_signed_as_openssl_signs_it(provider: Provider) -> None:
    _run(provider, "sendEvent", "closed", id="7")
    (request,) = provider.requests
    assert json.loads(request.body) == {"type": "closed", "data": {"id": "7"}}
    headers = request.headers
    assert headers["webhook-id"] == "call_0123456789abcdef"
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + request.body
    key = base64.b64decode(SECRET.removeprefix("whsec_")).hex()
    command = ["openssl", "dgst", "-sha256", "-mac", "HMAC", "-macopt", f"hexkey:{key}", "-binary"]
    digest = subprocess.run(command, input=signed, capture_output=True, check=True).stdout
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"


_UNKNOWN, _FAILED, _NOT_RUN = ToolOutcomeUnknown, ToolFailed, ToolNotRun


@pytest.mark.parametrize(
    ("status", "get", "send", "keyed"),
    [
        (302, _FAILED, _UNKNOWN, _UNKNOWN),
        (400, _FAILED, _FAILED, _FAILED),
        (401, _NOT_RUN, _NOT_RUN, _NOT_RUN),
        (403, _FAILED, _FAILED, _FAILED),
        (404, _FAILED, _FAILED, _FAILED),
        (408, _NOT_RUN, _UNKNOWN, _UNKNOWN),
        (409, _FAILED, _FAILED, _UNKNOWN),
        (422, _FAILED, _FAILED, _FAILED),
        (429, _NOT_RUN, _NOT_RUN, _NOT_RUN),
        (500, _NOT_RUN, _UNKNOWN, _UNKNOWN),
        (502, _NOT_RUN, _UNKNOWN, _UNKNOWN),
        (503, _NOT_RUN, _UNKNOWN, _UNKNOWN),
    ],
)
def test_each_status_is_one_request(
    provider: Provider,
    status: int,
    get: type[Exception],
    send: type[Exception],
    keyed: type[Exception],
) -> None:
    provider.then = json_answer(f'{{"why": "{TOKEN}"}}', status, Location="/elsewhere")
    for raised, operation, request, values in (
        (get, "get", "read", {"id": "1"}),
        (send, "send", "make", {"id": "1", "title": "x"}),
        (send, "sendEvent", "closed", {"id": "1"}),
        (keyed, "sendWithKey", "keep", {"title": "x"}),
    ):
        provider.requests.clear()
        with pytest.raises(raised) as caught:
            _run(provider, operation, request, 1, **cast("dict[str, JsonValue]", values))
        assert len(provider.requests) == 1
        assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("behaviour", [lost, reset, cut_after_headers])
def test_an_answer_that_does_not_come_whole(provider: Provider, behaviour: Behaviour) -> None:
    provider.then = behaviour
    with pytest.raises(ToolOutcomeUnknown):
        _run(provider, "send", "make", id="1", title="x")
    with pytest.raises(ToolOutcomeUnknown):
        _run(provider, "sendWithKey", "keep", title="x")
    assert len(provider.requests) == 2


def test_other_content_under_a_key_that_is_known(provider: Provider) -> None:
    provider.then = json_answer("{}", 422)
    with pytest.raises(ToolFailed):
        _run(provider, "sendWithKey", "keep", title="x")
    with pytest.raises(ToolOutcomeUnknown) as caught:
        _run(provider, "sendWithKey", "keep", title="x", attempt=2)
    assert not caught.value.repeatable


def test_the_wait_that_is_asked_for(provider: Provider) -> None:
    provider.then = json_answer("{}", 429, Retry_After="11")
    with pytest.raises(ToolNotRun) as caught:
        _run(provider, "send", "make", id="1", title="x")
    assert caught.value.retry_after_seconds == 11


def test_long_answers_are_cut(provider: Provider) -> None:
    provider.then = json_answer('"' + "x" * 50_000 + '"')
    found = _run(provider, "get", "read", id="1")
    assert found["note"] == "only the first 16,384 bytes"
    assert len(str(found["body"])) == 16_384


def test_tools_are_named_and_described_by_their_request(provider: Provider) -> None:
    environment = _environment(provider.url)
    made = definition_of(environment, "http.send", {"request": "make"})
    assert (made.name, made.description) == ("http_make", "Make a thing.")
    assert made.effect is ToolEffect.NON_IDEMPOTENT_WRITE
    assert made.claims["request"] == f"POST {provider.url}/things/{{id}}"
    keyed = definition_of(environment, "http.sendWithKey", {"request": "keep"})
    assert keyed.effect is ToolEffect.IDEMPOTENT_WRITE
    got = definition_of(environment, "http.get", {"request": "read"})
    assert (got.effect, got.approval) == (ToolEffect.READ, False)


@pytest.mark.parametrize(
    ("operation", "request_name", "told"),
    [
        ("get", "make", "POST is for send"),
        ("send", "read", "GET is for get"),
        ("sendWithKey", "make", "idempotencyHeader is missing"),
        ("sendEvent", "make", "a URL without parameters"),
        ("send", "nothing", "configuration.requests has no 'nothing'"),
    ],
)
def test_a_request_that_does_not_fit_stops_the_worker(
    provider: Provider, operation: str, request_name: str, told: str
) -> None:
    fixed = {"request": request_name}
    with pytest.raises(ConfigurationError, match=told):
        definition_of(_environment(provider.url), f"http.{operation}", fixed)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"url": "https://evil.example/things"}, "the host evil.example is not allowed"),
        ({"url": "http://{id}/things"}, "url"),
        ({"headers": {"Authorization": "Bearer x"}}, "Authorization is not yours"),
        ({"headers": {"Cookie": "x"}}, "Cookie is not yours"),
        ({"headers": {"X-Bad": "a\r\nb"}}, "headers"),
        ({"parameters": {"title": {"type": "string"}}}, "does not declare 'id'"),
        ({"optional": ["id"]}, "it is always needed"),
        ({"query": ["colour"]}, "does not declare 'colour'"),
        ({"parameters": {"id": {"type": "object"}}}, "part of the URL"),
        ({"parameters": {"id": {"type": "words"}}}, "part of the URL"),
        ({"method": "BREW"}, "method"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused(
    provider: Provider, change: dict[str, JsonValue], told: str
) -> None:
    requests = _requests(provider.url)
    read = cast("dict[str, JsonValue]", requests["read"])
    environment = _environment(provider.url, REQUESTS={"read": {**read, "optional": [], **change}})
    with pytest.raises(ConfigurationError, match=told):
        definition_of(environment, "http.get", {"request": "read"})


def test_plain_http_is_for_this_machine_only() -> None:
    environment = _environment("http://things.example")
    with pytest.raises(ConfigurationError, match="it is not encrypted"):
        definition_of(environment, "http.get", {"request": "read"})
