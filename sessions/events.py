"""Live events: hints for pages and clients. Best effort; the snapshot is the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import JsonValue
from pydantic_core import to_json

__all__ = ["EventBatch", "EventType", "LiveEvent", "StoredEvent"]


class EventType(StrEnum):
    """Every kind of live event, with what its data holds."""

    TEXT_DELTA = "text.delta"
    """`step_id`, `attempt`, `text`: a piece of the answer that is being written."""
    REASONING_DELTA = "reasoning.delta"
    """`step_id`, `attempt`, `text`."""
    TEXT_WITHDRAWN = "text.withdrawn"
    """`step_id`, `attempt`: the attempt failed; what it streamed does not count."""
    STEP_STARTED = "step.started"
    """`step_id`, `name`, `call_id`."""
    STEP_ENDED = "step.ended"
    """`step_id`, `name`, `call_id`, `status`, `error`."""
    CALL_UPDATED = "call.updated"
    """`call_id`, `tool`, `status`: also approvals, questions and timers that begin or end."""
    TOOL_PROGRESS = "tool.progress"
    """`call_id`, `text`."""
    MESSAGE_ADDED = "message.added"
    """`seq`, `role`."""
    QUEUE_CHANGED = "queue.changed"
    """`length`."""
    PLAN_CHANGED = "plan.changed"
    """`revision`, `status`."""
    TURN_STARTED = "turn.started"
    """`turn_id`."""
    TURN_ENDED = "turn.ended"
    """`turn_id`, `state`: answered, failed, cancelled or steered; `error` when it failed."""


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """An event that is about to be published."""

    type: EventType
    data: Mapping[str, JsonValue]

    def encode(self) -> str:
        """Return its stored JSON."""
        # Three times as fast as `json`, and each step publishes four of them.
        return to_json({"type": self.type.value, "data": dict(self.data)}).decode()


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event read back; `json` is as it was stored: ``{"type": …, "data": {…}}``."""

    id: str
    """Id in the session's stream; it can be resumed from."""
    json: str


@dataclass(frozen=True, slots=True)
class EventBatch:
    """What a reader got.

    `reload` means that the position asked for is older than the stream, or from its future: the reader
    must load the snapshot and go on from its position.
    """

    events: Sequence[StoredEvent] = ()
    reload: bool = False
