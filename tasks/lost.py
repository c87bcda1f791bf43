"""Find processes that died holding claims, and give their steps back before their leases are over."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass

from celeriac.sessions.store.lives import LifeRecord, Lives
from celeriac.tasks.life import Life, certainly_ended

__all__ = ["Undertaker"]

_log = logging.getLogger(__name__)

_CONFIRM_SECONDS = 0.5
"""A process is missed in two looks that are at least so far apart."""


@dataclass(frozen=True, slots=True)
class _Missed:
    since: float
    """When it was first missed."""
    held_since: float
    """Since when the looker's own life was held at that time."""


class Undertaker:
    """Tells which registered processes are dead.

    One that has ended on this machine is dead for certain. Of others it is only seen that their connection is
    gone, and that happens to the living too: at an outage of the store or of the network, when this process's own
    is cut as well. So nobody is judged until that one has been held for the length of a lease, by when every
    living process is back. An earlier life of this very worker need not be given that time.

    Args:
        lives: The register.
        life: This process's life.
        owner: Owner of this process's claims.
        worker: This worker's name.
        lease_seconds: Length of a lease.
    """

    def __init__(
        self, lives: Lives, life: Life, owner: str, worker: str, lease_seconds: float
    ) -> None:
        self._lives = lives
        self._life = life
        self._owner = owner
        self._worker = worker
        self._lease = lease_seconds
        self._missed: dict[str, _Missed] = {}

    def look(self) -> Mapping[str, LifeRecord]:
        """Return the processes that are known to be dead; each is returned by one looker only.

        Raises:
            StoreUnavailable: The store did not answer.
        """
        seen, missing = self._lives.missing(self._owner)
        held_since = self._life.held_since if seen else None
        self._missed = {
            owner: missed
            for owner, missed in self._missed.items()
            if owner in missing and missed.held_since == held_since
        }
        dead: dict[str, LifeRecord] = {}
        for owner, record in missing.items():
            if self._is_dead(owner, record, held_since) and self._lives.forget(owner):
                _log.warning("Process %s of %s is dead", record.pid, record.worker)
                dead[owner] = record
        return dead

    def _is_dead(self, owner: str, record: LifeRecord, held_since: float | None) -> bool:
        if certainly_ended(record):
            return True
        if held_since is None or owner == self._owner:
            return False
        now = time.monotonic()
        earlier_life = record.worker == self._worker and self._life.is_first
        if not earlier_life and now - held_since < self._lease:
            return False
        missed = self._missed.setdefault(owner, _Missed(now, held_since))
        return now - missed.since >= _CONFIRM_SECONDS
