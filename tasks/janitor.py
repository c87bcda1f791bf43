"""Frees long contexts bit by bit, beside the steps.

Freed at once, ten thousand messages hold up every other thread of the process for many milliseconds: the
interpreter is not given away while a list is taken down. The next step of the very same session would wait for it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence

__all__ = ["Janitor"]

_FREED_AT_ONCE = 50
_PAUSE_SECONDS = 0.001


class Janitor:
    """Takes what steps no longer need; make it after any fork."""

    def __init__(self) -> None:
        self._left: queue.SimpleQueue[list[object]] = queue.SimpleQueue()
        self._pause = threading.Event()
        self._thread = threading.Thread(target=self._run, name="celeriac-janitor", daemon=True)
        self._thread.start()

    def take(self, items: Sequence[object]) -> None:
        """Keep items alive until they can be freed in passing; few of them are not worth it."""
        if len(items) > _FREED_AT_ONCE:
            self._left.put(list(items))

    def _run(self) -> None:
        while True:
            items = self._left.get()
            while items:
                del items[-_FREED_AT_ONCE:]
                self._pause.wait(_PAUSE_SECONDS)
