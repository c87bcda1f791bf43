"""The AI SDK's chat routes: a session as ``useChat`` of the npm package ``@ai-sdk/react`` wants it.

What the browser sends back is never believed: a message's text is taken, and ids are looked up among what
this session waits for. Everything else in the body is left alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from http import HTTPStatus
from typing import Literal

from flask import Blueprint, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from celeriac.sessions.calls import CallRecord, CallStatus, DecisionVerb
from celeriac.sessions.errors import Conflict
from celeriac.sessions.ids import MESSAGE_ID_PATTERN
from celeriac.sessions.snapshot import Snapshot
from celeriac.web.answers import ChatConversation
from celeriac.web.auth import Principal, acting, require_session
from celeriac.web.chat_chunks import split_approval_id
from celeriac.web.chat_messages import ui_messages
from celeriac.web.chat_stream import ChatTarget, chat_frames
from celeriac.web.limits import limit_messages
from celeriac.web.operators import Role
from celeriac.web.parts import parts
from celeriac.web.problems import Refusal
from celeriac.web.responses import empty, model_response, stream_response
from celeriac.web.schemas import SentImage, read_body
from celeriac.web.uploads import json_images

__all__ = ["api_chat"]

api_chat = Blueprint("api_chat", __name__, url_prefix="/api/chat")


class _Lenient(BaseModel):
    # Each version of the SDK sends more than the one before; only what is read here must fit.
    model_config = ConfigDict(extra="ignore")


class ChatMessage(_Lenient):
    """One of the browser's messages; only the last one is read."""

    id: str = Field("", max_length=200)
    role: Literal["user", "assistant", "system"]
    parts: list[dict[str, JsonValue]] = Field(default_factory=list, max_length=1000)


class ChatRequest(_Lenient):
    """``POST /api/chat``. `id` is the session's."""

    id: str = Field(max_length=100)
    messages: list[ChatMessage] = Field(min_length=1)
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    plan_mode: bool = False
    model: str | None = Field(None, max_length=200)


@api_chat.post("")
def post_chat() -> Response:
    """Send the last message, or the decisions and answers in it, and stream the turn."""
    body = read_body(ChatRequest)
    principal = require_session(body.id, Role.OPERATOR)
    if body.trigger == "regenerate-message":
        raise Refusal(
            HTTPStatus.BAD_REQUEST,
            "A session's conversation is not written again. Send a new message instead.",
            code="no_regenerate",
        )
    last = body.messages[-1]
    before = parts().client.snapshot(body.id)
    if last.role == "assistant":
        return _stream(body.id, _decide(before, last, principal))
    return _stream(body.id, _send(before, last, body, principal))


@api_chat.get("/<sid>/stream")
def resume_chat(sid: str) -> Response:
    """Stream the open turn from its beginning; 204 when nothing runs."""
    require_session(sid, Role.VIEWER)
    snapshot = parts().client.snapshot(sid)
    if snapshot.turn is None:
        return empty()
    since = min((step.since for step in snapshot.turn.steps), default=snapshot.turn.started_at)
    return _stream(sid, ChatTarget(position=f"{since}-0", turn_id=snapshot.turn.id))


@api_chat.get("/<sid>")
def get_chat(sid: str) -> Response:
    """The latest messages as UI messages, for ``useChat({messages})`` after a reload."""
    require_session(sid, Role.VIEWER)
    messages = ui_messages(parts().client.snapshot(sid))
    return model_response(ChatConversation(id=sid, messages=messages))


def _send(
    before: Snapshot, message: ChatMessage, body: ChatRequest, principal: Principal
) -> ChatTarget:
    text = "\n\n".join(
        str(part.get("text", "")) for part in message.parts if part.get("type") == "text"
    )
    limit_messages(before.session_id)
    message_id = _message_id(message.id)
    known = next((one for one in before.messages if one.message_id == message_id), None)
    acting(principal).send_message(
        before.session_id,
        text,
        message_id=message_id,
        plan_mode=body.plan_mode,
        model=body.model,
        images=json_images([image for part in message.parts for image in _images(part)]),
    )
    open_turn = before.turn.id if before.turn else None
    return ChatTarget(
        position=before.resume_token,
        message_id=message_id,
        ended=known is not None and known.turn_id != open_turn,
    )


