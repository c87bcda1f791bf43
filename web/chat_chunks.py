"""A turn as chunks of the AI SDK's UI message stream, each thing once. Pure.

The protocol is that of the npm package ``ai``, version 7 (its ``uiMessageChunkSchema``). What counts comes
from snapshots (`TurnChunks.look`); live deltas only show text earlier than that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from pydantic import JsonValue

from celeriac.sessions.built_in import BuiltInTool, parse_choices
from celeriac.sessions.calls import CallRecord, CallStatus, DecisionVerb
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.snapshot import Snapshot
from celeriac.web.words import ending_words

__all__ = [
    "Chunk",
    "TurnChunks",
    "approval_id",
    "message_id_of_turn",
    "output_of",
    "split_approval_id",
    "wait_part",
]

Chunk = dict[str, JsonValue]

TEXT = "text"
REASONING = "reasoning"

_FINISH = {"answered": "stop", "failed": "error", "cancelled": "interrupted"}


def message_id_of_turn(turn_id: str) -> str:
    """Return the id of the assistant's UI message that shows a turn."""
    return f"turn_{turn_id}"


def approval_id(call: CallRecord) -> str:
    """Return the id of a request for approval: the call, and the digest of what is shown."""
    return f"{call.id}.{call.digest or ''}"


def split_approval_id(text: str) -> tuple[str, str]:
    """Return Call ID and digest of an approval's id."""
    call_id, _, digest = text.partition(".")
    return call_id, digest


class TurnChunks:
    """Makes the chunks of one turn's assistant message.

    Args:
        turn_id: The turn.
        shown: What the reader has already of each call, by Call ID: ``input``, ``approval <digest>``,
            ``decision <digest>`` and ``output``.
    """

    def __init__(self, turn_id: str, shown: Mapping[str, Collection[str]] | None = None) -> None:
        self.turn_id = turn_id
        self._shown = {call_id: set(marks) for call_id, marks in (shown or {}).items()}
        self._goes_on = bool(shown)
        self._next_seq = 0
        self._in_step = False
        self._step_is_empty = False
        self._streaming: tuple[str, int] | None = None
        """Step and attempt whose text is being shown."""
        self._streamed = {TEXT: "", REASONING: ""}
        self._open_part: tuple[str, str] | None = None
        self._parts = 0
        self._data: dict[str, JsonValue] = {}

    def start(self) -> Iterator[Chunk]:
        """Open the message."""
        yield {"type": "start", "messageId": message_id_of_turn(self.turn_id)}

    def delta(self, kind: str, step_id: str, attempt: int, text: str) -> Iterator[Chunk]:
        """Show a piece of text or reasoning that is being written."""
        if self._streaming != (step_id, attempt):
            yield from self.withdraw()
            self._streaming = (step_id, attempt)
            yield from self._begin_step()
        yield from self._write(kind, text)

    def withdraw(self) -> Iterator[Chunk]:
        """Take back what is shown of a response that will not come."""
        if self._streaming is not None and any(self._streamed.values()):
            self._open_part = None
            self._step_is_empty = True
            yield {"type": "reset-step"}
        self._forget_streamed()

    def look(self, snapshot: Snapshot) -> Iterator[Chunk]:
        """Show everything of the turn that a snapshot has and the reader has not."""
        calls = {call.id: call for call in snapshot.calls}
        for message in snapshot.messages:
            if message.turn_id != self.turn_id or message.seq < self._next_seq:
                continue
            self._next_seq = message.seq + 1
            if message.role is Role.ASSISTANT:
                yield from self._calls(snapshot)
                yield from self._response(message, calls)
        yield from self._calls(snapshot)
        yield from self._changed("data-queue", "queue", _queue(snapshot))
        if snapshot.plan is not None:
            yield from self._changed("data-plan", "plan", snapshot.plan.model_dump(mode="json"))

    def finish(
        self, state: str, *, error: str | None = None, usage: JsonValue = None
    ) -> Iterator[Chunk]:
        """Close the message.

        Args:
            state: How the turn ended (``answered``, ``failed``, ``cancelled``, ``steered``), or ``waiting``
                when it goes on only after somebody acted.
            error: Why it failed.
            usage: Tokens and cost of the turn.
        """
        if state != "waiting":
            yield from self.withdraw()
        yield from self._end_step()
        if error is not None:
            yield {"type": "error", "errorText": error}
        finish: Chunk = {"type": "finish", "finishReason": _FINISH.get(state, "other")}
        if state == "waiting":
            finish["finishReason"] = "tool-calls"
        finish["messageMetadata"] = {"turnId": self.turn_id, "state": state, "usage": usage}
        yield finish

    # --- responses

    def _response(self, message: Message, calls: Mapping[str, CallRecord]) -> Iterator[Chunk]:
        if self._goes_on and message.calls and all(c.id in self._shown for c in message.calls):
            # The reader has this one, and whatever came before it.
            self._forget_streamed()
            return
        if not self._continues(message):
            yield from self.withdraw()
        if self._streaming is None:
            yield from self._begin_step()
        for kind, text in ((REASONING, message.reasoning), (TEXT, message.text)):
            yield from self._write(kind, text[len(self._streamed[kind]) :])
        yield from self._end_part()
        self._forget_streamed()
        if message.interrupted:
            yield from self._changed("data-interrupted", f"m{message.seq}", {"seq": message.seq})
        for reference in message.calls:
            record = calls.get(reference.id)
            if record is not None:
                yield from self._input(record)

    def _continues(self, message: Message) -> bool:
        """Whether what was streamed is the beginning of a response; reasoning comes before text."""
        text, reasoning = self._streamed[TEXT], self._streamed[REASONING]
        if text and reasoning != message.reasoning:
            return False
        return message.text.startswith(text) and message.reasoning.startswith(reasoning)

    def _write(self, kind: str, text: str) -> Iterator[Chunk]:
        if not text:
            return
        if self._open_part is None or self._open_part[0] != kind:
            yield from self._end_part()
            self._parts += 1
            self._open_part = (kind, f"{self.turn_id}-{self._parts}")
            yield {"type": f"{kind}-start", "id": self._open_part[1]}
        self._streamed[kind] += text
        yield {"type": f"{kind}-delta", "id": self._open_part[1], "delta": text}

    def _end_part(self) -> Iterator[Chunk]:
        if self._open_part is not None:
            kind, part_id = self._open_part
            self._open_part = None
            yield {"type": f"{kind}-end", "id": part_id}

    def _begin_step(self) -> Iterator[Chunk]:
        """Begin the step of a response; a step that was taken back serves for the next one."""
        if self._in_step and self._step_is_empty:
            self._step_is_empty = False
            return
        yield from self._end_step()
        self._in_step = True
        yield {"type": "start-step"}

    def _end_step(self) -> Iterator[Chunk]:
        yield from self._end_part()
        if self._in_step:
            self._in_step = False
            yield {"type": "finish-step"}

    def _forget_streamed(self) -> None:
        self._streaming = None
        self._streamed = {TEXT: "", REASONING: ""}

    # --- calls

    def _first(self, call_id: str, mark: str) -> bool:
        marks = self._shown.setdefault(call_id, set())
        if mark in marks:
            return False
        marks.add(mark)
        return True

    def _input(self, call: CallRecord) -> Iterator[Chunk]:
        if self._first(call.id, "input"):
            yield {
                "type": "tool-input-available",
                "toolCallId": call.id,
                "toolName": call.tool,
                "input": call.arguments,
            }

    def _calls(self, snapshot: Snapshot) -> Iterator[Chunk]:
        for call in snapshot.calls:
            if "input" in self._shown.get(call.id, ()) and call.turn_id == self.turn_id:
                yield from self._call(call)

    def _call(self, call: CallRecord) -> Iterator[Chunk]:
        if call.status is CallStatus.AWAITING_APPROVAL:
            yield from self._asks(call)
        yield from self._waits(call)
        if call.decision is not None:
            yield from self._decided(call)
        if call.status.settled and self._first(call.id, "output"):
            end = output_of(call)
            yield {**end, "type": f"tool-{end['type']}", "toolCallId": call.id}

    def _asks(self, call: CallRecord) -> Iterator[Chunk]:
        if self._first(call.id, f"approval {call.digest}"):
            chunk: Chunk = {
                "type": "tool-approval-request",
                "approvalId": approval_id(call),
                "toolCallId": call.id,
            }
            if call.approval_reason:
                chunk["reason"] = call.approval_reason
            yield chunk

    def _decided(self, call: CallRecord) -> Iterator[Chunk]:
        decision = call.decision
        if decision is None or f"approval {decision.digest}" not in self._shown[call.id]:
            return
        if self._first(call.id, f"decision {decision.digest}"):
            chunk: Chunk = {
                "type": "tool-approval-response",
                "approvalId": f"{call.id}.{decision.digest}",
                "approved": decision.verb is DecisionVerb.APPROVE,
            }
            if decision.note:
                chunk["reason"] = decision.note
            yield chunk

    def _waits(self, call: CallRecord) -> Iterator[Chunk]:
        if (part := wait_part(call)) is not None:
            yield from self._changed(part[0], call.id, part[1])

    def _changed(self, kind: str, part_id: str, data: JsonValue) -> Iterator[Chunk]:
        known = self._data.get(f"{kind} {part_id}", _NOTHING.get(kind))
        if data != known:
            self._data[f"{kind} {part_id}"] = data
            yield {"type": kind, "id": part_id, "data": data}


