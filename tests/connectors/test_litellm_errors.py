"""Errors of providers, over real HTTP: what is tried again, when, and in which words."""

from __future__ import annotations

import time
from email.utils import formatdate
from importlib.util import find_spec

import pytest

from celeriac.connectors.litellm_client import LiteLlmClient
from celeriac.connectors.litellm_errors import as_model_error
from celeriac.connectors.retry_after import retry_after_seconds, retry_delay_in
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.model import ModelError
from tests.connectors.chat_server import Failure, Stream, chunk
from tests.connectors.requests import request, user
from tests.connectors.talk import KEY, Talk

pytestmark = [
    pytest.mark.skipif(find_spec("litellm") is None, reason="needs the extra litellm"),
    # litellm itself warns with every chunk.
    pytest.mark.filterwarnings("ignore"),
]

K = FailureKind
PASSING = {K.BUSY, K.UNAVAILABLE, K.TIMEOUT, K.BROKEN}
TOO_LONG = "This model's maximum context length is 128000 tokens. Your messages have 131000."
TPM = "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 90000."

ANSWERS: dict[str, tuple[Failure, FailureKind]] = {
    "408": (Failure(408), K.TIMEOUT),
    "409": (Failure(409), K.UNAVAILABLE),
    "425": (Failure(425), K.UNAVAILABLE),
    "429": (Failure(429, "Rate limit reached"), K.BUSY),
    "500": (Failure(500), K.UNAVAILABLE),
    "502": (Failure(502), K.UNAVAILABLE),
    "503": (Failure(503), K.UNAVAILABLE),
    "504": (Failure(504), K.TIMEOUT),
    "520": (Failure(520), K.UNAVAILABLE),
    "529": (Failure(529), K.BUSY),
    "400": (Failure(400), K.BAD_REQUEST),
    "401": (Failure(401, f"Incorrect API key provided: {KEY}"), K.AUTHENTICATION),
    "402": (Failure(402), K.QUOTA),
    "403": (Failure(403), K.AUTHENTICATION),
    "404": (Failure(404, "The model `gpt-9` does not exist", code="model_not_found"), K.NOT_FOUND),
    "413": (Failure(413, "Request Entity Too Large"), K.TOO_LARGE),
    "422": (Failure(422), K.BAD_REQUEST),
    "no quota left": (
        Failure(429, "You exceeded your current quota", code="insufficient_quota"),
        K.QUOTA,
    ),
    "no money left": (Failure(400, "Your credit balance is too low to access the API."), K.QUOTA),
    "content policy": (Failure(400, "flagged", code="content_policy_violation"), K.CONTENT_POLICY),
    "azure's filter": (Failure(400, "filtered", code="content_filter"), K.CONTENT_POLICY),
    "parameter": (
        Failure(400, "Unsupported parameter: 'top_p'", code="unsupported_parameter"),
        K.UNSUPPORTED,
    ),
    "value": (Failure(400, "Unsupported value: 'top_p'", code="unsupported_value"), K.UNSUPPORTED),
    "context length": (Failure(400, TOO_LONG, code="context_length_exceeded"), K.TOO_LARGE),
    "more than a minute's tokens": (Failure(429, TPM, code="rate_limit_exceeded"), K.TOO_LARGE),
}


@pytest.mark.parametrize(("answer", "kind"), ANSWERS.values(), ids=ANSWERS.keys())
def test_errors_are_sorted_by_what_can_be_done(
    talk: Talk, answer: Failure, kind: FailureKind
) -> None:
    error = talk.error(answer)
    assert error.kind is kind
    assert error.retryable == (kind in PASSING)
    assert error.context_full == (kind is K.TOO_LARGE)


ELSEWHERE = {
    **{str(status): (Failure(status), K.UNAVAILABLE) for status in (409, 425, 500, 502, 503)},
    **{str(status): (Failure(status), K.AUTHENTICATION) for status in (401, 403)},
    "404": (Failure(404), K.NOT_FOUND),
    "422": (Failure(422), K.BAD_REQUEST),
    "429": (Failure(429, headers={"Retry-After": "7"}), K.BUSY),
    "529": (Failure(529, "Overloaded"), K.BUSY),
    "413": (Failure(413, "Request is too large", code="request_too_large"), K.TOO_LARGE),
    "prompt": (Failure(400, "prompt is too long: 210000 tokens > 200000 maximum"), K.TOO_LARGE),
    "no money": (Failure(400, "Your credit balance is too low"), K.QUOTA),
}


