"""One event loop thread per process, shared by everything asynchronous in it.

Clients that pool connections belong to a loop, so a loop of their own per step would break them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["LoopThread"]

_log = logging.getLogger(__name__)

Result = TypeVar("Result")


class LoopThread:
    """An event loop in a daemon thread; make it after any fork."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="celeriac-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                # asyncio gives these to whoever awaits the task and then leaves its loop. One tool that
                # calls exit() must not end the work of every other session in this process.
                _log.exception("Code on the event loop tried to end the process; the loop goes on")
            else:
                return

    def submit(self, work: Coroutine[object, object, Result]) -> Future[Result]:
        """Start a coroutine on the loop and return its future."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[object, object, Result]) -> Result:
        """Run a coroutine on the loop and wait for its result."""
        return self.submit(work).result()
