"""Our conversation as events of ADK, and its responses as ours. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from google.adk.events import Event
from google.genai import types
from pydantic import JsonValue, ValidationError

from celeriac.connectors.plain_messages import result_words, sendable_arguments, sent_images
from celeriac.connectors.wire_ids import is_verbatim, wire_ids
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.jsonsafe import dump_json, to_json_value
from celeriac.sessions.messages import Message, Role, Usage
from celeriac.sessions.model import ModelRequest

__all__ = [
    "API",
    "as_item",
    "reasoning_of",
    "result_part",
    "text_of",
    "to_events",
    "usage_of",
]

API: Final = "google-adk"
"""The form of the items: contents as ADK keeps them."""


_GO_ON = (
    "Note from the system that runs this conversation, not from the user:\n\n"
    "Go on with what is there so far."
)


def to_events(request: ModelRequest, speaker: str, *, alone: bool) -> list[Event]:
    """Convert the conversation; what the same model wrote goes back as it came.

    Args:
        request: The request.
        speaker: Name of the agent that has spoken so far.
        alone: Whether that agent answers by itself. Results at the end would be given to it alone, and those that
            work after it would be passed over, so else all begin anew.

    Returns:
        The events. Each user message begins an invocation; the last one is the one to go on with.
    """
    ids = wire_ids(request.messages, request.model, API)
    events: list[Event] = []
    invocation = 0
    for message in request.messages:
        mine = message.role in {Role.ASSISTANT, Role.TOOL}
        invocation += not mine
        last = events[-1] if events else None
        if message.role is Role.TOOL and last is not None and last.get_function_responses():
            # All results of a response belong together.
            if last.content is not None and last.content.parts is not None:
                last.content.parts.append(_result(message, ids))
            continue
        events.append(
            Event(
                author=speaker if mine else "user",
                invocation_id=f"turn-{invocation}",
                content=_content(message, request, ids),
            )
        )
    if not alone and events and events[-1].get_function_responses():
        note = types.Content(role="user", parts=[types.Part(text=_GO_ON)])
        events.append(Event(author="user", invocation_id=f"turn-{invocation + 1}", content=note))
    return events


def _content(message: Message, request: ModelRequest, ids: Mapping[str, str]) -> types.Content:
    if message.role is Role.ASSISTANT:
        return _response(message, request.model, ids)
    if message.role is Role.TOOL:
        return types.Content(role="user", parts=[_result(message, ids)])
    words, sent = sent_images(message, request.images)
    parts = [types.Part(text=words)] if words or not sent else []
    parts += [
        types.Part.from_bytes(data=request.images[one.id], mime_type=one.media_type)
        for one, _ in sent
    ]
    return types.Content(role="user", parts=parts)


def _result(message: Message, ids: Mapping[str, str]) -> types.Part:
    call_id = message.call_id or ""
    return result_part(
        ids.get(call_id, call_id),
        message.tool or "",
        result_words(message),
        succeeded=message.status is CallStatus.SUCCEEDED,
    )


def result_part(call_id: str, tool: str, text: str, *, succeeded: bool) -> types.Part:
    """Return the result of a call as the model reads it."""
    response = {"result" if succeeded else "error": text}
    return types.Part(
        function_response=types.FunctionResponse(id=call_id, name=tool, response=response)
    )


def _response(message: Message, model: str, ids: Mapping[str, str]) -> types.Content:
    same_ids = all(ids[call.id] == call.provider_id for call in message.calls)
    if same_ids and is_verbatim(message, model, API):
        try:
            return types.Content.model_validate_json(dump_json(message.items[0]))
        except ValidationError:
            pass  # of a version that wrote it differently
    parts = [types.Part(text=message.text)] if message.text.strip() else []
    parts += [
        types.Part(
            function_call=types.FunctionCall(
                id=ids[call.id],
                name=call.tool,
                args=json.loads(sendable_arguments(call.arguments)),
            )
        )
        for call in message.calls
    ]
    return types.Content(role="model", parts=parts or [types.Part(text="")])


def as_item(content: types.Content) -> JsonValue:
    """Return a response as it is kept in the conversation."""
    return to_json_value(json.loads(content.model_dump_json(exclude_none=True)))


def text_of(event: Event) -> str:
    """Return what an event says to the user."""
    return "".join(part.text or "" for part in _said(event) if not part.thought)


def reasoning_of(event: Event) -> str:
    """Return the visible reasoning in an event."""
    return "".join(part.text or "" for part in _said(event) if part.thought)


def _said(event: Event) -> Iterator[types.Part]:
    if event.content is not None and not event.get_function_responses():
        yield from event.content.parts or ()


def usage_of(events: Sequence[Event], model_calls: int) -> Usage:
    """Return what the model calls of some events used together."""
    total = Usage()
    for event in events:
        used = event.usage_metadata
        if used is not None:
            total = total.plus(
                Usage(
                    input_tokens=used.prompt_token_count,
                    output_tokens=_output_of(used),
                    cached_tokens=used.cached_content_token_count,
                    reasoning_tokens=used.thoughts_token_count,
                )
            )
    return total.model_copy(update={"model_calls": model_calls})


def _output_of(used: types.GenerateContentResponseUsageMetadata) -> int | None:
    """Return what was put out: Google counts thoughts beside the answer, others within it, and the total has them once."""
    total, given = used.total_token_count, used.prompt_token_count
    if total and given is not None:
        return total - given - (used.tool_use_prompt_token_count or 0)
    answer, thoughts = used.candidates_token_count, used.thoughts_token_count
    return thoughts if answer is None else answer + (thoughts or 0)
