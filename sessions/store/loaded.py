"""A session's control state as it was read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from celeriac.sessions.codec import read_state, read_timing
from celeriac.sessions.state import SessionState

__all__ = ["Loaded", "loaded_from"]


@dataclass(slots=True)
class Loaded:
    """A session as it was at one moment."""

    state: SessionState
    version: str
    read_at: int
    """The store's clock at that moment, in Unix milliseconds."""
    log_from: int = 0
    """Seq of the first message that is in the log; older ones are in chunks."""
    oldest_seq: int = 0
    """Seq of the oldest message that is kept."""
    stored_bytes: int = 0
    """What the session takes in the store, about."""
    _monotonic: float = field(default_factory=time.monotonic)

    @property
    def now(self) -> int:
        """The store's clock now, as well as this process can tell."""
        return self.read_at + int((time.monotonic() - self._monotonic) * 1000)


def loaded_from(now: int, fields: Sequence[bytes]) -> Loaded:
    """Read a session hash, as the scripts return it."""
    table = dict(zip(fields[::2], fields[1::2], strict=True))
    timings = {
        name[2:].decode(): read_timing(raw) for name, raw in table.items() if name.startswith(b"c:")
    }
    state = read_state(table[b"state"], timings)
    return Loaded(
        state=state,
        version=table[b"version"].decode(),
        read_at=now,
        log_from=int(table.get(b"log_from", 0)),
        oldest_seq=int(table.get(b"oldest", 0)),
        stored_bytes=int(table.get(b"bytes", 0)),
    )
