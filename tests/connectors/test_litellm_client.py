"""The litellm client over real HTTP: one request per attempt, and a whole reply or none."""

from __future__ import annotations

import asyncio
import json
import time
from email.utils import formatdate
from importlib.util import find_spec
from typing import cast

import pytest
from pydantic import JsonValue

from celeriac.connectors.litellm_client import LiteLlmClient
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.messages import Message, Role, Usage
from celeriac.sessions.model import ModelError, ModelReply, ReasoningDelta, TextDelta
from tests.connectors.chat_server import (
    USAGE,
    Failure,
    Stream,
    call_delta,
    chat_server,
    chunk,
)
from tests.connectors.requests import (
    Piece,
    assistant,
    call,
    notice,
    request,
    result,
    user,
)
from tests.connectors.talk import KEY, MODEL, Talk

pytestmark = [
    pytest.mark.skipif(find_spec("litellm") is None, reason="needs the extra litellm"),
    # litellm itself warns with every chunk.
    pytest.mark.filterwarnings("ignore"),
]

TOO_LONG = "This model's maximum context length is 128000 tokens. Your messages have 131000."
UNPRICED = "openai/a-model-nobody-knows"
HELLO = [chunk({"role": "assistant", "content": "Hel"}), chunk({"content": "lo"})]
STOP = chunk(finish="stop")


def test_text_streams_and_the_reply_is_whole(talk: Talk) -> None:
    pieces = talk.pieces(Stream([*HELLO, STOP, chunk(usage=USAGE)]))
    assert [piece.text for piece in pieces if isinstance(piece, TextDelta)] == ["Hel", "lo"]
    reply = pieces[-1]
    assert isinstance(reply, ModelReply)
    assert reply.text == "Hello"
    assert reply.finish_reason == "stop"
    assert reply.model == MODEL
    [item] = reply.items
    assert isinstance(item, dict)
    assert item["content"] == "Hello"
    assert item["response_id"] == "chatcmpl-1"


def test_the_request_says_what_it_must(talk: Talk) -> None:
    talk.pieces(Stream([*HELLO, STOP]), tools=["look_up"])
    [body] = talk.server.requests
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]
    assert body["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "look_up",
                "description": "look_up",
                "parameters": {"type": "object"},
            },
        }
    ]


def test_history_goes_out_paired_under_our_own_ids(talk: Talk) -> None:
    summary = Message(seq=0, role=Role.SUMMARY, text="Earlier.", created_at=0)
    first = call("call_a", arguments='{"b": 1,  "a":2}').model_copy(update={"provider_id": "0"})
    second = call("call_b", "cancel", "not json").model_copy(update={"provider_id": "0"})
    messages = [
        summary,
        user("go"),
        assistant("Looking.", first, second),
        result("call_a", "look_up", "found"),
        result("call_b", "cancel", " "),
        assistant(""),
        notice("It was settled."),
        user("and now?"),
    ]
    talk.pieces(Stream([*HELLO, STOP]), messages=messages)
    sent = cast("list[dict[str, JsonValue]]", talk.server.requests[0]["messages"])
    assert [message["role"] for message in sent] == [
        "system",
        "user",
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
        "user",
    ]
    called = cast("list[dict[str, dict[str, str]]]", sent[3]["tool_calls"])
    assert [str(one["id"]) for one in called] == ["call_a", "call_b"]
    assert [message["tool_call_id"] for message in sent[4:6]] == ["call_a", "call_b"]
    assert called[0]["function"]["arguments"] == '{"b": 1,  "a":2}'
    assert json.loads(called[1]["function"]["arguments"]) == {"not_a_json_object": "not json"}
    assert all(message["content"] and str(message["content"]).strip() for message in sent)
    assert "Earlier." in str(sent[1]["content"])
    assert "not from the user" in str(sent[6]["content"])


def test_reasoning_streams_apart_from_the_text(talk: Talk) -> None:
    pieces = talk.pieces(Stream([chunk({"reasoning_content": "Hm."}), *HELLO, STOP]))
    assert ReasoningDelta("Hm.") in pieces
    reply = pieces[-1]
    assert isinstance(reply, ModelReply)
    assert (reply.reasoning, reply.text) == ("Hm.", "Hello")


def test_an_answer_that_a_filter_ended_is_shown_as_far_as_it_came(talk: Talk) -> None:
    reply = talk.reply(*HELLO, chunk(finish="content_filter"))
    assert (reply.text, reply.finish_reason) == ("Hello", "content_filter")


def test_an_answer_that_a_filter_withheld_is_not_tried_again(talk: Talk) -> None:
    error = talk.error(Stream([chunk(finish="content_filter")]))
    assert not error.retryable
    assert "content filter" in str(error)


