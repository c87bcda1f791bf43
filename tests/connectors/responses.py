"""Events and items of the Responses API, as OpenAI streams them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from pydantic import JsonValue

from celeriac.sessions.codec import read_record, write_record
from celeriac.sessions.messages import CallReference, Message, Role
from celeriac.sessions.model import ModelReply
from tests.connectors.chat_server import Stream
from tests.connectors.requests import result

REASONER = "openai/gpt-5-mini"
Item = dict[str, JsonValue]

USAGE: Item = {
    "input_tokens": 1200,
    "output_tokens": 300,
    "total_tokens": 1500,
    "input_tokens_details": {"cached_tokens": 1000},
    "output_tokens_details": {"reasoning_tokens": 40},
}


def reasoning(number: int = 1, summary: str = "") -> Item:
    """An encrypted reasoning item; its order of keys, its nulls and its unknown field are OpenAI's business."""
    parts: list[JsonValue] = [{"type": "summary_text", "text": summary}] if summary else []
    return {
        "id": f"rs_{number}",
        "type": "reasoning",
        "encrypted_content": f"gAAAAAB{number}+/=",
        "summary": parts,
        "status": None,
        "vendor_hint": {"b": 1, "a": [None, 0.1]},
    }


def said(text: str, number: int = 1, **fields: JsonValue) -> Item:
    part: JsonValue = {"annotations": [], "logprobs": [], "type": "output_text", "text": text}
    return {
        "type": "message",
        "id": f"msg_{number}",
        "status": "completed",
        "phase": "final_answer",
        "role": "assistant",
        "content": [part],
        **fields,
    }


def called(call_id: str, arguments: str = '{"b":  1, "a": 2}', **fields: JsonValue) -> Item:
    return {
        "arguments": arguments,
        "call_id": call_id,
        "id": f"fc_{call_id}",
        "name": "look_up",
        "type": "function_call",
        "status": "completed",
        **fields,
    }


def refusal(text: str) -> Item:
    return said("", content=[{"type": "refusal", "refusal": text}])


def events_of(items: Sequence[Item], *, end: str = "completed", **fields: JsonValue) -> list[Item]:
    """The events in which a response with these items comes."""
    response: Item = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5-mini-2025-08-07",
        "output": [],
    }
    events: list[Item] = [
        {"type": "response.created", "response": {**response, "status": "in_progress"}}
    ]
    for at, item in enumerate(items):
        begun: Item = {**item, "status": "in_progress", "content": [], "summary": []}
        events.append({"type": "response.output_item.added", "output_index": at, "item": begun})
        events += _deltas(at, item)
        events.append({"type": "response.output_item.done", "output_index": at, "item": item})
    if end:
        whole: Item = {**response, "status": end, "output": list(items), "usage": USAGE, **fields}
        events.append({"type": f"response.{end}", "response": whole})
    return [{**event, "sequence_number": at} for at, event in enumerate(events)]


def _deltas(at: int, item: Item) -> Iterator[Item]:
    place: Item = {"item_id": item["id"], "output_index": at}
    for name, kind in (("content", "output_text"), ("summary", "reasoning_summary_text")):
        parts = item.get(name)
        for index, part in enumerate(parts if isinstance(parts, list) else []):
            text = part.get("text") if isinstance(part, dict) else None
            where = "content_index" if name == "content" else "summary_index"
            for piece in (str(text)[:3], str(text)[3:]) if text else ():
                yield {"type": f"response.{kind}.delta", **place, where: index, "delta": piece}


def stream(*items: Item, end: str = "completed", **fields: JsonValue) -> Stream:
    return Stream(events_of(items, end=end, **fields), done=False)


def stored(reply: ModelReply, first: int = 0) -> list[Message]:
    """A response as a session keeps it, from a store and back, and a result for each of its calls."""
    ids = [f"call_{first + number}" for number, _ in enumerate(reply.calls)]
    response = Message(
        seq=1,
        role=Role.ASSISTANT,
        text=reply.text,
        reasoning=reply.reasoning,
        calls=tuple(
            CallReference(
                id=own, tool=made.name, arguments=made.arguments, provider_id=made.provider_id
            )
            for own, made in zip(ids, reply.calls, strict=True)
        ),
        items=tuple(reply.items),
        items_api=reply.items_api,
        model=reply.model,
        created_at=0,
    )
    again = read_record(Message, write_record(response))
    assert json.dumps(again.items) == json.dumps(response.items), "not one byte is another"
    return [again, *(result(own, "look_up", f"found {own}") for own in ids)]
