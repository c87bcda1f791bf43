"""Our conversation as messages of LangChain, and its responses as ours. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    ToolMessage,
    messages_from_dict,
    messages_to_dict,
)
from pydantic import JsonValue

from celeriac.connectors.plain_messages import result_words, sendable_arguments, sent_images
from celeriac.connectors.wire_ids import is_verbatim, wire_ids
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.jsonsafe import to_json_value
from celeriac.sessions.messages import Message, Role, Usage
from celeriac.sessions.model import ModelRequest

__all__ = ["API", "as_item", "reasoning_of", "text_of", "to_messages", "usage_of"]

API: Final = "langchain"
"""The form of the items: responses as LangChain keeps them."""


def to_messages(request: ModelRequest) -> list[AnyMessage]:
    """Convert the conversation; what the same model wrote goes back as it came."""
    ids = wire_ids(request.messages, request.model, API)
    return [_message(one, request, ids) for one in request.messages]


def _message(message: Message, request: ModelRequest, ids: Mapping[str, str]) -> AnyMessage:
    name = f"m{message.seq}"
    if message.role is Role.ASSISTANT:
        return _response(message, request.model, ids, name)
    if message.role is Role.TOOL:
        call_id = message.call_id or ""
        return ToolMessage(
            result_words(message),
            tool_call_id=ids.get(call_id, call_id),
            name=message.tool,
            status="success" if message.status is CallStatus.SUCCEEDED else "error",
            id=name,
        )
    words, sent = sent_images(message, request.images)
    if not sent:
        return HumanMessage(words, id=name)
    content: list[str | dict[str, Any]] = [{"type": "text", "text": words}] if words else []
    content += [{"type": "image_url", "image_url": {"url": url}} for _, url in sent]
    return HumanMessage(content, id=name)


def _response(message: Message, model: str, ids: Mapping[str, str], name: str) -> AIMessage:
    same_ids = all(ids[call.id] == call.provider_id for call in message.calls)
    if same_ids and is_verbatim(message, model, API):
        kept = _read_item(message.items[0])
        if kept is not None:
            kept.id = name
            return kept
    calls = [
        {
            "name": call.tool,
            "args": json.loads(sendable_arguments(call.arguments)),
            "id": ids[call.id],
            "type": "tool_call",
        }
        for call in message.calls
    ]
    return AIMessage(message.text, tool_calls=calls, id=name)


def _read_item(item: JsonValue) -> AIMessage | None:
    try:
        [message] = messages_from_dict([item]) if isinstance(item, dict) else [None]
    except (KeyError, TypeError, ValueError):
        return None  # of a version that wrote it differently
    return message if isinstance(message, AIMessage) else None


def as_item(response: AIMessage) -> JsonValue:
    """Return a response as it is kept in the conversation."""
    whole = AIMessage(**{**response.__dict__, "type": "ai"})
    [written] = messages_to_dict([whole])
    return to_json_value(written)


def text_of(message: AnyMessage) -> str:
    """Return the text of a message or of a piece of one."""
    return str(message.text)


def reasoning_of(message: AnyMessage) -> str:
    """Return the visible reasoning in a message or in a piece of one."""
    blocks = message.content_blocks
    return "".join(
        str(block.get("reasoning", "")) for block in blocks if block["type"] == "reasoning"
    )


def usage_of(responses: Sequence[AIMessage]) -> Usage:
    """Return what some responses used together."""
    total = Usage()
    for response in responses:
        total = total.plus(_usage(response))
    return total.model_copy(update={"model_calls": len(responses)})


def _usage(response: AIMessage) -> Usage:
    used = response.usage_metadata
    if used is None:
        return Usage()
    read, written = used.get("input_token_details", {}), used.get("output_token_details", {})
    return Usage(
        input_tokens=used["input_tokens"],
        output_tokens=used["output_tokens"],
        cached_tokens=read.get("cache_read"),
        cache_write_tokens=read.get("cache_creation"),
        reasoning_tokens=written.get("reasoning"),
    )
