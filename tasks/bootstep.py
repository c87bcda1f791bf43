"""What runs beside Celery in the main process of a worker.

The wake loop, the announcer and the watchdog, each on a thread of its own; and the worker's bounded end.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from celery import Celery, bootsteps
from celery.exceptions import WorkerLostError
from celery.signals import (
    task_failure,
    worker_process_init,
    worker_process_shutdown,
    worker_shutdown,
    worker_shutting_down,
)
from celery.worker import state as celery_state

from celeriac.sessions.errors import StoreUnavailable
from celeriac.tasks.announce import Announcer
from celeriac.tasks.pool import TaskPool
from celeriac.tasks.runtime import runtime
from celeriac.tasks.shutdown import Shutdown
from celeriac.tasks.wake import WakeLoop
from celeriac.tasks.watchdog import Advice, Watchdog

__all__ = ["install"]

_log = logging.getLogger(__name__)


class _Hub(Protocol):
    def call_soon(self, callback: object, *arguments: object) -> object: ...


class _Consumer(Protocol):
    hub: _Hub | None


class _Worker(Protocol):
    """What is used of Celery's worker."""

    app: Celery
    hostname: str
    concurrency: int
    pool: object
    consumer: _Consumer | None


class _Part(Protocol):
    """What runs on a thread of its own."""

    def run(self) -> None: ...

    def stop(self) -> None: ...


class CeleriacStep(bootsteps.StartStopStep):
    """Starts and stops our part of a worker with Celery's."""

    label = "Celeriac"
    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: _Worker, **options: object) -> None:
        super().__init__(worker, **options)
        self._loop: WakeLoop | None = None
        self._parts: Mapping[str, _Part] = {}

    def start(self, worker: _Worker) -> None:
        """Start our threads."""
        here = runtime()
        queues = partial(_consumed_queues, worker.app)
        loop = self._loop = WakeLoop(here, queues)
        announcer = Announcer(here, queues, worker.hostname, worker.concurrency)
        shutdown = Shutdown(here, loop.free_claims)
        guard = Guard(worker, loop, announcer, shutdown, here.settings.watchdog_seconds)
        self._parts = {"wake": loop, "announce": announcer, "watchdog": guard}
        for name, part in self._parts.items():
            threading.Thread(target=part.run, name=f"celeriac-{name}", daemon=True).start()
        worker_shutting_down.connect(shutdown.asked, weak=False)
        if not isinstance(worker.pool, TaskPool):
            # Only a process of a pool can be lost alone; and a listener costs every step the short way.
            task_failure.connect(self._task_failed, weak=False)

    def _task_failed(self, exception: object = None, **_: object) -> None:
        if self._loop is not None and isinstance(exception, WorkerLostError):
            self._loop.look_now()

    def stop(self, parent: object) -> None:  # noqa: ARG002 - Celery's signature
        """Stop our threads; the worker finishes what it runs."""
        for part in self._parts.values():
            part.stop()

    def terminate(self, parent: object) -> None:
        """Stop our threads."""
        self.stop(parent)


def _consumed_queues(app: Celery) -> tuple[str, ...]:
    """Return the queues that are consumed just now: an operator may cancel one, or add one."""
    return tuple(app.amqp.queues.consume_from)


class Guard:
    """Feeds the watchdog, and does what it says.

    Args:
        worker: Celery's worker.
        loop: Sees the queues.
        announcer: Tells others of a worker that is stuck.
        shutdown: Ends the worker in good order.
        patience_seconds: See `Watchdog`.
    """

    def __init__(
        self,
        worker: _Worker,
        loop: WakeLoop,
        announcer: Announcer,
        shutdown: Shutdown,
        patience_seconds: float,
    ) -> None:
        self._worker = worker
        self._loop = loop
        self._announcer = announcer
        self._shutdown = shutdown
        self._watchdog = Watchdog(patience_seconds)
        self._interval = patience_seconds / 10
        self._stop = threading.Event()

    def run(self) -> None:
        """Look until stopped."""
        while not self._stop.wait(self._interval):
            try:
                self._look()
            except StoreUnavailable:
                self._watchdog.forget()  # nobody can take anything now
            except Exception:  # noqa: BLE001 - a fault of ours must not leave the worker unwatched
                _log.exception("The watchdog met an error and goes on")

    def stop(self) -> None:
        """End `run` soon."""
        self._stop.set()

    def _look(self) -> None:
        has_room = len(celery_state.reserved_requests) < self._worker.concurrency
        taken = celery_state.all_total_count[0]
        queued = self._loop.queued()
        advice = self._watchdog.look(
            work_waits=bool(queued) and has_room, taken=taken, now=time.monotonic()
        )
        self._announcer.stuck = self._watchdog.is_stuck
        if advice is Advice.RECONNECT:
            _log.error("Nothing is taken from %s; connecting anew", ", ".join(sorted(queued)))
            self._reconnect()
        elif advice is Advice.END:
            _log.error("Still nothing is taken; this worker ends, to be started again")
            celery_state.should_stop = 1  # type: ignore[assignment]  # the stubs know None only
            self._shutdown.begin()

    def _reconnect(self) -> None:
        hub = self._worker.consumer.hub if self._worker.consumer else None
        if hub is not None:
            # Raised in Celery's event loop it is treated as any lost connection.
            hub.call_soon(_lose_connection)


def _lose_connection() -> None:
    raise ConnectionResetError("given up by the watchdog, for nothing came through it")


def install(app: Celery) -> None:
    """Let every worker of this app have our part, and its processes say when they begin and end."""
    app.steps["worker"].add(CeleriacStep)
    worker_process_init.connect(_process_begins, weak=False)
    worker_shutdown.connect(_process_ends, weak=False)
    worker_process_shutdown.connect(_process_ends, weak=False)


def _process_begins(**_: object) -> None:
    runtime()


def _process_ends(**_: object) -> None:
    here = runtime()
    if here.leases.held == 0:
        here.life.end()
    try:
        here.close_sources()
    except Exception:  # noqa: BLE001 - whatever an author's source does, this process ends
        _log.exception("A source of tools could not be closed")
    here.tracing.close()
