"""What a call used, as providers report it: over real HTTP, in every form that was seen (LL-03)."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from celeriac.connectors.litellm_usage import usage_from
from celeriac.sessions.context import request_tokens
from celeriac.sessions.messages import Message, Role, Usage
from celeriac.sessions.model import ModelError, ModelReply
from tests.connectors.chat_server import USAGE, Failure, Json, Stream, chunk
from tests.connectors.requests import request, user
from tests.connectors.talk import KEY, MODEL, Talk, anthropic_block, anthropic_event

pytestmark = [
    pytest.mark.skipif(find_spec("litellm") is None, reason="needs the extra litellm"),
    # litellm itself warns with every chunk.
    pytest.mark.filterwarnings("ignore"),
]

HELLO = [chunk({"role": "assistant", "content": "Hel"}), chunk({"content": "lo"})]
STOP = chunk(finish="stop")
ZERO = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
CLAUDE = "anthropic/claude-sonnet-4-5"


def running(wrote: int) -> dict[str, int]:
    return {"prompt_tokens": 1200, "completion_tokens": wrote, "total_tokens": 1200 + wrote}


REPORTS: dict[str, tuple[list[dict[str, object] | str], int | None, int | None]] = {
    "in a last chunk without choices": ([*HELLO, STOP, chunk(usage=USAGE)], 1200, 300),
    "none": ([*HELLO, STOP], None, None),
    "zero": ([*HELLO, STOP, chunk(usage=ZERO)], None, None),
    "with every chunk": (
        [
            chunk({"content": "a"}, usage=running(1)),
            chunk({"content": "b"}, usage=running(2)),
            STOP,
        ],
        1200,
        2,
    ),
    "with the end and after it": (
        [*HELLO, chunk(finish="stop", usage=running(2)), chunk(usage=running(2))],
        1200,
        2,
    ),
    "after the end marker": ([*HELLO, STOP, "[DONE]", chunk(usage=USAGE)], None, None),
    "zero after a real one": ([*HELLO, STOP, chunk(usage=USAGE), chunk(usage=ZERO)], 1200, 300),
}


@pytest.mark.parametrize(("chunks", "read", "wrote"), REPORTS.values(), ids=REPORTS.keys())
def test_ll_03_usage_is_read_wherever_it_comes_and_never_made_up(
    talk: Talk, chunks: list[dict[str, object] | str], read: int | None, wrote: int | None
) -> None:
    reply = talk.reply(*chunks)
    assert reply.text
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (read, wrote)
    assert (reply.usage.cost_usd is None) == (read is None)
    counted = reply.usage.of_one_call()
    assert (counted.uncounted_calls, counted.unpriced_calls) == ((1, 1) if read is None else (0, 0))


@pytest.mark.parametrize(("chunks", "read"), [(one[0], one[1]) for one in REPORTS.values()])
def test_ll_03_the_size_of_the_next_request_is_the_reported_one_else_an_estimate_never_zero(
    talk: Talk, chunks: list[dict[str, object] | str], read: int | None
) -> None:
    reply = talk.reply(*chunks)
    answer = Message(seq=1, role=Role.ASSISTANT, text=reply.text, created_at=0, usage=reply.usage)
    tokens = request_tokens(request(user("x" * 700), answer, user("y" * 70), model=MODEL))
    beside = 20 + 5 * 3 + 10
    assert tokens in (range(1200, 1200 + beside) if read else range(200, 200 + beside + 50))


def test_ll_03_a_provider_that_rejects_the_option_is_called_without_it(talk: Talk) -> None:
    error = talk.error(Failure(400, "Unrecognized request argument supplied: stream_options"))
    assert (error.retryable, error.retry_after_seconds) == (True, 0)
    assert talk.pieces(Stream([*HELLO, STOP]))
    assert ["stream_options" in body for body in talk.server.requests] == [True, False]


def test_the_model_is_named_as_the_provider_names_it(talk: Talk) -> None:
    reply = talk.reply(*HELLO, STOP)
    assert (reply.model, reply.reported_model) == (MODEL, "gpt-4o-mini-2024-07-18")


def claude_events(start: Json, end: Json) -> list[str]:
    message = {"id": "m", "type": "message", "role": "assistant", "content": []}
    message["model"] = "claude-sonnet-4-5-20250929"
    return [
        anthropic_event("message_start", message={**message, "usage": start}),
        *anthropic_block(
            0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Certainly."}
        ),
        anthropic_event("message_delta", delta={"stop_reason": "end_turn"}, usage=end),
        anthropic_event("message_stop"),
    ]


SPLIT = {"input_tokens": 10, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 200}


@pytest.fixture
def claude(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> Talk:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_BASE", talk.server.url.removesuffix("/v1"))
    return talk


@pytest.mark.parametrize("repeated", [False, True], ids=["at the start", "at both ends"])
def test_anthropics_three_parts_of_the_input_are_one_input(claude: Talk, repeated: bool) -> None:
    end = {"output_tokens": 50, **(SPLIT if repeated else {})}
    events = claude_events({**SPLIT, "output_tokens": 1}, end)
    reply = claude.pieces(Stream(events, done=False), model=CLAUDE)[-1]
    assert isinstance(reply, ModelReply)
    assert reply.usage.model_copy(update={"cost_usd": None}) == Usage(
        input_tokens=1210,
        output_tokens=50,
        cached_tokens=1000,
        cache_write_tokens=200,
        reasoning_tokens=0,
        model_calls=1,
    )
    # 10 at the full price, 1000 at a tenth, 200 at five quarters; 50 written at five times.
    price = 3e-6
    assert reply.usage.cost_usd == pytest.approx((10 + 100 + 250 + 50 * 5) * price)
    assert reply.reported_model == "claude-sonnet-4-5-20250929"


FAILING = {
    "cut after a report": (Stream([chunk({"content": "Hel"}, usage=running(1))]), 1200),
    "filtered": (Stream([chunk(finish="content_filter"), chunk(usage=USAGE)]), 1200),
    "an error after a report": (
        Stream([chunk({"content": "a"}, usage=running(1)), '{"error": {"message": "overloaded"}}']),
        1200,
    ),
}


@pytest.mark.parametrize(("stream", "read"), FAILING.values(), ids=FAILING.keys())
def test_a_failed_attempt_says_what_it_used(talk: Talk, stream: Stream, read: int) -> None:
    usage = talk.error(stream).usage
    assert usage is not None
    assert usage.input_tokens == read


def test_a_refused_request_used_nothing(talk: Talk) -> None:
    error: ModelError = talk.error(Failure(429))
    assert error.usage is None


class Prices:
    """litellm's prices, as far as a test needs them."""

    def cost_per_token(self, *, model: str, **_: object) -> tuple[float, float]:
        return {"azure/gpt-4o-2024-11-20": (0.5, 0.25), "free": (0.0, 0.0)}[model]


def test_a_report_of_the_responses_api_is_read_likewise() -> None:
    report = {
        "input_tokens": 1200,
        "input_tokens_details": {"cached_tokens": 1000},
        "output_tokens": 300,
        "output_tokens_details": {"reasoning_tokens": 256},
    }
    usage = usage_from(report, Prices(), "azure/our-deployment", "gpt-4o-2024-11-20")
    assert usage == Usage(
        input_tokens=1200,
        output_tokens=300,
        cached_tokens=1000,
        reasoning_tokens=256,
        cost_usd=0.75,
        model_calls=1,
    )
    assert usage_from(report, Prices(), "openai/unmapped").cost_usd is None
    assert usage_from(report, Prices(), "free").cost_usd is None, "never 0"
