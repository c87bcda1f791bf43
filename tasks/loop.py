"""One event loop thread per process, shared by everything asynchronous in it.

Clients that pool connections belong to a loop, so a loop of their own per step would break them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["LoopThread"]

Result = TypeVar("Result")


class LoopThread:
    """An event loop in a daemon thread; make it after any fork."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="celeriac-loop", daemon=True
        )
        self._thread.start()

    def submit(self, work: Coroutine[object, object, Result]) -> Future[Result]:
        """Start a coroutine on the loop and return its future."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[object, object, Result]) -> Result:
        """Run a coroutine on the loop and wait for its result."""
        return self.submit(work).result()
