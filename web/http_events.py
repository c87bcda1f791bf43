"""Live events over HTTP: the server-sent events of a session, resumed where they were cut."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from celeriac.sessions.errors import InvalidRequest, StoreUnavailable
from celeriac.sessions.events import EventBatch, StoredEvent
from celeriac.sessions.jsonsafe import dump_json
from celeriac.web.http_wire import Request, Wire

__all__ = ["follow"]

_RESUME_TOKEN = re.compile(r"[A-Za-z0-9_:.-]{1,100}")
_FAILURES_MAX = 5
_RECONNECT_SECONDS = 2.0


def follow(wire: Wire, session_id: str, after: str) -> Iterator[EventBatch]:
    """Read a session's events for as long as the server can be reached.

    Args:
        wire: Reaches the server.
        session_id: The session; its shape was checked.
        after: The resume token to start from.

    Yields:
        Batches as `HttpSessionClient.follow` describes them.
    """
    if _RESUME_TOKEN.fullmatch(after) is None:
        raise InvalidRequest(
            "`after` is no resume token; take the resume_token of a snapshot.",
            code="invalid_resume_token",
        )
    position, failures = after, 0
    while True:
        request = Request(
            "GET",
            f"/api/sessions/{session_id}/events",
            session_id,
            repeatable=True,
            headers={"Accept": "text/event-stream", "Last-Event-ID": position},
        )
        pause = _RECONNECT_SECONDS
        try:
            with wire.stream(request) as pieces:
                for fields in _blocks(pieces):
                    failures = 0
                    position = fields.get("id", position)
                    batch = _batch(fields)
                    if batch is not None:
                        yield batch
                        if batch.reload:
                            return
        except StoreUnavailable as error:
            failures += 1
            if failures == _FAILURES_MAX:
                raise
            pause = min(error.retry_after_seconds, 30)
        wire.pause(pause)


def _blocks(pieces: Iterator[bytes]) -> Iterator[dict[str, str]]:
    """Yield the fields of each whole block; a comment has none, and what a cut left is dropped."""
    buffer = b""
    for piece in pieces:
        # Bytes, for a text may hold characters that count as ends of lines elsewhere.
        *whole, buffer = (buffer + piece).split(b"\n\n")
        for block in whole:
            lines = (line.partition(": ") for line in block.decode().split("\n"))
            yield {name: value for name, _, value in lines if name}


def _batch(fields: dict[str, str]) -> EventBatch | None:
    if not fields:
        return EventBatch()
    kind = fields.get("event")
    if kind is None:
        return None  # only a position
    if kind == "reload":
        return EventBatch(reload=True)
    stored = dump_json({"type": kind, "data": json.loads(fields["data"])})
    return EventBatch((StoredEvent(fields["id"], stored),))
