"""A turn's chunks, put together as the AI SDK does it, are the message that a reload would show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings, strategies as st

from celeriac.sessions.calls import CallRecord, CallStatus, Decision, DecisionVerb, ToolEffect
from celeriac.sessions.messages import CallReference, Message, Role, Usage
from celeriac.sessions.snapshot import Snapshot
from celeriac.sessions.state import SessionStatus
from celeriac.web.chat_chunks import TurnChunks
from celeriac.web.chat_messages import ui_messages

NOON = 1_796_040_000_000
SETTLED = [status for status in CallStatus if status.settled]


def call(number: int, status: CallStatus, *, asked: bool = False) -> CallRecord:
    decided = asked and status is not CallStatus.AWAITING_APPROVAL
    verb = DecisionVerb.REJECT if status is CallStatus.REJECTED else DecisionVerb.APPROVE
    return CallRecord(
        id=f"call_{number}",
        tool="cancel_order",
        arguments={"order_id": str(number)},
        effect=ToolEffect.NON_IDEMPOTENT_WRITE,
        turn_id="t1",
        created_at=NOON,
        status=status,
        digest="d1",
        result={"done": number} if status is CallStatus.SUCCEEDED else None,
        error="no such order" if status is CallStatus.FAILED else None,
        decision=Decision(verb=verb, by="Ann", at=NOON, digest="d1") if decided else None,
    )


def snapshot(*messages: Message, calls: tuple[CallRecord, ...] = ()) -> Snapshot:
    return Snapshot(
        session_id="ses_1",
        agent="demo",
        model="demo",
        title="",
        status=SessionStatus.RUNNING,
        created_at=NOON,
        updated_at=NOON,
        turn=None,
        messages=messages,
        has_older=False,
        calls=calls,
        unknown_calls=(),
        queue=(),
        usage=Usage(),
        resume_token="1-0",
        version=1,
    )


def response(seq: int, text: str, reasoning: str = "", *calls: CallRecord) -> Message:
    return Message(
        seq=seq,
        role=Role.ASSISTANT,
        text=text,
        reasoning=reasoning,
        created_at=NOON,
        turn_id="t1",
        calls=tuple(CallReference(id=one.id, tool=one.tool, arguments="{}") for one in calls),
    )


@dataclass
class Reader:
    """Puts chunks together as ``processUIMessageStream`` of the SDK does, and checks their order."""

    parts: list[dict[str, Any]] = field(default_factory=list)
    active: dict[str, dict[str, Any]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)

    def take(self, chunks: Iterator[dict[str, Any]]) -> None:
        for chunk in chunks:
            kind, _, what = str(chunk["type"]).partition("-")
            self.seen.append(str(chunk["type"]))
            match kind:
                case "text" | "reasoning":
                    self._text(kind, what, chunk)
                case "tool":
                    self._tool(what, chunk)
                case "reset":
                    while self.parts and self.parts[-1]["type"] != "step-start":
                        self.parts.pop()
                    self.active = {}
                case "start" if what == "step":
                    self.parts.append({"type": "step-start"})

    def _text(self, kind: str, what: str, chunk: dict[str, Any]) -> None:
        own_id = str(chunk["id"])
        if what == "start":
            assert own_id not in self.active
            self.active[own_id] = {"type": kind, "text": "", "state": "done"}
            self.parts.append(self.active[own_id])
        elif what == "delta":
            self.active[own_id]["text"] += chunk["delta"]
        else:
            del self.active[own_id]

    def _tool(self, what: str, chunk: dict[str, Any]) -> None:
        known: dict[object, dict[str, Any]] = {part.get("toolCallId"): part for part in self.parts}
        if what == "input-available":
            assert chunk["toolCallId"] not in known, "two inputs of one call"
            part: dict[str, Any] = {
                "type": f"tool-{chunk['toolName']}",
                "toolCallId": chunk["toolCallId"],
                "state": "input-available",
                "input": chunk["input"],
            }
            self.parts.append(part)
            return
        if what == "approval-response":
            part = next(
                p for p in known.values() if p.get("approval", {}).get("id") == chunk["approvalId"]
            )
            part["approval"]["approved"] = chunk["approved"]
            part["state"] = "approval-responded"
            return
        part = known[chunk["toolCallId"]]
        assert not part["state"].startswith("output-"), "something after the end of a call"
        if what == "approval-request":
            part |= {"state": "approval-requested", "approval": {"id": chunk["approvalId"]}}
        else:
            part["state"] = what
            part |= {name: chunk[name] for name in ("output", "errorText") if name in chunk}


def shown(*messages: Message, calls: tuple[CallRecord, ...] = ()) -> list[dict[str, Any]]:
    (message,) = ui_messages(snapshot(*messages, calls=calls))
    assert isinstance(message, dict)
    parts = message["parts"]
    assert isinstance(parts, list)
    return [part for part in parts if isinstance(part, dict)]


Streamed = tuple[Message, list[str], tuple[CallRecord, ...]]
texts = st.text("ab ", max_size=6)


@st.composite
def turns(draw: st.DrawFn) -> list[Streamed]:
    """Responses of a turn, each with the texts of the attempts that were streamed before it came."""
    made = []
    number = 0
    for seq in range(draw(st.integers(1, 4))):
        calls = []
        for _ in range(draw(st.integers(0, 3))):
            number += 1
            calls.append(call(number, draw(st.sampled_from(SETTLED)), asked=draw(st.booleans())))
        message = response(seq, draw(texts), draw(texts), *calls)
        streamed = [draw(texts) for _ in range(draw(st.integers(0, 2)))]
        if draw(st.booleans()):
            streamed.append(message.text[: draw(st.integers(0, 6))])
        made.append((message, streamed, tuple(calls)))
    return made


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(turns())
def test_chunks_add_up_to_what_a_reload_shows(
    turn: list[Streamed],
) -> None:
    chunks, reader = TurnChunks("t1"), Reader()
    reader.take(chunks.start())
    messages: list[Message] = []
    calls: list[CallRecord] = []
    for number, (message, streamed, made) in enumerate(turn):
        for attempt, text in enumerate(streamed):
            if text:
                reader.take(chunks.delta("text", f"s{number}", attempt, text))
        messages.append(message)
        waiting = [
            one.model_copy(update={"status": CallStatus.AWAITING_APPROVAL, "decision": None})
            for one in made
            if one.decision is not None
        ]
        rest = [one for one in made if one.decision is None]
        reader.take(chunks.look(snapshot(*messages, calls=(*calls, *waiting, *rest))))
        calls.extend(made)
        reader.take(chunks.look(snapshot(*messages, calls=tuple(calls))))
        reader.take(chunks.look(snapshot(*messages, calls=tuple(calls))))
    reader.take(chunks.finish("answered"))
    assert reader.active == {}
    assert reader.parts == shown(*messages, calls=tuple(calls))
    assert reader.seen.count("start-step") == reader.seen.count("finish-step")


def test_what_a_failed_attempt_wrote_is_taken_back() -> None:
    chunks, reader = TurnChunks("t1"), Reader()
    reader.take(chunks.delta("text", "s1", 1, "I will"))
    reader.take(chunks.withdraw())
    reader.take(chunks.delta("text", "s1", 2, "No"))
    reader.take(chunks.look(snapshot(response(0, "No."))))
    assert [part.get("text") for part in reader.parts] == [None, "No."]


def test_a_reader_that_has_the_request_gets_only_what_came_after_it() -> None:
    asked = call(1, CallStatus.SUCCEEDED, asked=True)
    first, second = response(0, "May I?", "", asked), response(1, "Done.")
    has = {"call_1": frozenset({"input", "approval d1", "decision d1"})}
    chunks = TurnChunks("t1", has)
    kinds = [chunk["type"] for chunk in chunks.look(snapshot(first, second, calls=(asked,)))]
    assert kinds == [
        "tool-output-available",
        "start-step",
        "text-start",
        "text-delta",
        "text-end",
    ]


def test_a_call_that_is_asked_again_has_a_request_of_its_own() -> None:
    first = call(1, CallStatus.AWAITING_APPROVAL)
    again = first.model_copy(update={"digest": "d2", "approval_reason": "the tool changed"})
    message = response(0, "", "", first)
    chunks = TurnChunks("t1")
    kinds = [c for one in (first, again) for c in chunks.look(snapshot(message, calls=(one,)))]
    requests = [c for c in kinds if c["type"] == "tool-approval-request"]
    assert [c["approvalId"] for c in requests] == ["call_1.d1", "call_1.d2"]
    assert requests[1]["reason"] == "the tool changed"