TWO_CALLS: dict[str, list[dict[str, object]]] = {
    "one index, different ids": [
        call_delta("", call_id="x", name="look_up"),
        call_delta('{"a":1}'),
        call_delta("", call_id="y", name="cancel"),
        call_delta('{"b":2}'),
    ],
    "interleaved, ids at the start": [
        call_delta("", call_id="x", name="look_up"),
        call_delta("", index=1, call_id="y", name="cancel"),
        call_delta('{"b"', index=1),
        call_delta('{"a"'),
        call_delta(":2}", index=1),
        call_delta(":1}"),
    ],
    "one index, no ids": [
        call_delta('{"a":1}', name="look_up"),
        call_delta('{"b":2}', name="cancel"),
    ],
    "ids at the end": [
        call_delta("", name="look_up"),
        call_delta('{"a":1}'),
        call_delta("", call_id="x"),
        call_delta('{"b":2}', index=1, name="cancel"),
        call_delta("", index=1, call_id="y"),
    ],
    "no index": [
        call_delta('{"a":1}', index=None, call_id="x", name="look_up"),
        call_delta('{"b":2}', index=None, call_id="y", name="cancel"),
    ],
    "one id for both": [
        call_delta('{"a":1}', call_id="call_0", name="look_up"),
        call_delta('{"b":2}', index=1, call_id="call_0", name="cancel"),
    ],
}


@pytest.mark.parametrize("deltas", TWO_CALLS.values(), ids=TWO_CALLS.keys())
def test_two_calls_stay_two(talk: Talk, deltas: list[dict[str, object]]) -> None:
    reply = talk.reply(*(chunk(delta) for delta in deltas), chunk(finish="tool_calls"))
    assert [(made.name, made.arguments) for made in reply.calls] == [
        ("look_up", '{"a":1}'),
        ("cancel", '{"b":2}'),
    ]
    assert reply.finish_reason == "tool_calls"


def test_a_call_in_the_chunk_that_ends_the_response_is_not_lost(talk: Talk) -> None:
    reply = talk.reply(
        chunk(call_delta('{"a":1}', call_id="x", name="look_up"), finish="tool_calls")
    )
    assert [made.arguments for made in reply.calls] == ['{"a":1}']


def test_arguments_that_are_no_object_are_the_sessions_to_refuse(talk: Talk) -> None:
    reply = talk.reply(
        chunk(call_delta("[1", call_id="x", name="look_up")), chunk(finish="tool_calls")
    )
    assert [made.arguments for made in reply.calls] == ["[1"]


NAME = chunk(call_delta("", call_id="x", name="look_up"))
WHOLE = chunk(call_delta('{"a":1}'))
CUT = chunk(call_delta('{"b":"', index=1, call_id="y", name="cancel"))

BROKEN: dict[str, Stream] = {
    "nothing at all": Stream([]),
    "text without an end": Stream(HELLO),
    "text, no end marker": Stream(HELLO, done=False),
    "text, connection reset": Stream(HELLO, reset=True),
    "a name and no more": Stream([NAME]),
    "a name, connection reset": Stream([NAME], reset=True),
    "a whole call, no end": Stream([NAME, WHOLE]),
    "the second call cut": Stream([NAME, WHOLE, CUT]),
    "the second call cut, said to be whole": Stream([NAME, WHOLE, CUT, chunk(finish="tool_calls")]),
    "calls at the output limit": Stream([NAME, WHOLE, chunk(finish="length")]),
    "an answer of nothing": Stream([STOP]),
    "an error in the stream": Stream([*HELLO, '{"error": {"message": "overloaded"}}']),
    "garbage": Stream([*HELLO, "{garbage"]),
}