def _images(part: dict[str, JsonValue]) -> Iterator[SentImage]:
    """Take the image of a file part; an address elsewhere is never fetched."""
    url, kind = part.get("url"), part.get("mediaType")
    if part.get("type") != "file" or not isinstance(url, str) or not isinstance(kind, str):
        return
    head, _, data = url.partition(",")
    if not kind.startswith("image/") or not head.startswith("data:") or ";base64" not in head:
        raise Refusal(
            HTTPStatus.BAD_REQUEST,
            "A file can only be an image, sent as a data URL in base64.",
            code="not_an_image",
        )
    yield SentImage(data=data, name=str(part.get("filename") or ""))


def _message_id(given: str) -> str | None:
    """Return the browser's id, so that a repeated request changes nothing; one of our alphabet."""
    if not given or MESSAGE_ID_PATTERN.fullmatch(given):
        return given or None
    return hashlib.sha256(given.encode()).hexdigest()[:32]


# --- decisions and answers


def _decide(before: Snapshot, message: ChatMessage, principal: Principal) -> ChatTarget:
    shown = dict(_shown(message))
    calls = {call.id: call for call in before.calls}
    for part in message.parts:
        call = calls.get(str(part.get("toolCallId")))
        if call is not None:
            _act(before.session_id, call, part, principal)
    turn = next((calls[call_id].turn_id for call_id in shown if call_id in calls), None)
    if turn is None:
        raise Refusal(
            HTTPStatus.CONFLICT,
            "The last message names no call of this session's latest turns, so nothing was done. "
            "Load the conversation again.",
            code="unknown_call",
        )
    open_turn = before.turn.id if before.turn else None
    return ChatTarget(
        position=before.resume_token, turn_id=turn, ended=turn != open_turn, shown=shown
    )


def _act(
    session_id: str, call: CallRecord, part: dict[str, JsonValue], principal: Principal
) -> None:
    """Hand on what a person did about one call, if it waits for just that."""
    approval = part.get("approval")
    try:
        if call.status is CallStatus.AWAITING_APPROVAL and isinstance(approval, dict):
            _approve(session_id, call, approval, principal)
        elif call.status is CallStatus.AWAITING_ANSWER and part.get("state") == "output-available":
            acting(principal).answer(session_id, call.id, part.get("output"), by=principal.name)
    except Conflict:
        # Somebody was first; the stream shows what they decided.
        return


def _approve(
    session_id: str, call: CallRecord, approval: dict[str, JsonValue], principal: Principal
) -> None:
    call_id, digest = split_approval_id(str(approval.get("id", "")))
    approved, reason = approval.get("approved"), approval.get("reason")
    if call_id == call.id and isinstance(approved, bool):
        require_session(session_id, Role.APPROVER)
        acting(principal).decide(
            session_id,
            call.id,
            DecisionVerb.APPROVE if approved else DecisionVerb.REJECT,
            by=principal.name,
            note=reason if isinstance(reason, str) and reason else None,
            digest=digest,
        )


def _shown(message: ChatMessage) -> Iterator[tuple[str, frozenset[str]]]:
    """Say what of each call the browser shows already."""
    for part in message.parts:
        call_id, state = part.get("toolCallId"), str(part.get("state"))
        if not isinstance(call_id, str):
            continue
        marks = {"input"}
        approval = part.get("approval")
        if isinstance(approval, dict):
            digest = split_approval_id(str(approval.get("id", "")))[1]
            marks.add(f"approval {digest}")
            if isinstance(approval.get("approved"), bool):
                marks.add(f"decision {digest}")
        if state.startswith("output-"):
            marks.add("output")
        yield call_id, frozenset(marks)


def _stream(session_id: str, target: ChatTarget) -> Response:
    here = parts()
    response = stream_response(
        here.streams, lambda: chat_frames(here.streams, here.client, session_id, target)
    )
    response.headers["x-vercel-ai-ui-message-stream"] = "v1"
    return response
