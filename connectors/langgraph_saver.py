"""The state of a graph that waits for results, as JSON."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import JsonValue

__all__ = ["THREAD", "TurnSaver", "UnreadableStateError"]

THREAD = "turn"
"""A saver holds one run; nothing else is ever in it."""

_Typed = tuple[str, bytes]


class UnreadableStateError(Exception):
    """The state holds objects that nothing may read back."""


class TurnSaver(InMemorySaver):
    """Holds the checkpoints of one run.

    Values are read back only where they are plain, or of a class that was named: whoever could write the store
    must not choose what is made of it.

    Args:
        state_types: Classes of the application that the state may hold.
    """

    def __init__(self, state_types: Sequence[type] = ()) -> None:
        super().__init__(serde=JsonPlusSerializer(allowed_msgpack_modules=list(state_types)))

    def dump(self) -> JsonValue:
        """Return the newest checkpoint of the graph and of each graph within.

        Raises:
            UnreadableStateError: A value is of a class that was not named.
        """
        kept: list[JsonValue] = []
        blocked: list[SerdeEvent] = []
        stop = register_serde_event_listener(blocked.append)
        try:
            for namespace, by_id in self.storage[THREAD].items():
                if by_id:  # A graph within that has ended was looked up, and left nothing.
                    kept.append(self._dumped(namespace, max(by_id)))
        finally:
            stop()
        if blocked:
            names = sorted({f"{event['module']}.{event['name']}" for event in blocked})
            raise UnreadableStateError(
                f"the graph's state holds {', '.join(names)}: name such classes in state_types=[...]"
            )
        return kept

    def _dumped(self, namespace: str, newest: str) -> JsonValue:
        checkpoint, metadata, _ = self.storage[THREAD][namespace][newest]
        versions = self.serde.loads_typed(checkpoint)["channel_versions"]
        blobs: list[JsonValue] = []
        for channel, version in versions.items():
            blob = self.blobs.get((THREAD, namespace, channel, version))
            if blob is not None:
                self._require_readable(blob)
                blobs.append([channel, version, *_text(blob)])
        writes: list[JsonValue] = []
        for (task, at), (_, channel, value, path) in self.writes[THREAD, namespace, newest].items():
            self._require_readable(value)
            writes.append([task, at, channel, *_text(value), path])
        return {
            "namespace": namespace,
            "id": newest,
            "checkpoint": _text(checkpoint),
            "metadata": _text(metadata),
            "blobs": blobs,
            "writes": writes,
        }

    def _require_readable(self, value: _Typed) -> None:
        if value[0] != "empty":
            self.serde.loads_typed(value)

    def load(self, kept: JsonValue) -> None:
        """Read what `dump` returned.

        Raises:
            ValueError: It is of another form.
            LookupError: Likewise.
            TypeError: Likewise.
        """
        if not isinstance(kept, list):
            raise TypeError(f"a list was expected, not {type(kept).__name__}")
        for part in kept:
            if not isinstance(part, dict):
                raise TypeError(f"a dict was expected, not {type(part).__name__}")
            self._load(part)

    def _load(self, part: Mapping[str, Any]) -> None:
        namespace, newest = str(part["namespace"]), str(part["id"])
        self.storage[THREAD][namespace][newest] = (
            _typed(part["checkpoint"]),
            _typed(part["metadata"]),
            None,
        )
        for channel, version, *value in part["blobs"]:
            self.blobs[THREAD, namespace, channel, version] = _typed(value)
        writes = self.writes[THREAD, namespace, newest]
        for task, at, channel, kind, text, path in part["writes"]:
            writes[task, at] = (task, channel, _typed([kind, text]), path)


def _text(value: _Typed) -> list[JsonValue]:
    return [value[0], b64encode(value[1]).decode()]


def _typed(value: Sequence[str]) -> _Typed:
    kind, text = value
    return kind, b64decode(text)