@pytest.mark.parametrize("stream", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_stream_gives_no_reply_and_may_be_tried_again(talk: Talk, stream: Stream) -> None:
    assert talk.error(stream).retryable


def test_a_stream_that_falls_silent_times_out(talk: Talk) -> None:
    error = talk.error(Stream(HELLO, hang=True), timeout_seconds=0.5)
    assert error.retryable


def test_an_abandoned_stream_closes_its_connection(talk: Talk) -> None:
    talk.server.script.append(Stream(HELLO, hang=True))

    async def read_one() -> Piece:
        stream = talk.client.stream(request(user("hi"), model=MODEL))
        first = await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        return first

    assert talk.loop.run(read_one()) == TextDelta("Hel")


@pytest.mark.parametrize(
    ("failure", "retryable", "wait"),
    [
        (Failure(429, headers={"Retry-After": "7"}), True, 7),
        (Failure(429, headers={"retry-after-ms": "1500"}), True, 1.5),
        (Failure(429, headers={"Retry-After": "soon"}), True, None),
        (Failure(408), True, None),
        (Failure(409), True, None),
        (Failure(500), True, None),
        (Failure(502), True, None),
        (Failure(503, headers={"Retry-After": "3"}), True, 3),
        (Failure(529), True, None),
        (Failure(400), False, None),
        (Failure(401, f"Incorrect API key provided: {KEY}"), False, None),
        (Failure(401, "Incorrect API key provided: sk-test-***cdef"), False, None),
        (Failure(403), False, None),
        (Failure(404), False, None),
        (Failure(422), False, None),
        (Failure(400, "flagged by our policy", code="content_policy_violation"), False, None),
        (Failure(400, TOO_LONG, code="context_length_exceeded"), False, None),
    ],
    ids=[
        "429 seconds",
        "429 milliseconds",
        "429 garbage",
        "408",
        "409",
        "500",
        "502",
        "503",
        "529",
        "400",
        "401",
        "401 masked",
        "403",
        "404",
        "422",
        "content policy",
        "context length",
    ],
)
def test_an_error_says_whether_and_when_to_try_again(
    talk: Talk, failure: Failure, retryable: bool, wait: float | None
) -> None:
    error = talk.error(failure)
    assert (error.retryable, error.retry_after_seconds) == (retryable, wait)
    assert error.context_full == (failure.code == "context_length_exceeded")
    assert "sk-test" not in str(error)


def test_a_wait_until_a_date_is_understood(talk: Talk) -> None:
    date = formatdate(time.time() + 3600, usegmt=True)
    wait = talk.error(Failure(429, headers={"Retry-After": date})).retry_after_seconds
    assert wait is not None
    assert 3000 < wait <= 3600


def test_a_server_that_is_not_there_may_be_tried_again(
    loop: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    with chat_server() as gone:
        url = gone.url
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_BASE", url)

    async def ask() -> None:
        async for _piece in LiteLlmClient().stream(request(user("hi"), model=MODEL)):
            pass

    with pytest.raises(ModelError) as failure:
        loop.run(ask())
    assert failure.value.retryable


def test_usage_and_cost_are_what_the_provider_reported(talk: Talk) -> None:
    usage = talk.reply(*HELLO, STOP, chunk(usage=USAGE)).usage
    assert (usage.input_tokens, usage.output_tokens) == (1200, 300)
    assert (usage.cached_tokens, usage.reasoning_tokens) == (1000, 40)
    assert usage.cost_usd is not None
    assert 0 < usage.cost_usd < 0.01


def test_the_cost_of_an_unpriced_model_is_unknown(talk: Talk) -> None:
    usage = talk.reply(*HELLO, STOP, chunk(usage=USAGE), model=UNPRICED).usage
    assert usage.input_tokens == 1200
    assert usage.cost_usd is None


ZERO = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


@pytest.mark.parametrize("end", [[STOP], [STOP, chunk(usage=ZERO)]], ids=["none", "zero"])
def test_usage_that_was_not_reported_is_unknown(talk: Talk, end: list[dict[str, object]]) -> None:
    usage = talk.reply(*HELLO, *end).usage
    assert usage == Usage(model_calls=1)


def test_running_usage_is_not_counted_twice(talk: Talk) -> None:
    running = {"prompt_tokens": 1200, "completion_tokens": 1, "total_tokens": 1201}
    usage = talk.reply(
        chunk({"content": "Hel"}, usage=running), chunk({"content": "lo"}, usage=running), STOP
    ).usage
    assert (usage.input_tokens, usage.output_tokens) == (1200, 1)


def test_a_provider_that_refuses_the_usage_option_is_asked_without_it_next(talk: Talk) -> None:
    error = talk.error(Failure(400, "Unknown parameter: 'stream_options'."))
    assert error.retryable
    assert talk.pieces(Stream([*HELLO, STOP]))
    assert "stream_options" in talk.server.requests[0]
    assert "stream_options" not in talk.server.requests[1]


def test_text_is_storable(talk: Talk) -> None:
    reply = talk.reply(
        '{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        '[{"index":0,"delta":{"content":"a\\ud83d \\u0000 \\\\u0000 \\ud83d\\ude42"}}]}',
        STOP,
    )
    assert reply.text == "a\ufffd \ufffd \\u0000 🙂"


def test_a_streamed_refusal_is_no_empty_answer(talk: Talk) -> None:
    """litellm leaves the words out of its own chunks."""
    pieces = [chunk({"refusal": "I will"}), chunk({"refusal": " not."}), chunk(finish="stop")]
    failed = talk.error(Stream(pieces))
    assert (failed.kind, failed.retryable) == (FailureKind.REFUSAL, False)
    assert str(failed) == "the model refused to answer: I will not."
