"""Our conversation as messages of Pydantic AI, and its responses as ours. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from pydantic import JsonValue, ValidationError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest as FrameworkRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from celeriac.connectors.plain_messages import result_words, sendable_arguments, sent_images
from celeriac.connectors.wire_ids import is_verbatim, wire_ids
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.jsonsafe import to_json_value
from celeriac.sessions.messages import CallReference, Message, Role
from celeriac.sessions.model import ModelRequest

__all__ = ["API", "as_items", "read_history", "to_history", "write_history"]

API: Final = "pydantic-ai"
"""The form of the items: responses as Pydantic AI keeps them."""


def to_history(request: ModelRequest) -> list[ModelMessage]:
    """Convert the conversation; what the same model wrote goes back as it came."""
    ids = wire_ids(request.messages, request.model, API)
    names = {call.id: call.tool for message in request.messages for call in message.calls}
    history: list[ModelMessage] = []
    waiting: list[ModelRequestPart] = []
    for message in request.messages:
        if message.role is Role.ASSISTANT:
            if waiting:
                history.append(FrameworkRequest(parts=waiting))
                waiting = []
            history.append(_response(message, request.model, ids))
        elif message.role is Role.TOOL:
            waiting.append(_result(message, ids, names))
        else:
            waiting.append(_prompt(message, request.images))
    if waiting:
        history.append(FrameworkRequest(parts=waiting))
    return history


def _result(message: Message, ids: Mapping[str, str], names: Mapping[str, str]) -> ToolReturnPart:
    call_id = message.call_id or ""
    return ToolReturnPart(
        tool_name=names.get(call_id, message.tool or ""),
        content=result_words(message),
        tool_call_id=ids.get(call_id, call_id),
        outcome="success" if message.status is CallStatus.SUCCEEDED else "failed",
    )


def _prompt(message: Message, images: Mapping[str, bytes]) -> UserPromptPart:
    words, sent = sent_images(message, images)
    if not sent:
        return UserPromptPart(words)
    content: list[UserContent] = [words] if words else []
    content += [BinaryContent(images[one.id], media_type=one.media_type) for one, _ in sent]
    return UserPromptPart(content)


def _response(message: Message, model: str, ids: Mapping[str, str]) -> ModelResponse:
    if is_verbatim(message, model, API):
        try:
            [kept] = ModelMessagesTypeAdapter.validate_python(list(message.items))
        except (ValidationError, ValueError):
            pass  # of a version that wrote them differently
        else:
            if isinstance(kept, ModelResponse):
                return replace(kept, parts=list(_with_ids(kept.parts, message.calls, ids)))
    parts: list[ModelResponsePart] = [TextPart(message.text)] if message.text.strip() else []
    parts += [
        ToolCallPart(call.tool, sendable_arguments(call.arguments), tool_call_id=ids[call.id])
        for call in message.calls
    ]
    return ModelResponse(parts=parts)


def _with_ids(
    parts: Sequence[ModelResponsePart], calls: Sequence[CallReference], ids: Mapping[str, str]
) -> Iterator[ModelResponsePart]:
    """Give each call an id, a name and arguments that every provider takes back."""
    waiting = iter(calls)
    for part in parts:
        if not isinstance(part, ToolCallPart):
            yield part
        elif (call := next(waiting, None)) is not None:
            yield ToolCallPart(
                tool_name=call.tool,
                args=sendable_arguments(call.arguments),
                tool_call_id=ids[call.id],
                id=part.id,
                provider_name=part.provider_name,
                provider_details=part.provider_details,
            )


def as_items(response: ModelResponse) -> list[JsonValue]:
    """Return a response as it is kept in the conversation."""
    return write_history([response])


def write_history(messages: Sequence[ModelMessage]) -> list[JsonValue]:
    """Return messages as JSON."""
    written = to_json_value(ModelMessagesTypeAdapter.dump_python(list(messages), mode="json"))
    return written if isinstance(written, list) else []


def read_history(kept: JsonValue) -> list[ModelMessage] | None:
    """Read what `write_history` returned; None when it is of another form."""
    try:
        return ModelMessagesTypeAdapter.validate_python(kept)
    except ValidationError:
        return None
