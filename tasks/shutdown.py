"""End a worker that was asked to stop: it takes nothing more, finishes what it runs, within a bounded time."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping

from billiard import active_children

from celeriac.sessions.errors import StoreUnavailable
from celeriac.sessions.store.lives import LifeRecord
from celeriac.tasks.life import record_of_this_process
from celeriac.tasks.runtime import Runtime

__all__ = ["Shutdown"]

_log = logging.getLogger(__name__)

_LAST_WORDS_SECONDS = 3.0
"""How long a store that does not answer may hold up the end."""


class Shutdown:
    """Bounds the end of a worker, from its main process.

    Celery waits for running steps for ever, and so does its way of closing connections to a broker that is away.

    Args:
        here: This process's parts.
        free_claims: Gives the steps of some owners back; see `WakeLoop.free_claims`.
    """

    def __init__(
        self, here: Runtime, free_claims: Callable[[Mapping[str, LifeRecord], str], None]
    ) -> None:
        self._here = here
        self._free_claims = free_claims
        self._seconds = here.settings.shutdown_seconds
        self._hurry = threading.Event()

    def asked(self, how: str = "Warm", **_: object) -> None:
        """Begin to end, or end at once if that was asked for before. Runs in a signal handler."""
        if self._here.stopping.is_set() or how != "Warm":
            self._hurry.set()
        self.begin()

    def begin(self) -> None:
        """Begin to end; returns at once."""
        if not self._here.stopping.is_set():
            self._here.stopping.set()
            threading.Thread(target=self._bound, name="celeriac-shutdown", daemon=True).start()

    def _bound(self) -> None:
        asked_again = self._hurry.wait(self._seconds)
        why = "it was asked again" if asked_again else f"{self._seconds:g} s are over"
        _log.warning("This worker ends now, whatever it runs: %s", why)
        last = threading.Thread(target=self._abandon, name="celeriac-abandon", daemon=True)
        last.start()
        last.join(_LAST_WORDS_SECONDS)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)

    def _abandon(self) -> None:
        # The message of a step that is given back may come here, as Celery leaves its request at the broker
        # open until the end; then the wake index sends it again.
        for child in active_children():
            if child.pid is not None:
                os.kill(child.pid, signal.SIGKILL)
        me = record_of_this_process(self._here.worker, self._here.settings.lease_seconds)
        try:
            owners = {
                owner: record
                for owner, record in self._here.lives.all().items()
                if record.machine == me.machine and me.pid in {record.pid, record.parent}
            }
            if owners:
                self._free_claims(owners, "its worker was shut down before it had ended")
            for owner in owners:
                self._here.lives.forget(owner)
        except StoreUnavailable as error:
            _log.warning("What ran here is found when the store is back: %s", error)