_NOTHING: dict[str, JsonValue] = {"data-queue": []}


def output_of(call: CallRecord) -> Chunk:
    """Return how a settled call ended, as the chunk and the part of a message name it.

    Args:
        call: The call.

    Returns:
        ``type`` without its prefix, and ``output`` or ``errorText`` where there is one.
    """
    if call.status is CallStatus.SUCCEEDED:
        return {"type": "output-available", "output": call.result}
    if call.status is CallStatus.REJECTED:
        return {"type": "output-denied"}
    words = ending_words(call) or call.error or call.status.value
    return {"type": "output-error", "errorText": words}


def wait_part(call: CallRecord) -> tuple[str, JsonValue] | None:
    """Return type and data of the part that shows a question or a timer; None for any other call."""
    about = _WAITS.get(call.tool)
    if about is None or call.source is not None or not isinstance(call.arguments, dict):
        return None
    kind, describe = about
    return kind, describe(call, call.arguments)


def _question(call: CallRecord, arguments: Mapping[str, JsonValue]) -> JsonValue:
    return {
        "callId": call.id,
        "question": arguments.get("question"),
        "choices": list(parse_choices(call.arguments)),
        "status": call.status.value,
    }


def _timer(call: CallRecord, arguments: Mapping[str, JsonValue]) -> JsonValue:
    return {
        "callId": call.id,
        "reason": arguments.get("reason") or "",
        "until": call.waits_until,
        "status": call.status.value,
    }


_Describe = Callable[[CallRecord, Mapping[str, JsonValue]], JsonValue]
_WAITS: dict[str, tuple[str, _Describe]] = {
    BuiltInTool.ASK_USER: ("data-question", _question),
    BuiltInTool.DURABLE_WAIT: ("data-timer", _timer),
}


def _queue(snapshot: Snapshot) -> JsonValue:
    return [{"id": item.id, "text": item.text} for item in snapshot.queue]
