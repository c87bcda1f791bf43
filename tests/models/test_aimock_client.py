"""The litellm client against a model server that is not ours: each answer has its documented result.

Every attempt is exactly one request in the server's own journal.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from email.utils import formatdate
from importlib.util import find_spec
from typing import cast

import pytest

from celeriac.connectors.litellm_client import LiteLlmClient
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.messages import Message, Usage
from celeriac.sessions.model import ModelError, ModelReply, TextDelta
from tests.connectors.requests import Piece, assistant, call, named_tools, request, result, user
from tests.models.aimock import Aimock, Json
from tests.models.dialects import ANTHROPIC, CHAT, DIALECTS, OPENAI_KEY, Dialect
from tests.node_tools import needs_node_tools

pytestmark = [
    needs_node_tools,
    pytest.mark.skipif(find_spec("litellm") is None, reason="needs the extra litellm"),
    # litellm itself warns with every chunk.
    pytest.mark.filterwarnings("ignore"),
]

TEXT = "The quick brown fox jumps over the lazy dog, and over nothing else."
TWO_CALLS: list[Json] = [
    {"id": "call_x", "name": "look_up", "arguments": '{"item":"trowel","deep":{"a":[1,2]}}'},
    {"id": "call_y", "name": "cancel", "arguments": '{"item":"seeds"}'},
]


class Ask:
    """Asks a dialect's model once, and sees in the journal that it did."""

    def __init__(self, aimock: Aimock, loop: asyncio.Runner, dialect: Dialect) -> None:
        self.aimock = aimock
        self.loop = loop
        self.dialect = dialect
        self.client = LiteLlmClient()

    def pieces(self, *messages: Message) -> list[Piece]:
        before = len(self.aimock.journal())
        asked = request(
            *(messages or [user("hi")]),
            model=self.dialect.model,
            tools=named_tools("look_up", "cancel"),
        )

        async def gather() -> list[Piece]:
            return [piece async for piece in self.client.stream(asked)]

        try:
            return self.loop.run(gather())
        finally:
            made = self.aimock.journal()[before:]
            assert [entry["path"] for entry in made] == [self.dialect.path]

    def reply(self, *responses: Json) -> ModelReply:
        self.aimock.in_turn(*responses)
        last = self.pieces()[-1]
        assert isinstance(last, ModelReply)
        return last

    def error(self, *responses: Json) -> ModelError:
        self.aimock.in_turn(*responses)
        with pytest.raises(ModelError) as failure:
            self.pieces()
        return failure.value


@pytest.fixture(params=DIALECTS, ids=lambda dialect: dialect.name)
def ask(request: pytest.FixtureRequest, aimock: Aimock, loop: asyncio.Runner) -> Ask:
    return Ask(aimock, loop, request.param)


def test_text_streams_in_pieces_and_is_whole(ask: Ask) -> None:
    ask.aimock.in_turn({"content": TEXT})
    *deltas, reply = ask.pieces()
    texts = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    assert len(texts) > 1
    assert "".join(texts) == TEXT
    assert isinstance(reply, ModelReply)
    assert (reply.text, reply.finish_reason) == (TEXT, "stop")


@pytest.mark.parametrize("text", ["", "Let me look."], ids=["alone", "after a text"])
@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_ll_01_parallel_calls_keep_their_own_arguments(ask: Ask, text: str, chunk: int) -> None:
    response = {"toolCalls": TWO_CALLS, **({"content": text} if text else {})}
    reply = ask.reply({"response": response, "chunkSize": chunk})
    assert [(one.provider_id, one.name) for one in reply.calls] == [
        ("call_x", "look_up"),
        ("call_y", "cancel"),
    ]
    assert [json.loads(one.arguments) for one in reply.calls] == [
        json.loads(cast("str", one["arguments"])) for one in TWO_CALLS
    ]
    assert (reply.text, reply.finish_reason) == (text, "tool_calls")


def test_results_go_back_beside_their_calls(ask: Ask) -> None:
    first = call("call_a", "look_up", '{"item":"trowel"}')
    second = call("call_b", "cancel", '{"item":"seeds"}')
    ask.aimock.script(
        {
            "match": {"toolCallId": "call_b", "toolResultContains": "no such"},
            "response": {"content": "There are three."},
        }
    )
    last = ask.pieces(
        user("how many?"),
        assistant("Looking.", first, second),
        result("call_a", "look_up", "3"),
        result("call_b", "cancel", "no such order"),
    )[-1]
    assert isinstance(last, ModelReply)
    assert last.text == "There are three."
    [entry] = ask.aimock.journal()
    sent = cast("list[dict[str, object]]", cast("dict[str, object]", entry["body"])["messages"])
    assert [one["tool_call_id"] for one in sent if one["role"] == "tool"] == ["call_a", "call_b"]


def test_ll_03_usage_is_what_the_server_reports(ask: Ask) -> None:
    told = {"prompt_tokens": 1200, "completion_tokens": 300, "input_tokens": 1200}
    usage = ask.reply({"content": TEXT, "usage": {**told, "output_tokens": 300}}).usage
    assert (usage.input_tokens, usage.output_tokens, usage.model_calls) == (1200, 300, 1)
    assert usage.cost_usd is not None


