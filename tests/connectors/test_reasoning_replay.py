"""Reasoning goes back to who wrote it exactly as it came, and to nobody else (MH-12)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from typing import cast

import pytest
from pydantic import JsonValue

from celeriac.sessions.codec import read_record, write_record
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.model import ModelReply
from celeriac.sessions.model_settings import ModelSettings
from tests.connectors.chat_server import Stream, chunk
from tests.connectors.requests import call, result, user
from tests.connectors.talk import KEY, MODEL, Talk, anthropic_block, anthropic_event

pytestmark = [
    pytest.mark.skipif(find_spec("litellm") is None, reason="needs the extra litellm"),
    # litellm itself warns with every chunk.
    pytest.mark.filterwarnings("ignore"),
]

CLAUDE = "anthropic/claude-sonnet-4-5"
OTHER_CLAUDE = "anthropic/claude-opus-4-5"

Block = dict[str, JsonValue]


def thinking(text: str, signature: str) -> Block:
    return {"type": "thinking", "thinking": text, "signature": signature}


REDACTED: Block = {"type": "redacted_thinking", "data": "c2VjcmV0"}
TEXT: Block = {"type": "text", "text": "I will look."}
CALL: Block = {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {"a": 1}}
SECOND: Block = {"type": "tool_use", "id": "toolu_2", "name": "look_up", "input": {"a": 2}}
SIGNED = thinking("Let me look.\n", "c2lnbmF0dXJl+/==")

SHAPES: dict[str, list[Block]] = {
    "thinking": [SIGNED, CALL],
    "thinking, redacted, text": [SIGNED, REDACTED, TEXT, CALL],
    "redacted first": [REDACTED, SIGNED, CALL],
    "no text but a signature": [thinking("", "bm8gdGV4dA=="), CALL],
    "two": [SIGNED, thinking("And more.", "c2Vjb25k"), TEXT, CALL],
    "parallel calls": [SIGNED, CALL, SECOND],
}


def events_of(blocks: Sequence[Block]) -> list[str]:
    """The stream in which Anthropic sends these blocks."""
    start = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "claude"}
    events = [anthropic_event("message_start", message={**start, "usage": {"input_tokens": 10}})]
    for index, block in enumerate(blocks):
        events += _block_events(index, block)
    end = {"stop_reason": "tool_use"}
    events.append(anthropic_event("message_delta", delta=end, usage={"output_tokens": 20}))
    return [*events, anthropic_event("message_stop")]


def _block_events(index: int, block: Block) -> list[str]:
    match block["type"]:
        case "thinking":
            text = str(block["thinking"])
            pieces = [text[:5], text[5:]] if text else []
            return anthropic_block(
                index,
                {"type": "thinking", "thinking": "", "signature": ""},
                *({"type": "thinking_delta", "thinking": piece} for piece in pieces),
                {"type": "signature_delta", "signature": block["signature"]},
            )
        case "text":
            delta = {"type": "text_delta", "text": block["text"]}
            return anthropic_block(index, {"type": "text", "text": ""}, delta)
        case "tool_use":
            partial = json.dumps(block["input"])
            delta = {"type": "input_json_delta", "partial_json": partial}
            return anthropic_block(index, {**block, "input": {}}, delta)
        case _:
            return anthropic_block(index, dict(block))


@pytest.fixture
def claude(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> Talk:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_BASE", talk.server.url.removesuffix("/v1"))
    return talk


def stored(reply: ModelReply) -> list[Message]:
    """The response as a session keeps it, with a result for each call, from a store and back."""
    ids = [f"call_{number}" for number, _ in enumerate(reply.calls)]
    response = Message(
        seq=1,
        role=Role.ASSISTANT,
        text=reply.text,
        calls=tuple(
            call(one, made.name, made.arguments).model_copy(
                update={"provider_id": made.provider_id}
            )
            for one, made in zip(ids, reply.calls, strict=True)
        ),
        items=tuple(reply.items),
        model=reply.model,
        created_at=0,
    )
    again = read_record(Message, write_record(response))
    assert json.dumps(again.items) == json.dumps(response.items), "not one byte is another"
    return [user("go"), again, *(result(one, "look_up", "found") for one in ids)]


def sent_blocks(talk: Talk) -> list[Block]:
    """What the last request said that the assistant had said."""
    messages = cast("list[dict[str, JsonValue]]", talk.server.requests[-1]["messages"])
    (content,) = [message["content"] for message in messages if message["role"] == "assistant"]
    return cast("list[Block]", content)


@pytest.mark.parametrize("blocks", SHAPES.values(), ids=SHAPES.keys())
def test_mh_12_reasoning_is_replayed_as_it_came(claude: Talk, blocks: list[Block]) -> None:
    history = stored(claude.reply(*events_of(blocks), model=CLAUDE))
    claude.pieces(Stream(events_of([TEXT])), messages=history, model=CLAUDE, tools=["look_up"])
    assert json.dumps(sent_blocks(claude), sort_keys=True) == json.dumps(blocks, sort_keys=True)


@pytest.mark.parametrize("blocks", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("model", [OTHER_CLAUDE, MODEL])
def test_mh_12_to_another_model_reasoning_does_not_go_at_all(
    claude: Talk, blocks: list[Block], model: str
) -> None:
    history = stored(claude.reply(*events_of(blocks), model=CLAUDE))
    answer = [chunk({"content": "Hm."}), chunk(finish="stop")]
    stream = Stream(events_of([TEXT]) if model == OTHER_CLAUDE else answer)
    claude.pieces(stream, messages=history, model=model, tools=["look_up"])
    sent = json.dumps(claude.server.requests[-1])
    assert "thinking" not in sent
    assert all(str(block.get("signature", "none of it")) not in sent for block in blocks)
    assert sent.count("call_0") == 2, "the call and its result stay"
    assert ("I will look." in sent) == (TEXT in blocks)


def test_what_the_next_request_shares_is_marked_for_anthropics_cache(claude: Talk) -> None:
    history = stored(claude.reply(*events_of([SIGNED, CALL]), model=CLAUDE))
    claude.pieces(Stream(events_of([TEXT])), messages=history, model=CLAUDE, tools=["look_up"])
    body = claude.server.requests[-1]
    marked = json.dumps(body).count('"cache_control": {"type": "ephemeral"}')
    assert marked == 3
    [tool] = cast("list[Block]", body["tools"])
    [system] = cast("list[Block]", body["system"])
    last = cast("list[dict[str, list[Block]]]", body["messages"])[-1]["content"][-1]
    assert all("cache_control" in one for one in (tool, system, last))
    assert last["type"] == "tool_result"


def test_no_marks_without_prompt_caching_or_for_another_provider(claude: Talk) -> None:
    off = ModelSettings(prompt_caching=False)
    claude.pieces(Stream(events_of([TEXT])), model=CLAUDE, tools=["look_up"], settings=off)
    claude.pieces(Stream([chunk({"content": "Hm."}), chunk(finish="stop")]), tools=["look_up"])
    assert "cache_control" not in json.dumps(claude.server.requests)


def test_an_effort_gives_claude_a_budget_to_think(claude: Talk) -> None:
    settings = ModelSettings(reasoning_effort="low", max_output_tokens=8_000)
    claude.pieces(Stream(events_of([TEXT])), model=CLAUDE, settings=settings)
    body = claude.server.requests[-1]
    assert body["max_tokens"] == 8_000
    assert cast("Block", body["thinking"])["type"] == "enabled"


def test_a_refusal_of_claude_ends_the_turn_and_is_not_tried_again(claude: Talk) -> None:
    events = events_of([TEXT])
    end = anthropic_event(
        "message_delta", delta={"stop_reason": "refusal"}, usage={"output_tokens": 3}
    )
    answer = Stream([*events[:-2], end, events[-1]])
    failed = claude.error(answer, model=CLAUDE)
    assert (failed.kind, failed.retryable) == (FailureKind.REFUSAL, False)
