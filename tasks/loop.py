"""One event loop thread per process, shared by everything asynchronous in it.

Clients that pool connections belong to a loop, so a loop of their own per step would break them. A step goes to the
loop and comes back for each model call and each async tool, so that way is short: asyncio's own
(`run_coroutine_threadsafe`) makes two futures and a condition for each coroutine and wakes the loop each time.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Generic, TypeVar

__all__ = ["LoopThread", "Running"]

_log = logging.getLogger(__name__)

Result = TypeVar("Result")


class Running(Generic[Result]):
    """A coroutine on the loop, as the thread that gave it sees it.

    Args:
        work: The coroutine.
    """

    def __init__(self, work: Coroutine[object, object, Result]) -> None:
        self._work = work
        # Its log lines are about what the thread works on that gave it.
        self._context = copy_context()
        self._ended = threading.Lock()
        self._ended.acquire()
        self._value: Result
        self._error: BaseException | None = None
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False

    def begin(self) -> None:
        """Start it; only for the loop's own thread."""
        self._task = asyncio.get_running_loop().create_task(self._run(), context=self._context)
        if self._cancelled:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            self._value = await self._work
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits for it
            self._error = error
        finally:
            self._ended.release()

    def cancel(self) -> None:
        """Cancel it; only for the loop's own thread."""
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()

    def result(self) -> Result:
        """Wait for its end and return its result, or raise what it raised; once."""
        self._ended.acquire()
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # its traceback refers to this very frame
        return self._value


class LoopThread:
    """An event loop in a daemon thread; make it after any fork."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._new: deque[Running[object]] = deque()
        self._told = False
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

    def submit(self, work: Coroutine[object, object, Result]) -> Running[Result]:
        """Start a coroutine on the loop."""
        running = Running(work)
        self._new.append(running)  # type: ignore[arg-type]  # nobody reads its result here
        if not self._told:
            self._told = True
            self._loop.call_soon_threadsafe(self._begin)
        return running

    def _begin(self) -> None:
        # Before looking: what is given after the last look tells anew.
        self._told = False
        while self._new:
            self._new.popleft().begin()

    def cancel(self, running: Running[Result]) -> None:
        """Cancel a coroutine, if it has not ended."""
        self._loop.call_soon_threadsafe(running.cancel)

    def run(self, work: Coroutine[object, object, Result]) -> Result:
        """Run a coroutine on the loop and wait for its result."""
        return self.submit(work).result()
