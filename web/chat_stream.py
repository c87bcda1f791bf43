"""The UI message stream of one turn: follows the session's events and reads snapshots where they point to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from celeriac.sessions.client import SessionClient
from celeriac.sessions.errors import CeleriacError
from celeriac.sessions.events import EventBatch, EventType, StoredEvent
from celeriac.sessions.jsonsafe import dump_json
from celeriac.sessions.messages import turn_usage
from celeriac.sessions.snapshot import Snapshot
from celeriac.sessions.state import SessionStatus
from celeriac.web.chat_chunks import REASONING, TEXT, Chunk, TurnChunks
from celeriac.web.stream import HEARTBEAT, Streams

__all__ = ["ChatTarget", "chat_frames"]

_DELTAS = {EventType.TEXT_DELTA.value: TEXT, EventType.REASONING_DELTA.value: REASONING}
_STRUCTURE = frozenset(
    {
        EventType.MESSAGE_ADDED.value,
        EventType.CALL_UPDATED.value,
        EventType.QUEUE_CHANGED.value,
        EventType.PLAN_CHANGED.value,
        EventType.TURN_STARTED.value,
        EventType.TURN_ENDED.value,
    }
)


@dataclass(frozen=True, slots=True)
class ChatTarget:
    """Which turn is streamed: a known one, or the one that takes a message."""

    position: str
    """Where in the session's events to start; nothing that the reader has not is before it."""
    turn_id: str | None = None
    message_id: str | None = None
    ended: bool = False
    """The turn had ended before that position, so no event will say so."""
    shown: Mapping[str, frozenset[str]] | None = None
    """As in `TurnChunks`."""


def chat_frames(
    streams: Streams, client: SessionClient, session_id: str, target: ChatTarget
) -> Iterator[str]:
    """Stream a turn until it ended or waits for somebody.

    Args:
        streams: Pace the reading and end it when the process stops.
        client: Reads the session.
        session_id: The session.
        target: The turn.

    Returns:
        Server-sent events. The first read happens here, so that what is wrong is raised before the
        response has begun.
    """

    def snapshot() -> Snapshot:
        with streams.turn():
            return client.snapshot(session_id)

    follower = _Follower(snapshot, target)
    batches = streams.batches(client, session_id, target.position)
    return _frames(batches, follower, snapshot())


def _frames(batches: Iterator[EventBatch], follower: _Follower, first: Snapshot) -> Iterator[str]:
    yield from map(_frame, follower.look(first))
    while not follower.done and (batch := next(batches, None)) is not None:
        if not batch.events and not batch.reload:
            yield HEARTBEAT
        try:
            chunks = list(follower.read(batch))
        except CeleriacError:
            break  # the reader resumes, and is told then what is wrong, as a proper status
        yield from map(_frame, chunks)
    yield from map(_frame, follower.close())
    yield "data: [DONE]\n\n"


def _frame(chunk: Chunk) -> str:
    return f"data: {dump_json(chunk)}\n\n"


class _Follower:
    """Decides what each event shows."""

    def __init__(self, snapshot: Callable[[], Snapshot], target: ChatTarget) -> None:
        self.done = False
        self._snapshot = snapshot
        self._target = target
        self._turn: TurnChunks | None = None
        self._looked_at = (0, 0)
        self._open_steps: frozenset[str] = frozenset()
        self._usage: JsonValue = None

    def look(self, snapshot: Snapshot) -> Iterator[Chunk]:
        """Show what a snapshot has of the turn, and end when the turn waits for somebody."""
        self._looked_at = _number(snapshot.resume_token)
        turn_id = self._turn_id(snapshot)
        if turn_id is None:
            return
        if self._turn is None:
            self._turn = TurnChunks(turn_id, self._target.shown)
            yield from self._turn.start()
        yield from self._turn.look(snapshot)
        open_turn = snapshot.turn if snapshot.turn and snapshot.turn.id == turn_id else None
        self._open_steps = (
            frozenset(step.id for step in open_turn.steps) if open_turn else frozenset()
        )
        used = open_turn.usage if open_turn else turn_usage(snapshot.messages, turn_id)
        self._usage = used.model_dump(mode="json")
        if open_turn is not None:
            if snapshot.status is SessionStatus.WAITING:
                yield from self._finish("waiting")
        elif self._target.ended:
            yield from self._finish("ended")

    def read(self, batch: EventBatch) -> Iterator[Chunk]:
        """Show what events say."""
        if batch.reload:
            yield from self.look(self._snapshot())
        for event in batch.events:
            if not self.done:
                yield from self._event(event)

    def close(self) -> Iterator[Chunk]:
        """End a stream that ends before its turn: the reader may resume it."""
        if not self.done:
            yield from self._finish("unfinished")

    def _turn_id(self, snapshot: Snapshot) -> str | None:
        target = self._target
        if self._turn is not None or target.turn_id is not None:
            return self._turn.turn_id if self._turn is not None else target.turn_id
        return next(
            (one.turn_id for one in snapshot.messages if one.message_id == target.message_id), None
        )

    def _event(self, event: StoredEvent) -> Iterator[Chunk]:
        stored = json.loads(event.json)
        kind, data = stored["type"], stored["data"]
        known = _number(event.id) <= self._looked_at
        if kind in _DELTAS and self._turn is not None:
            if not known or data["step_id"] in self._open_steps:
                yield from self._turn.delta(
                    _DELTAS[kind], data["step_id"], data["attempt"], data["text"]
                )
        elif kind == EventType.TEXT_WITHDRAWN and self._turn is not None:
            yield from self._turn.withdraw()
        elif kind in _STRUCTURE and not known:
            yield from self.look(self._snapshot())
        ended = kind == EventType.TURN_ENDED and self._turn is not None
        if ended and not self.done and data["turn_id"] == self._turn_of_event():
            yield from self._finish(data["state"], error=data.get("error"))

    def _turn_of_event(self) -> str | None:
        return self._turn.turn_id if self._turn is not None else None

    def _finish(self, state: str, *, error: str | None = None) -> Iterator[Chunk]:
        self.done = True
        if self._turn is not None:
            yield from self._turn.finish(state, error=error, usage=self._usage)


def _number(position: str) -> tuple[int, int]:
    milliseconds, _, count = position.partition("-")
    return int(milliseconds), int(count or 0)
