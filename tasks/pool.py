"""Celery's `threads` pool with a cheaper hand-off: one lock released for each step, no future, no queue.

The thread that became idle last gets the next step: its connection and caches are warm, and under little load
few threads take part at all.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from celery import concurrency
from celery.concurrency.base import BasePool, apply_target

__all__ = ["TaskPool", "install"]

_log = logging.getLogger(__name__)

Work = Callable[[], object]


class _Thread(threading.Thread):
    """Runs what it is given, then whatever waits, until it is told to end."""

    def __init__(self, pool: TaskPool, number: int) -> None:
        # A daemon, because a worker that breaks must be able to exit; one that stops waits for its pool.
        super().__init__(name=f"celeriac-step-{number}", daemon=True)
        self._pool = pool
        self._work: Work | None = None
        self._gate = threading.Lock()
        self._gate.acquire()

    def give(self, work: Work | None) -> None:
        """Let the idle thread run something, or end (None)."""
        self._work = work
        self._gate.release()

    def run(self) -> None:
        """Run one piece of work after the other."""
        while True:
            self._gate.acquire()
            work = self._work
            if work is None:
                return
            while work is not None:
                try:
                    work()
                except BaseException:  # noqa: BLE001 - one broken task must not cost the pool a thread
                    _log.exception("A task broke the rules of its pool")
                work = self._pool.next_of(self)


class TaskPool(BasePool):
    """A pool of threads for a Celery worker; `limit` is how many at most."""

    body_can_be_buffer = True
    signal_safe = False

    def __init__(self, limit: int, **options: object) -> None:
        super().__init__(limit, **options)  # type: ignore[arg-type]  # Celery's own business
        self._lock = threading.Lock()
        self._threads: list[_Thread] = []
        self._idle: list[_Thread] = []
        self._waiting: deque[Work] = deque()
        self._stopping = False

    def submit(self, work: Work) -> None:
        """Run something on an idle thread, or as soon as there is one."""
        with self._lock:
            if self._stopping:
                return
            if self._idle:
                thread = self._idle.pop()
            elif len(self._threads) < self.limit:
                thread = _Thread(self, len(self._threads) + 1)
                self._threads.append(thread)
                thread.start()
            else:
                self._waiting.append(work)
                return
        thread.give(work)

    def next_of(self, thread: _Thread) -> Work | None:
        """Return what waits, for a thread that has finished; None when it is idle now."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            if self._stopping:
                thread.give(None)
            else:
                self._idle.append(thread)
        return None

    def on_apply(
        self,
        target: Callable[..., object],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        callback: Callable[..., object] | None = None,
        accept_callback: Callable[..., object] | None = None,
        **_: object,
    ) -> None:
        """Run a task as Celery's other pools do."""
        self.submit(partial(apply_target, target, args, kwargs, callback, accept_callback))

    def on_stop(self) -> None:
        """Drop what has not begun, and wait for what has."""
        with self._lock:
            self._stopping = True
            self._waiting.clear()
            idle, self._idle = self._idle, []
        for thread in idle:
            thread.give(None)
        for thread in self._threads:
            thread.join()

    def on_terminate(self) -> None:
        """Do the same: a thread cannot be killed, and a step that is left behind would go on unseen."""
        self.on_stop()

    def _get_info(self) -> dict[str, object]:
        return {
            **super()._get_info(),  # type: ignore[misc]  # not in the stubs
            "max-concurrency": self.limit,
            "threads": len(self._threads),
        }


def install() -> None:
    """Let ``--pool threads`` in this process mean this pool."""
    aliases: dict[str, str] = concurrency.ALIASES  # type: ignore[attr-defined]  # not in the stubs
    aliases["threads"] = "celeriac.tasks.pool:TaskPool"
