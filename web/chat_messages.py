"""A conversation as the AI SDK's UI messages: what ``useChat`` is given after a reload. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from celeriac.sessions.calls import CallRecord, CallStatus, DecisionVerb
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.snapshot import Snapshot
from celeriac.web.chat_chunks import approval_id, message_id_of_turn, output_of, wait_part

__all__ = ["ui_messages"]

_Part = dict[str, JsonValue]


def ui_messages(snapshot: Snapshot) -> list[JsonValue]:
    """Return the latest messages: each of the user's, and one of the assistant's for each turn."""
    calls = {call.id: call for call in snapshot.calls}
    shown: list[dict[str, JsonValue]] = []
    for message in snapshot.messages:
        if message.role is Role.USER:
            shown.append(_user(message, snapshot.session_id))
        elif message.role is Role.ASSISTANT and message.turn_id is not None:
            own_id = message_id_of_turn(message.turn_id)
            if not shown or shown[-1]["id"] != own_id:
                shown.append({"id": own_id, "role": "assistant", "parts": []})
            parts = shown[-1]["parts"]
            if isinstance(parts, list):
                parts.extend(_parts(message, calls))
    return list(shown)


def _user(message: Message, session_id: str) -> dict[str, JsonValue]:
    parts: list[JsonValue] = [{"type": "text", "text": message.text}] if message.text else []
    parts += [
        {
            "type": "file",
            "mediaType": image.media_type,
            "filename": image.name or "image",
            "url": f"/api/sessions/{session_id}/images/{image.id}",
        }
        for image in message.images
    ]
    return {"id": message.message_id or f"m{message.seq}", "role": "user", "parts": parts}


def _parts(message: Message, calls: Mapping[str, CallRecord]) -> Iterator[_Part]:
    yield {"type": "step-start"}
    if message.reasoning:
        yield {"type": "reasoning", "text": message.reasoning, "state": "done"}
    if message.text:
        yield {"type": "text", "text": message.text, "state": "done"}
    for reference in message.calls:
        call = calls.get(reference.id)
        if call is None:
            continue
        yield _tool(call)
        if (part := wait_part(call)) is not None:
            yield {"type": part[0], "id": call.id, "data": part[1]}


def _tool(call: CallRecord) -> _Part:
    part: _Part = {
        "type": f"tool-{call.tool}",
        "toolCallId": call.id,
        "state": "input-available",
        "input": call.arguments,
    }
    decision = call.decision
    if call.status is CallStatus.AWAITING_APPROVAL:
        part |= {"state": "approval-requested", "approval": {"id": approval_id(call)}}
    elif decision is not None:
        approval: _Part = {
            "id": f"{call.id}.{decision.digest}",
            "approved": decision.verb is DecisionVerb.APPROVE,
        }
        if decision.note:
            approval["reason"] = decision.note
        part |= {"state": "approval-responded", "approval": approval}
    if call.status.settled:
        end = output_of(call)
        part["state"] = end.pop("type")
        part |= end
    return part
