"""OpenAI's Responses API over real HTTP: whole replies or none, and items that go back as they came."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from importlib.util import find_spec
from typing import cast

import pytest

from celeriac.connectors.litellm_client import LiteLlmClient
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.messages import Usage
from celeriac.sessions.model import ModelError, ModelReply, ReasoningDelta, TextDelta
from celeriac.sessions.model_settings import ModelSettings
from tests.connectors.chat_server import Failure, Stream, chunk
from tests.connectors.requests import Piece, reply_of, request, result, user
from tests.connectors.responses import (
    REASONER,
    Item,
    called,
    events_of,
    reasoning,
    refusal,
    said,
    stored,
    stream,
)
from tests.connectors.talk import MODEL, Talk

pytestmark = [
    pytest.mark.skipif(find_spec("litellm") is None, reason="needs the extra litellm"),
    # litellm itself warns with every chunk.
    pytest.mark.filterwarnings("ignore"),
]

HELLO = stream(said("Hello."))
SHAPES: dict[str, list[Item]] = {
    "reasoning, text": [reasoning(), said("I looked.")],
    "reasoning, call": [reasoning(1, "I should look."), called("call_abc")],
    "parallel calls": [reasoning(), called("call_a"), called("call_b", "{}")],
    "two reasoning items": [
        reasoning(1),
        reasoning(2),
        said("Wait.", phase="commentary"),
        called("x"),
    ],
    "text between": [
        reasoning(1),
        said("First."),
        reasoning(2),
        called("fc_one"),
        called("fc_two"),
    ],
}


def ask(talk: Talk, *items: Item) -> ModelReply:
    return reply_of(talk.pieces(stream(*items), model=REASONER, tools=["look_up"]))


def sent(talk: Talk, at: int = -1) -> list[Item]:
    """The input items of a request, as they came over the wire."""
    return cast("list[Item]", talk.server.requests[at]["input"])


def test_text_and_reasoning_stream_and_the_reply_is_whole(talk: Talk) -> None:
    items = [reasoning(1, "Let me see."), said("Hello there."), called("call_abc")]
    pieces = talk.pieces(stream(*items), model=REASONER)
    assert "".join(p.text for p in pieces if isinstance(p, ReasoningDelta)) == "Let me see."
    assert "".join(p.text for p in pieces if isinstance(p, TextDelta)) == "Hello there."
    reply = reply_of(pieces)
    assert (reply.text, reply.reasoning) == ("Hello there.", "Let me see.")
    assert json.dumps(reply.items) == json.dumps(items), "unknown fields, nulls and order stay"
    assert [(c.name, c.arguments, c.provider_id) for c in reply.calls] == [
        ("look_up", '{"b":  1, "a": 2}', "call_abc")
    ]
    assert (reply.finish_reason, reply.items_api) == ("tool_calls", "responses")
    assert (reply.model, reply.reported_model) == (REASONER, "gpt-5-mini-2025-08-07")


def test_usage_and_cost_are_what_the_provider_reported(talk: Talk) -> None:
    usage = ask(talk, said("Hi.")).usage
    assert usage == Usage(
        input_tokens=1200,
        output_tokens=300,
        cached_tokens=1000,
        reasoning_tokens=40,
        cost_usd=usage.cost_usd,
        model_calls=1,
    )
    assert usage.cost_usd == pytest.approx(200 * 0.25e-6 + 1000 * 0.025e-6 + 300 * 2e-6)


def test_the_request_says_what_it_must(talk: Talk) -> None:
    settings = ModelSettings(
        reasoning_effort="high",
        max_output_tokens=900,
        extra={"include": ["message.output_text.logprobs"], "store": True, "metadata": {"a": "b"}},
    )
    talk.pieces(HELLO, model=REASONER, tools=["look_up"], settings=settings)
    assert talk.server.paths == ["/v1/responses"]
    [body] = talk.server.requests
    assert body["store"] is False
    assert body["stream"] is True
    assert body["include"] == ["message.output_text.logprobs", "reasoning.encrypted_content"]
    assert body["instructions"] == "Be brief."
    assert body["input"] == [{"role": "user", "content": "hi"}]
    assert (body["reasoning"], body["max_output_tokens"]) == ({"effort": "high"}, 900)
    assert body["metadata"] == {"a": "b"}
    assert body["tools"] == [
        {
            "type": "function",
            "name": "look_up",
            "description": "look_up",
            "parameters": {"type": "object"},
            "strict": False,
        }
    ]


@pytest.mark.parametrize(
    ("model", "api", "path"),
    [
        ("openai/gpt-5-mini", None, "/v1/responses"),
        ("openai/gpt-5-mini", "chat", "/v1/chat/completions"),
        ("openai/o3", None, "/v1/responses"),
        ("openai/gpt-4o-mini", None, "/v1/chat/completions"),
        ("openai/gpt-4o-mini", "responses", "/v1/responses"),
        ("openai/a-local-model", None, "/v1/chat/completions"),
    ],
)
def test_reasoning_models_of_openai_use_responses_and_all_others_chat(
    talk: Talk, model: str, api: str | None, path: str
) -> None:
    chat = Stream([chunk({"content": "Hello."}), chunk(finish="stop")])
    answer = HELLO if path.endswith("responses") else chat
    settings = ModelSettings.model_validate({"api": api})
    assert reply_of(talk.pieces(answer, model=model, settings=settings)).text == "Hello."
    assert talk.server.paths == [path]


@pytest.mark.parametrize("items", SHAPES.values(), ids=SHAPES.keys())
def test_mh_12_items_go_back_byte_for_byte_and_in_order(talk: Talk, items: list[Item]) -> None:
    history = [user("go"), *stored(ask(talk, *items)), user("and now?")]
    talk.pieces(HELLO, messages=history, model=REASONER, tools=["look_up"])
    assert json.dumps(sent(talk)[1 : 1 + len(items)]) == json.dumps(items)
    results = [item for item in sent(talk) if item.get("type") == "function_call_output"]
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    assert [item["call_id"] for item in results] == calls


@pytest.mark.parametrize("items", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("model", ["openai/gpt-5", MODEL])
def test_mh_12_to_another_model_goes_what_was_said_and_called_and_no_reasoning(
    talk: Talk, items: list[Item], model: str
) -> None:
    reply = ask(talk, *items)
    history = [user("go"), *stored(reply), user("and now?")]
    chat = Stream([chunk({"content": "Hm."}), chunk(finish="stop")])
    talk.pieces(chat if model == MODEL else HELLO, messages=history, model=model, tools=["look_up"])
    body = json.dumps(talk.server.requests[-1])
    assert "gAAAAAB" not in body
    assert "rs_1" not in body
    for number, _ in enumerate(reply.calls):
        assert body.count(f'"call_{number}"') == 2, "the call and its result, under our own id"
    assert all(part in body for part in reply.text.split("\n\n"))


def test_mh_12_back_with_the_first_model_its_items_are_replayed_again(talk: Talk) -> None:
    items = SHAPES["parallel calls"]
    first = stored(ask(talk, *items))
    chat = Stream([chunk({"content": "Between."}), chunk(finish="stop")])
    between = stored(reply_of(talk.pieces(chat, messages=[user("go"), *first], model=MODEL)))
    history = [user("go"), *first, *between, user("again")]
    talk.pieces(HELLO, messages=history, model=REASONER)
    assert json.dumps(sent(talk)[1 : 1 + len(items)]) == json.dumps(items)
    assert {"role": "assistant", "content": "Between."} in sent(talk)


def test_mh_06_ids_that_come_again_are_ours_and_match_their_results(talk: Talk) -> None:
    """Turn 1 and 2 use one id; turn 3 uses it twice in a response; turn 4 has no ids at all."""
    history = [user("go")]
    expected: list[tuple[str, ...]] = [
        ("call_0",),
        ("call_1",),
        ("call_2", "call_3"),
        ("call_4", "call_5"),
    ]
    turns = [
        [called("call_0")],
        [called("call_0")],
        [called("call_0"), called("call_0", "{}")],
        [called(""), called("", "{}")],
    ]
    seen = 0
    for items in turns:
        reply = reply_of(talk.pieces(stream(*items), messages=history, model=REASONER))
        history += [*stored(reply, seen), user("go on")]
        seen += len(reply.calls)
    talk.pieces(HELLO, messages=history, model=REASONER)
    made = [str(i["call_id"]) for i in sent(talk) if i.get("type") == "function_call"]
    answered = [str(i["call_id"]) for i in sent(talk) if i.get("type") == "function_call_output"]
    assert made == answered
    assert made == [one for turn in expected for one in turn]
    found = [str(i["output"]) for i in sent(talk) if i.get("type") == "function_call_output"]
    assert found == [f"found call_{number}" for number in range(6)]


ENDS: dict[str, tuple[Stream, FailureKind, bool]] = {
    "cut before the end": (
        stream(reasoning(), said("Hel"), called("call_a"), end=""),
        FailureKind.BROKEN,
        True,
    ),
    "cut within a call": (
        Stream(events_of([called("call_a")], end="")[:2], done=False, reset=True),
        FailureKind.UNAVAILABLE,
        True,
    ),
    "nothing but reasoning": (stream(reasoning()), FailureKind.BROKEN, True),
    "nothing at all": (stream(), FailureKind.BROKEN, True),
    "limit within a call": (
        stream(
            called("call_a", '{"a', status="incomplete"),
            end="incomplete",
            incomplete_details={"reason": "max_output_tokens"},
        ),
        FailureKind.BROKEN,
        True,
    ),
    "a refusal": (stream(refusal("I will not.")), FailureKind.REFUSAL, False),
    "filtered": (
        stream(end="incomplete", incomplete_details={"reason": "content_filter"}),
        FailureKind.CONTENT_POLICY,
        False,
    ),
    "failed: rate": (
        stream(end="failed", error={"code": "rate_limit_exceeded", "message": "slow down"}),
        FailureKind.BUSY,
        True,
    ),
    "failed: server": (
        stream(said("Hel"), end="failed", error={"code": "server_error", "message": "boom"}),
        FailureKind.BROKEN,
        True,
    ),
    "an error event": (
        Stream(
            [*events_of([], end=""), {"type": "error", "code": "server_error", "message": "boom"}],
            done=False,
        ),
        FailureKind.BROKEN,
        True,
    ),
    "completed as failed": (
        stream(said("Hel"), status="failed"),
        FailureKind.BROKEN,
        True,
    ),
    "no name": (stream(called("call_a", name="")), FailureKind.BROKEN, True),
}


@pytest.mark.parametrize("answer", ENDS.values(), ids=ENDS.keys())
def test_mh_10_of_a_broken_response_nothing_is_used(
    talk: Talk, answer: tuple[Stream, FailureKind, bool]
) -> None:
    script, kind, retryable = answer
    failed = talk.error(script, model=REASONER)
    assert (failed.kind, failed.retryable) == (kind, retryable)


def test_a_refusal_is_told_in_the_models_words_and_counts_what_it_used(talk: Talk) -> None:
    failed = talk.error(stream(refusal("I will not do that.")), model=REASONER)
    assert str(failed) == "the model refused to answer: I will not do that."
    assert failed.usage is not None
    assert failed.usage.output_tokens == 300


def test_an_answer_that_reached_the_limit_is_kept_and_says_so(talk: Talk) -> None:
    answer = stream(
        said("As far as"), end="incomplete", incomplete_details={"reason": "max_output_tokens"}
    )
    reply = reply_of(talk.pieces(answer, model=REASONER))
    assert (reply.text, reply.finish_reason) == ("As far as", "length")


def test_two_messages_of_one_response_are_parted_in_the_stream_and_in_the_text(talk: Talk) -> None:
    items = [said("First.", 1, phase="commentary"), said("Then.", 2)]
    pieces = talk.pieces(stream(*items), model=REASONER)
    shown = "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))
    assert shown == reply_of(pieces).text == "First.\n\nThen."


def test_a_setting_that_the_model_does_not_take_is_an_error_that_names_it(talk: Talk) -> None:
    settings = ModelSettings(temperature=0.3)
    with pytest.raises(ModelError, match="temperature") as failure:
        _gather(talk, settings)
    assert (failure.value.kind, failure.value.retryable) == (FailureKind.UNSUPPORTED, False)
    assert talk.server.requests == []


def _gather(talk: Talk, settings: ModelSettings) -> list[Piece]:
    from dataclasses import replace  # noqa: PLC0415

    asked = replace(request(user("hi"), model=REASONER), settings=settings)

    async def gather() -> list[Piece]:
        return [piece async for piece in talk.client.stream(asked)]

    return talk.loop.run(gather())


def test_a_server_of_ones_own_without_responses_is_asked_over_chat_next(talk: Talk) -> None:
    failed = talk.error(Failure(404, "Not Found"), model=REASONER)
    assert (failed.retryable, failed.retry_after_seconds) == (True, 0)
    chat = Stream([chunk({"content": "Hello."}), chunk(finish="stop")])
    assert reply_of(talk.pieces(chat, model=REASONER)).text == "Hello."
    assert talk.server.paths == ["/v1/responses", "/v1/chat/completions"]
    assert not talk.error(Failure(404, "no such model"), model=REASONER).retryable


def test_stopping_closes_the_stream(talk: Talk) -> None:
    talk.server.script.append(
        Stream(events_of([said("Hello there.")], end="")[:3], done=False, hang=True)
    )
    asked = request(user("hi"), model=REASONER)

    async def stop_after_the_first() -> Sequence[Piece]:
        pieces = LiteLlmClient().stream(asked)
        first = await anext(pieces)
        await asyncio.wait_for(pieces.aclose(), 5)  # type: ignore[attr-defined]
        return [first]

    assert [
        piece.text
        for piece in talk.loop.run(stop_after_the_first())
        if isinstance(piece, TextDelta)
    ]


def test_a_result_without_text_is_not_blank(talk: Talk) -> None:
    reply = ask(talk, called("call_abc"))
    message, _ = stored(reply)
    history = [user("go"), message, result("call_0", "look_up", "  ")]
    talk.pieces(HELLO, messages=history, model=REASONER)
    assert sent(talk)[-1]["output"] == "(the tool returned nothing)"
