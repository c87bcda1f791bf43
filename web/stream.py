"""Event streams: a session's live events as server-sent events.

A stream starts at a position, never "now" without one: between loading a snapshot and opening the stream
nothing may be lost. The id of each event is its signed resume token.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http import HTTPStatus

from celeriac.sessions.client import SessionClient
from celeriac.sessions.errors import CeleriacError
from celeriac.sessions.events import EventBatch, StoredEvent
from celeriac.sessions.jsonsafe import dump_json
from celeriac.web.hub import EventHub
from celeriac.web.keys import WebKey
from celeriac.web.problems import Refusal
from celeriac.web.turns import Turns

__all__ = ["HEARTBEAT", "StreamTiming", "Streams", "stream_cap"]

HEARTBEAT = ": still here\n\n"
_RECONNECT_MS = 2000
# Reads take turns at so many of the store's connections, however many streams are rung at a time.
_READS = 8
_READ_EVENTS = 200


@dataclass(frozen=True, slots=True)
class StreamTiming:
    """How a stream paces itself, in seconds."""

    heartbeat: float = 15.0
    longest: float = 600.0
    """Streams end and are resumed: that spreads them over new processes and checks access again."""
    block: float = 0.5
    """Longest wait inside the store; also how long a shutdown waits for a stream."""


def stream_cap(threads: int) -> int:
    """Return how many streams a process with this many threads may hold; the rest serve requests."""
    return max(threads - 50, threads // 2, 1)


class Streams:
    """The streams of one web process: counted, capped and ended together.

    Args:
        cap: How many may be open at a time.
        timing: How they pace themselves.
    """

    def __init__(self, cap: int, timing: StreamTiming | None = None) -> None:
        self.cap = cap
        self.timing = timing or StreamTiming()
        self._hub = EventHub(self.timing.block)
        self._open = 0
        self._lock = threading.Lock()
        self._turns = Turns(_READS)
        # A plain flag: it is set inside a signal's callback, where taking a lock could wait for ever.
        self._closing = False

    @property
    def open_streams(self) -> int:
        """How many streams are open."""
        return self._open

    def close(self) -> None:
        """End every stream soon and take no new one: the process is about to stop."""
        self._closing = True
        self._hub.close()

    def acquire(self) -> StreamSlot:
        """Take one of the places.

        Returns:
            The place, to be released once.

        Raises:
            Refusal: 503; all are taken, or the process is stopping.
        """
        with self._lock:
            if self._closing or self._open >= self.cap:
                raise Refusal(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    "All event streams of this server are in use. Read the snapshot meanwhile and try again.",
                    code="streams_full",
                    headers={"Retry-After": "5"},
                )
            self._open += 1
        return StreamSlot(self)

    def _stopping(self) -> bool:
        return self._closing

    def turn(self) -> AbstractContextManager[None]:
        """Return a context in which a stream may use the store; so many of them cannot use it up."""
        return self._turns.turn()

    def release_one(self) -> None:
        """Give a place back; only a slot calls this."""
        with self._lock:
            self._open -= 1

    def read(
        self, client: SessionClient, key: WebKey, session_id: str, position: str
    ) -> Iterator[str]:
        """Stream a session's events.

        Args:
            client: Reads the events.
            key: Signs the resume tokens.
            session_id: The session.
            position: Where to start; events after it are sent.

        Returns:
            Pieces of the stream. The first read happens here, so that what is wrong with the session or
            the store is raised before the response has begun.
        """
        with self.turn():
            first = client.events(session_id, after=position)
        return self._frames(client, key, session_id, position, first)

    def batches(
        self,
        client: SessionClient,
        session_id: str,
        position: str,
        first: EventBatch | None = None,
    ) -> Iterator[EventBatch]:
        """Read a session's events for as long as a stream may last.

        Args:
            client: Reads the events.
            session_id: The session.
            position: Where to start; events after it are read.
            first: Events after `position` that were read already.

        Returns:
            Batches of events; an empty one is a heartbeat, and one with `reload` is the last.
        """
        self._hub.block = self.timing.block
        batch = first or EventBatch()
        started = quiet_since = time.monotonic()
        with self._hub.watch(client, session_id, position) as bell:
            while True:
                now = time.monotonic()
                if batch.events or batch.reload or now - quiet_since >= self.timing.heartbeat:
                    quiet_since = now
                    position = batch.events[-1].id if batch.events else position
                    yield batch
                ends = started + self.timing.longest
                if batch.reload or self._stopping() or now >= ends:
                    return
                if len(batch.events) < _READ_EVENTS:
                    # A heartbeat reads too: what can no longer be resumed rings no bell.
                    bell.wait(min(ends, quiet_since + self.timing.heartbeat) - time.monotonic())
                bell.clear()
                if self._stopping():
                    return  # without one more read: at a stop all streams would ask at once
                try:
                    with self.turn():
                        batch = client.events(session_id, after=position, limit=_READ_EVENTS)
                except CeleriacError:
                    # The reader reconnects and is told then what is wrong, as a proper status.
                    return

    def _frames(
        self, client: SessionClient, key: WebKey, session_id: str, position: str, first: EventBatch
    ) -> Iterator[str]:
        # The id alone moves the reader's cursor, so that a stream that drops before its first event
        # is resumed from here and not from the end.
        yield f"retry: {_RECONNECT_MS}\nid: {key.resume_token(session_id, position)}\n\n"
        for batch in self.batches(client, session_id, position, first):
            for event in batch.events:
                yield _frame(event, key.resume_token(session_id, event.id))
            if batch.reload:
                yield "event: reload\ndata: {}\n\n"
            elif not batch.events:
                yield HEARTBEAT


class StreamSlot:
    """A taken place for one stream."""

    def __init__(self, streams: Streams) -> None:
        self._streams: Streams | None = streams

    def release(self) -> None:
        """Give the place back; a second time changes nothing."""
        streams, self._streams = self._streams, None
        if streams is not None:
            streams.release_one()


def _frame(event: StoredEvent, token: str) -> str:
    stored = json.loads(event.json)
    return f"id: {token}\nevent: {stored['type']}\ndata: {dump_json(stored['data'])}\n\n"
