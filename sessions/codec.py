"""How sessions are written down: JSON for state, messages and records; a short text for step timings.

What this version writes, every later one must read: `read_state` brings older schema versions up to date.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from pydantic import BaseModel, JsonValue, TypeAdapter

from celeriac.sessions.errors import CeleriacError
from celeriac.sessions.images import ImageReference
from celeriac.sessions.state import SCHEMA_VERSION, SessionState, Step, StepTiming

__all__ = [
    "read_images",
    "read_record",
    "read_state",
    "read_timing",
    "write_images",
    "write_record",
    "write_state",
    "write_timing",
]

_IMAGES = TypeAdapter(tuple[ImageReference, ...])
Record = TypeVar("Record", bound=BaseModel)

UPCASTERS: Mapping[int, Callable[[dict[str, JsonValue]], dict[str, JsonValue]]] = {}
"""For each old schema version, what turns its state into the next version's."""


class UnknownSchema(CeleriacError):
    """A session was written by a newer version of Celeriac."""


def write_record(record: BaseModel) -> str:
    """Serialise a message or record, leaving out what has its default."""
    return record.model_dump_json(exclude_defaults=True)


def read_record(kind: type[Record], raw: bytes | str) -> Record:
    """Read what `write_record` wrote."""
    return kind.model_validate_json(raw)


def write_images(images: Sequence[ImageReference]) -> str:
    """Serialise the images of a queued message."""
    return _IMAGES.dump_json(tuple(images), exclude_defaults=True).decode()


def read_images(raw: bytes | None) -> tuple[ImageReference, ...]:
    """Read what `write_images` wrote; nothing is no images."""
    return () if raw is None else _IMAGES.validate_json(raw)


def write_state(state: SessionState) -> str:
    """Serialise the control state (without the steps' timings)."""
    return state.model_dump_json(exclude_defaults=True)


def read_state(raw: bytes, timings: Mapping[str, StepTiming]) -> SessionState:
    """Read a control state and merge the timings of its steps in.

    Args:
        raw: What `write_state` wrote, in this or any earlier version.
        timings: Timing by step id.

    Raises:
        UnknownSchema: The session was written by a newer version; upgrade this process.
    """
    if not raw.startswith(b'{"schema_version":%d,' % SCHEMA_VERSION):
        raw = _upcast(raw)
    state = SessionState.model_validate_json(raw)
    if not state.steps:
        return state
    return state.evolve(steps=tuple(_timed(step, timings) for step in state.steps))


def _timed(step: Step, timings: Mapping[str, StepTiming]) -> Step:
    timing = timings.get(step.id)
    return step if timing is None else step.evolve(timing=timing)


def _upcast(raw: bytes) -> bytes:
    data = json.loads(raw)
    version = data.get("schema_version", 0)
    while version != SCHEMA_VERSION:
        upcaster = UPCASTERS.get(version)
        if upcaster is None:
            raise UnknownSchema(
                f"Session {data.get('session_id')!r} has schema version {version}; this process reads "
                f"up to {SCHEMA_VERSION}. Run a newer Celeriac."
            )
        data = upcaster(data)
        version += 1
        data["schema_version"] = version
    return json.dumps(data).encode()


def write_timing(timing: StepTiming) -> str:
    """Write ``not_before due sends token claimed_at owner``, as the scripts read it."""
    due = "-" if timing.due is None else timing.due
    return f"{timing.not_before} {due} {timing.sends} {timing.token} {timing.claimed_at} {timing.owner}"


def read_timing(raw: bytes) -> StepTiming:
    """Read what `write_timing` or a script wrote."""
    not_before, due, sends, token, claimed_at, owner = raw.decode().split(" ", 5)
    # What follows is the claim's own name, which matters to the claim script only.
    owner, _, _ = owner.partition("#")
    return StepTiming.model_construct(
        not_before=int(not_before),
        due=None if due == "-" else int(due),
        sends=int(sends),
        token=int(token),
        claimed_at=int(claimed_at),
        owner=owner,
    )