@pytest.mark.parametrize("model", ["anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-flash"])
@pytest.mark.parametrize(("answer", "kind"), ELSEWHERE.values(), ids=ELSEWHERE.keys())
def test_other_providers_errors_are_sorted_alike_and_their_clients_do_not_retry(
    talk: Talk,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    answer: Failure,
    kind: FailureKind,
) -> None:
    for name in ("ANTHROPIC", "GEMINI"):
        monkeypatch.setenv(f"{name}_API_KEY", KEY)
        monkeypatch.setenv(f"{name}_API_BASE", talk.server.url.removesuffix("/v1"))
    with pytest.raises(ModelError) as failure:
        talk.pieces(answer, model=model)  # which also counts the requests
    error = failure.value
    assert (error.kind, error.retryable) == (kind, kind in PASSING)
    assert error.retry_after_seconds == (7 if answer.status == 429 else None)
    assert str(error).startswith(("Anthropic: ", "Google: "))


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("openai/gpt-4o-mini", K.AUTHENTICATION),
        ("anthropic/claude-sonnet-4-5", K.AUTHENTICATION),
        ("gemini/gemini-2.5-flash", K.AUTHENTICATION),
        ("nobody/knows-this", K.NOT_FOUND),
    ],
)
def test_without_a_key_or_a_provider_no_request_is_made_nor_tried_again(
    talk: Talk, monkeypatch: pytest.MonkeyPatch, model: str, kind: FailureKind
) -> None:
    for name in ("OPENAI", "ANTHROPIC", "GEMINI", "GOOGLE"):
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)
    for name in ("OPENAI_API_BASE", "OPENAI_BASE_URL"):
        # A server of one's own is asked without a key.
        monkeypatch.delenv(name, raising=False)

    async def ask() -> None:
        async for _piece in LiteLlmClient().stream(request(user("hi"), model=model)):
            pass

    with pytest.raises(ModelError) as failure:
        talk.loop.run(ask())
    error = failure.value
    assert (error.kind, error.retryable) == (kind, False)
    assert "Traceback" not in str(error)
    assert talk.server.requests == []


DATE_IN_THE_PAST = "Wed, 21 Oct 2015 07:28:00 GMT"

WAITS: dict[str, tuple[dict[str, str], float | None]] = {
    "seconds": ({"Retry-After": "7"}, 7),
    "milliseconds": ({"retry-after-ms": "1500"}, 1.5),
    "milliseconds win": ({"Retry-After": "2", "retry-after-ms": "1500"}, 1.5),
    "an hour": ({"Retry-After": "3600"}, 3600),
    "a date that is over": ({"Retry-After": DATE_IN_THE_PAST}, 0),
    "garbage": ({"Retry-After": "soon"}, None),
    "negative": ({"Retry-After": "-3"}, None),
    "not a number": ({"Retry-After": "nan"}, None),
    "none": ({}, None),
}


@pytest.mark.parametrize(("headers", "wait"), WAITS.values(), ids=WAITS.keys())
@pytest.mark.parametrize("status", [429, 503, 529])
def test_ll_05_the_wait_that_a_provider_asks_for_is_read(
    talk: Talk, status: int, headers: dict[str, str], wait: float | None
) -> None:
    error = talk.error(Failure(status, headers=headers))
    assert (error.retryable, error.retry_after_seconds) == (True, wait)


def test_ll_05_a_wait_until_a_date_is_read() -> None:
    now = time.time()
    wait = retry_after_seconds({"retry-after": formatdate(now + 90, usegmt=True)}, now)
    assert wait == pytest.approx(90, abs=1)


def test_ll_05_googles_wait_is_in_the_error_itself() -> None:
    assert retry_delay_in('{"@type": "…RetryInfo", "retryDelay": "34.5s"}') == 34.5
    assert retry_delay_in('b\'{\\n "retryDelay": "3s"}\'') == 3
    assert retry_delay_in("no such thing") is None


def test_an_error_that_is_final_names_no_wait(talk: Talk) -> None:
    answer = Failure(429, code="insufficient_quota", headers={"Retry-After": "7"})
    assert talk.error(answer).retry_after_seconds is None


def test_an_error_within_the_stream_is_sorted_like_one_before_it(talk: Talk) -> None:
    hello = chunk({"role": "assistant", "content": "Hel"})
    full = {"error": {"message": TOO_LONG, "code": "context_length_exceeded"}}
    error = talk.error(Stream([hello, full]))
    assert (error.kind, error.retryable) == (K.TOO_LARGE, False)
    error = talk.error(Stream([hello, '{"error": {"message": "The server is overloaded"}}']))
    assert (error.kind, error.retryable) == (K.BROKEN, True)
    assert str(error).count("overloaded") == 1, "said once"


@pytest.mark.parametrize(
    "stream",
    [
        Stream([chunk({"content": "Hel"})]),
        Stream([chunk({"content": "Hel"})], done=False),
        Stream([chunk({"content": "Hel"})], reset=True),
        Stream([]),
    ],
    ids=["no finish", "no end", "reset", "nothing"],
)
def test_a_stream_that_was_cut_is_broken(talk: Talk, stream: Stream) -> None:
    error = talk.error(stream)
    assert (error.kind, error.retryable) == (K.BROKEN, True)


def test_anthropics_overload_is_busy() -> None:
    overloaded = "AnthropicError - {'type': 'overloaded_error', 'message': 'Overloaded'}"
    assert as_model_error(RuntimeError(overloaded)).kind is K.BUSY


WORDS = {
    "litellm.RateLimitError: RateLimitError: OpenAIException - Rate limit reached": (
        "OpenAI: Rate limit reached"
    ),
    'litellm.AuthenticationError: AnthropicException - {"type":"error","error":{"type":'
    '"authentication_error","message":"invalid x-api-key"}}': "Anthropic: invalid x-api-key",
    'litellm.BadRequestError: GeminiException BadRequestError - b\'{"error": {"code": 400}}\'': (
        'Gemini: b\'{"error": {"code": 400}}\''
    ),
    "litellm.InternalServerError: AnthropicException - Overloaded. Handle with "
    "`litellm.InternalServerError`.": "Anthropic: Overloaded",
    "": "RuntimeError",
    "x" * 700: "x" * 600 + "…",
}


@pytest.mark.parametrize(("raw", "words"), WORDS.items(), ids=lambda text: text[:40])
def test_the_words_are_the_providers_own(raw: str, words: str) -> None:
    assert str(as_model_error(RuntimeError(raw))) == words
