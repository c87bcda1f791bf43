"""Turns at something scarce, in the order in which they were asked for."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Turns"]


class Turns:
    """A semaphore that hands a place to whoever has waited longest.

    `threading.Semaphore` lets a thread that gives a place back take it again before a waiting one wakes;
    here threads do that all the time, and some would wait for ever.

    Args:
        places: How many may have a turn at a time.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a place and keep it for the length of a ``with`` block."""
        self._take()
        try:
            yield
        finally:
            self._give()

    def _take(self) -> None:
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return
            called = threading.Event()
            self._waiting.append(called)
        called.wait()

    def _give(self) -> None:
        with self._lock:
            if self._waiting:
                # Handed over, never free in between.
                self._waiting.popleft().set()
            else:
                self._free += 1
