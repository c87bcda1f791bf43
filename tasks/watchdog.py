"""Notice a worker that takes nothing although work is queued: it connects anew, and ends if that does not help."""

from __future__ import annotations

from enum import Enum

__all__ = ["Advice", "Watchdog"]


class Advice(Enum):
    """What to do about a worker."""

    NOTHING = "nothing"
    RECONNECT = "reconnect"
    END = "end"


class Watchdog:
    """Judges by what each look finds.

    Args:
        patience_seconds: How long it may go on before each measure.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self._since: float | None = None
        self._taken = 0
        self._reconnected = False

    @property
    def is_stuck(self) -> bool:
        """Whether a measure was taken and has not helped yet."""
        return self._reconnected

    def forget(self) -> None:
        """Begin anew: what was seen before says nothing of what comes now."""
        self._since = None
        self._reconnected = False

    def look(self, *, work_waits: bool, taken: int, now: float) -> Advice:
        """Judge.

        Args:
            work_waits: Whether work is queued that this worker has room for.
            taken: How many messages it has taken so far.
            now: Monotonic clock, in seconds.

        Returns:
            What to do.
        """
        if taken != self._taken or not work_waits:
            self._taken = taken
            self.forget()
            return Advice.NOTHING
        if self._since is None:
            self._since = now
        if now - self._since < self._patience:
            return Advice.NOTHING
        self._since = now
        if self._reconnected:
            return Advice.END
        self._reconnected = True
        return Advice.RECONNECT
