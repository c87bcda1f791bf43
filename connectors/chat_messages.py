"""Our conversation as chat-completions messages and tools. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from celeriac.connectors.plain_messages import result_words, sendable_arguments, sent_images
from celeriac.connectors.wire_ids import is_verbatim, wire_ids
from celeriac.sessions.messages import CallReference, Message, Role
from celeriac.sessions.model import ModelRequest
from celeriac.sessions.tools import ToolDefinition

__all__ = ["chat_messages", "chat_tools", "has_cache_marks", "mark_cached"]

JsonObject = dict[str, JsonValue]

# What goes back to the model that wrote it, beside text and calls, and to which providers. Others refuse or
# ignore it.
_SIGNED = "thinking_blocks"
_WANT_REASONING = frozenset({"deepseek", "moonshot"})
_WANT_SIGNATURES = frozenset({"gemini", "vertex_ai"})
_CACHED: JsonValue = {"type": "ephemeral"}


def chat_messages(request: ModelRequest, provider: str = "") -> list[JsonObject]:
    """Convert instructions and history.

    Args:
        request: The request.
        provider: litellm's name of the provider.

    Returns:
        The messages, each call directly followed by its result under the same id.
    """
    ids = wire_ids(request.messages, request.model, "chat")
    converted: list[JsonObject] = []
    if request.instructions.strip():
        converted.append({"role": "system", "content": request.instructions})
    for message in request.messages:
        if message.role is Role.TOOL:
            call_id = message.call_id or ""
            content = result_words(message)
            converted.append(
                {"role": "tool", "tool_call_id": ids.get(call_id, call_id), "content": content}
            )
        elif message.role is Role.ASSISTANT:
            converted.extend(_assistant(message, request.model, provider, ids))
        else:
            converted.append({"role": "user", "content": _user_content(message, request.images)})
    return converted


def _user_content(message: Message, images: Mapping[str, bytes]) -> JsonValue:
    words, sent = sent_images(message, images)
    if not sent:
        return words
    parts: list[JsonValue] = [{"type": "text", "text": words}] if words else []
    parts += [{"type": "image_url", "image_url": {"url": url}} for _, url in sent]
    return parts


def chat_tools(tools: Sequence[ToolDefinition]) -> list[JsonObject]:
    """Convert tool definitions to function tools."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description or tool.name,
                "parameters": dict(tool.input_schema),
            },
        }
        for tool in tools
    ]


def _assistant(
    message: Message, model: str, provider: str, ids: Mapping[str, str]
) -> list[JsonObject]:
    if not message.calls and not message.text.strip():
        return []
    converted: JsonObject = {
        "role": "assistant",
        "content": message.text if message.text.strip() else None,
    }
    if message.calls:
        converted["tool_calls"] = [_call(call, ids[call.id]) for call in message.calls]
    if is_verbatim(message, model, "chat"):
        converted.update(_of_its_own(message.items, provider))
    return [converted]


def _call(call: CallReference, wire_id: str) -> JsonValue:
    return {
        "id": wire_id,
        "type": "function",
        "function": {"name": call.tool, "arguments": sendable_arguments(call.arguments)},
    }


def _of_its_own(items: Sequence[JsonValue], provider: str) -> JsonObject:
    """Return what only the model that wrote a response understands of it."""
    item = items[0] if items and isinstance(items[0], dict) else {}
    found: JsonObject = {}
    if item.get(_SIGNED):
        found[_SIGNED] = item[_SIGNED]
    if provider in _WANT_REASONING and item.get("reasoning_content"):
        found["reasoning_content"] = item["reasoning_content"]
    if provider in _WANT_SIGNATURES and item.get("provider_specific_fields"):
        found["provider_specific_fields"] = item["provider_specific_fields"]
    return found


# --- prompt caching


def has_cache_marks(provider: str, model: str) -> bool:
    """Say whether a provider caches what is marked, and only that (Anthropic's models, wherever they run)."""
    return provider == "anthropic" or (
        provider in {"bedrock", "vertex_ai", "azure_ai"} and "claude" in model
    )


def mark_cached(messages: Sequence[JsonObject], tools: Sequence[JsonObject]) -> None:
    """Mark what the next request will have in common with this one.

    Anthropic allows four marks; three are set: after the tools, after the instructions, and at the end.

    Args:
        messages: Chat messages, changed in place.
        tools: Function tools, changed in place.
    """
    if tools:
        tools[-1]["cache_control"] = _CACHED
    if messages and messages[0]["role"] == "system":
        _mark(messages[0])
    if len(messages) > 1 and messages[-1]["role"] != "assistant":
        _mark(messages[-1])


def _mark(message: JsonObject) -> None:
    content = message["content"]
    if message["role"] == "tool":
        # litellm takes the mark of a result beside its content.
        message["cache_control"] = _CACHED
    elif isinstance(content, str):
        message["content"] = [{"type": "text", "text": content, "cache_control": _CACHED}]
    elif isinstance(content, list) and content and isinstance(content[-1], dict):
        content[-1]["cache_control"] = _CACHED
