"""Our conversation as chat-completions messages and tools. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import JsonValue

from celeriac.sessions.jsonsafe import dump_json
from celeriac.sessions.messages import CallReference, Message, Role
from celeriac.sessions.model import ModelRequest
from celeriac.sessions.tools import ToolDefinition

__all__ = ["chat_messages", "chat_tools"]

JsonObject = dict[str, JsonValue]

_SUMMARY = "Summary of the conversation before this point:\n\n"
_NOTICE = "Note from the system that runs this conversation, not from the user:\n\n"
# Providers refuse an empty content block.
_NOTHING = "(the tool returned nothing)"


def chat_messages(request: ModelRequest) -> list[JsonObject]:
    """Convert instructions and history; the ids of calls are our own, in the call and its result."""
    converted: list[JsonObject] = []
    if request.instructions.strip():
        converted.append({"role": "system", "content": request.instructions})
    for message in request.messages:
        if message.role is Role.ASSISTANT:
            converted.extend(_assistant(message, request.model))
        else:
            converted.append(_other(message))
    return converted


def chat_tools(tools: Sequence[ToolDefinition]) -> list[JsonValue]:
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


def _other(message: Message) -> JsonObject:
    if message.role is Role.TOOL:
        content = message.text if message.text.strip() else _NOTHING
        return {"role": "tool", "tool_call_id": message.call_id, "content": content}
    # A summary or a notice in the middle of a conversation: not every provider takes a system
    # message there, so it comes as a user message that says what it is.
    prefix = {Role.SUMMARY: _SUMMARY, Role.NOTICE: _NOTICE}.get(message.role, "")
    return {"role": "user", "content": prefix + message.text}


def _assistant(message: Message, model: str) -> list[JsonObject]:
    if not message.calls and not message.text.strip():
        return []
    converted: JsonObject = {
        "role": "assistant",
        "content": message.text if message.text.strip() else None,
    }
    if message.calls:
        converted["tool_calls"] = [_call(call) for call in message.calls]
    # Signed thinking only means something to the model that wrote it.
    if message.model == model:
        converted.update(_thinking(message.items))
    return [converted]


def _call(call: CallReference) -> JsonValue:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.tool, "arguments": _sendable(call.arguments)},
    }


def _sendable(arguments: str) -> str:
    """Return the arguments as the model wrote them, or wrapped when they are no JSON object.

    Some providers parse what they get, and would refuse every later request for one bad call.
    """
    try:
        if isinstance(json.loads(arguments, parse_constant=_refuse_constant), dict):
            return arguments
    except ValueError:
        pass
    return dump_json({"not_a_json_object": arguments})


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _thinking(items: Sequence[JsonValue]) -> JsonObject:
    for item in items:
        if isinstance(item, dict) and item.get("thinking_blocks"):
            return {"thinking_blocks": item["thinking_blocks"]}
    return {}