def test_ll_03_usage_of_zero_is_unknown(ask: Ask) -> None:
    zero = dict.fromkeys(("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"), 0)
    assert ask.reply({"content": TEXT, "usage": zero}).usage == Usage(model_calls=1)


@pytest.mark.parametrize(
    "response", [{"content": TEXT}, {"toolCalls": TWO_CALLS}], ids=["text", "calls"]
)
@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_mh_10_a_stream_that_is_cut_gives_nothing(ask: Ask, response: Json, chunks: int) -> None:
    cut = {"response": response, "chunkSize": 10, "truncateAfterChunks": chunks}
    error = ask.error(cut)
    assert error.retryable


def error_of(status: int, message: str = "not now", **more: object) -> dict[str, object]:
    return {"error": {"message": message, "type": "some_error", **more}, "status": status}


@pytest.mark.parametrize("header", [2, 3600, 1.5], ids=str)
def test_ll_05_a_wait_in_seconds_is_passed_on_and_the_next_attempt_succeeds(
    ask: Ask, header: float
) -> None:
    error = ask.error({**error_of(429), "retryAfter": header}, {"content": TEXT})
    assert (error.retryable, error.kind) == (True, FailureKind.BUSY)
    assert error.retry_after_seconds == header
    assert ask.pieces()
    assert ask.aimock.statuses() == [429, 200]


def test_ll_05_a_wait_until_a_date_is_passed_on(ask: Ask) -> None:
    date = formatdate(time.time() + 3600, usegmt=True)
    wait = ask.error({**error_of(429), "retryAfter": date}).retry_after_seconds
    assert wait is not None
    assert 3000 < wait <= 3600


def test_ll_05_a_wait_that_cannot_be_read_is_no_wait(ask: Ask) -> None:
    error = ask.error({**error_of(429), "retryAfter": "soon"})
    assert (error.retryable, error.retry_after_seconds) == (True, None)


@pytest.mark.parametrize("status", [500, 502, 503, 529])
def test_a_server_in_trouble_may_be_asked_again(ask: Ask, status: int) -> None:
    error = ask.error(error_of(status, "Overloaded"))
    assert (error.retryable, error.retry_after_seconds) == (True, None)
    assert "Overloaded" in str(error)


FINAL: Mapping[str, tuple[dict[str, object], FailureKind]] = {
    "400": (error_of(400), FailureKind.BAD_REQUEST),
    "401": (error_of(401, f"Incorrect API key provided: {OPENAI_KEY}"), FailureKind.AUTHENTICATION),
    "403": (error_of(403), FailureKind.AUTHENTICATION),
    "422": (error_of(422), FailureKind.BAD_REQUEST),
}


@pytest.mark.parametrize(("response", "kind"), FINAL.values(), ids=FINAL.keys())
def test_a_refused_request_is_not_sent_again(ask: Ask, response: Json, kind: FailureKind) -> None:
    error = ask.error(response, {"content": TEXT})
    assert (error.retryable, error.kind) == (False, kind)
    assert OPENAI_KEY not in str(error)


@pytest.mark.parametrize(
    ("finish", "shown"),
    [
        ("length", "length"),
        ("something_new", "stop"),
    ],
)
def test_an_answer_with_an_unusual_end_is_shown_with_its_reason(
    ask: Ask, finish: str, shown: str
) -> None:
    reply = ask.reply({"content": TEXT, "finishReason": finish})
    assert (reply.text, reply.finish_reason) == (TEXT, shown)


@pytest.mark.parametrize("dialect", [CHAT, ANTHROPIC], ids=lambda dialect: dialect.name)
def test_a_filtered_answer_is_shown_as_far_as_it_came(
    aimock: Aimock, loop: asyncio.Runner, dialect: Dialect
) -> None:
    """The server ends filtered responses of the other API in a way in which OpenAI's does not."""
    reply = Ask(aimock, loop, dialect).reply({"content": TEXT, "finishReason": "content_filter"})
    assert (reply.text, reply.finish_reason) == (TEXT, "content_filter")


@pytest.mark.parametrize("dialect", [CHAT, ANTHROPIC], ids=lambda dialect: dialect.name)
def test_a_model_that_is_not_there_is_not_asked_again(
    aimock: Aimock, loop: asyncio.Runner, dialect: Dialect
) -> None:
    error = Ask(aimock, loop, dialect).error(error_of(404), {"content": TEXT})
    assert (error.retryable, error.kind) == (False, FailureKind.NOT_FOUND)


def test_a_refusal_is_told_and_not_tried_again(aimock: Aimock, loop: asyncio.Runner) -> None:
    ask = Ask(aimock, loop, ANTHROPIC)
    error = ask.error({"content": "I can't help with that.", "finishReason": "refusal"})
    assert (error.retryable, error.kind) == (False, FailureKind.REFUSAL)
    assert "I can't help with that." in str(error)


def test_what_the_script_does_not_foresee_is_refused(ask: Ask) -> None:
    """Otherwise the counts above would prove nothing."""
    error = ask.error()
    assert "fixture" in str(error)
    assert ask.aimock.statuses() == [503]
