"""Our conversation as input items and tools of OpenAI's Responses API. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from celeriac.connectors.plain_messages import result_words, sendable_arguments, sent_images
from celeriac.connectors.wire_ids import is_verbatim, wire_ids
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.model import ModelRequest
from celeriac.sessions.tools import ToolDefinition

__all__ = ["input_items", "response_tools"]

JsonObject = dict[str, JsonValue]


def input_items(request: ModelRequest) -> list[JsonValue]:
    """Convert the history; the output of the same model goes back as it came, item by item."""
    ids = wire_ids(request.messages, request.model, "responses")
    converted: list[JsonValue] = []
    for message in request.messages:
        if message.role is Role.TOOL:
            call_id = message.call_id or ""
            converted.append(
                {
                    "type": "function_call_output",
                    "call_id": ids.get(call_id, call_id),
                    "output": result_words(message),
                }
            )
        elif message.role is not Role.ASSISTANT:
            converted.append({"role": "user", "content": _user_content(message, request.images)})
        elif is_verbatim(message, request.model, "responses"):
            converted.extend(_as_it_came(message, ids))
        else:
            converted.extend(_in_plain_words(message, ids))
    return converted


def _user_content(message: Message, images: Mapping[str, bytes]) -> JsonValue:
    words, sent = sent_images(message, images)
    if not sent:
        return words
    parts: list[JsonValue] = [{"type": "input_text", "text": words}] if words else []
    parts += [{"type": "input_image", "image_url": url} for _, url in sent]
    return parts


def response_tools(tools: Sequence[ToolDefinition]) -> list[JsonObject]:
    """Convert tool definitions to function tools."""
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description or tool.name,
            "parameters": dict(tool.input_schema),
            # Left out it means true, and most schemas do not keep the rules of that mode.
            "strict": False,
        }
        for tool in tools
    ]


def _as_it_came(message: Message, ids: Mapping[str, str]) -> Iterator[JsonValue]:
    """Yield a response's items; only an id that cannot be used again is another, and a name that is none."""
    calls = iter(message.calls)
    for item in message.items:
        if not isinstance(item, dict) or item.get("type") != "function_call":
            yield item
            continue
        call = next(calls, None)
        if call is None:
            continue
        ours: JsonObject = {
            "call_id": ids[call.id],
            "name": call.tool,
            "arguments": sendable_arguments(call.arguments),
        }
        # The order of the keys stays, too.
        yield {key: ours.get(key, value) for key, value in item.items()}


def _in_plain_words(message: Message, ids: Mapping[str, str]) -> Iterator[JsonValue]:
    if message.text.strip():
        yield {"role": "assistant", "content": message.text}
    for call in message.calls:
        yield {
            "type": "function_call",
            "call_id": ids[call.id],
            "name": call.tool,
            "arguments": sendable_arguments(call.arguments),
        }
