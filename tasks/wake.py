"""The wake loop: every worker looks at the wake index and moves on what is due.

It sends steps again whose message was lost, turns leases of dead workers into retries or unknown outcomes,
and fires timers. There is no leader: taking a session from the index is atomic.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from celeriac.sessions.errors import StoreUnavailable
from celeriac.sessions.inputs import WokenUp
from celeriac.sessions.store.keys import PARTITIONS
from celeriac.sessions.store.lives import LifeRecord
from celeriac.sessions.store.packing import pack_session
from celeriac.tasks.logs import log_facts
from celeriac.tasks.lost import Undertaker
from celeriac.tasks.names import MODEL_QUEUE, TOOL_QUEUE
from celeriac.tasks.queues import queue_depths
from celeriac.tasks.runtime import Runtime
from celeriac.tasks.urls import broker_is_store

__all__ = ["WakeLoop"]

_log = logging.getLogger(__name__)

_PACKING_SECONDS = 0.25
"""Longest time that one look packs: what else is due must not wait for it."""
_LONGEST_WAIT = 1.3
"""Workers look at different times: up to a third earlier or later than the interval says."""


class WakeLoop:
    """Looks at the wake index until it is stopped.

    Args:
        here: This process's parts.
        queues: Says which queues this worker consumes just now.
    """

    def __init__(self, here: Runtime, queues: Callable[[], Sequence[str]]) -> None:
        self._here = here
        self._queues = queues
        self._interval = here.settings.wake_interval_seconds
        self._lease = here.settings.lease_seconds
        self._outage_after = self._interval * _LONGEST_WAIT + self._lease / 2
        self._stopped = False
        self._call = threading.Event()
        self._undertaker = Undertaker(
            here.lives, here.life, here.owner, here.worker, here.settings.lease_seconds
        )
        self._partitions = list(range(PARTITIONS))
        self._ended_at = time.monotonic()
        self._lenient_until = 0.0

    def run(self) -> None:
        """Look at the index at every interval; an outage of the store is waited out."""
        while True:
            self._call.wait(self._interval * random.uniform(0.7, _LONGEST_WAIT))  # noqa: S311
            self._call.clear()
            if self._stopped:
                return
            try:
                self.look()
                self.free_claims_of_the_dead()
            except StoreUnavailable as error:
                _log.warning("The wake loop waits for the store: %s", error)
            except Exception:  # noqa: BLE001
                # The loop must outlive anything: without it, lost messages stay lost.
                _log.exception("The wake loop met an error and goes on")

    def stop(self) -> None:
        """End `run` soon."""
        self._stopped = True
        self._call.set()

    def look_now(self) -> None:
        """Let `run` look at once: something has happened."""
        self._call.set()

    def look(self) -> int:
        """Move on every session that is due; return how many there were."""
        random.shuffle(self._partitions)
        due = self._here.store.take_due(self._partitions)
        # Time that the last look took for its own work says nothing of the store. A look that failed
        # half-way has not ended, so the next one counts as the first after the outage.
        now = time.monotonic()
        if now - self._ended_at > self._outage_after:
            # For the length of a lease: a command that nobody waited for any more may have taken the due
            # sessions before this look. No lease is extended twice in that time.
            self._lenient_until = now + self._lease
        if due:
            after_outage = now < self._lenient_until
            event = WokenUp(backlogged=self._backlogged(), after_outage=after_outage)
            for session_id in due:
                self._wake(session_id, event)
        self._pack()
        self._ended_at = time.monotonic()
        return len(due)

    def free_claims_of_the_dead(self) -> None:
        """Give the steps of dead processes back, before their leases are over."""
        dead = self._undertaker.look()
        if dead:
            self.free_claims(dead, "the worker that ran it was lost")

    def free_claims(self, owners: Mapping[str, LifeRecord], why: str) -> None:
        """Give the steps of some owners back.

        Args:
            owners: The owners; they run nothing any more.
            why: What became of them, as their sessions will tell.

        Raises:
            StoreUnavailable: The store did not answer; the leases will tell.
        """
        event = WokenUp(backlogged=self._backlogged(), dead_owners=dict.fromkeys(owners, why))
        lease_ms = max(record.lease_ms for record in owners.values())
        for session_id in self._here.lives.claims_of(owners, lease_ms):
            self._wake(session_id, event)

    def _wake(self, session_id: str, event: WokenUp) -> None:
        """Move a session on."""
        with log_facts({"session_id": session_id}):
            self._apply(session_id, event)

    def _apply(self, session_id: str, event: WokenUp) -> None:
        try:
            state, changed = self._here.store.apply(session_id, event)
            if not changed:
                self._here.store.reindex(session_id)
            _log.debug("Looked at %s: %s", session_id, state.status.value)
        except StoreUnavailable:
            raise
        except Exception:  # noqa: BLE001
            # One session that a newer version wrote, say, must not keep the others from being looked at.
            _log.exception("Session %s could not be moved on", session_id)

    def _pack(self) -> None:
        """Pack idle sessions, for a short time: the others are due again soon, and nothing waits for it."""
        until = time.monotonic() + _PACKING_SECONDS
        while idle := self._here.store.take_idle(self._partitions):
            for session_id in idle:
                if time.monotonic() > until:
                    return
                self._pack_one(session_id)

    def _pack_one(self, session_id: str) -> None:
        try:
            pack_session(self._here.store, session_id, self._deletes_summarised)
        except StoreUnavailable:
            raise
        except Exception:  # noqa: BLE001
            # It works unpacked, too. Without this it would be tried again every other second.
            _log.exception("Session %s could not be packed", session_id)
            self._here.store.leave_unpacked(session_id)

    def _deletes_summarised(self, agent_name: str) -> bool:
        agent = self._here.agents.get(agent_name)
        policy = agent.compaction if agent else None
        return policy is not None and policy.delete_summarised

    def queued(self) -> frozenset[str]:
        """Return those of this worker's queues in which messages wait, where that can be seen.

        Raises:
            StoreUnavailable: The store did not answer.
        """
        if not broker_is_store(self._here.settings):
            return frozenset()
        queues = self._queues()
        depths = queue_depths(self._here.store.client, queues)
        return frozenset(queue for queue, depth in zip(queues, depths, strict=True) if depth)

    def _backlogged(self) -> frozenset[str | None]:
        waiting = self.queued()
        # A step without a queue of its own is in one of the two default ones.
        default = {None} if waiting & {MODEL_QUEUE, TOOL_QUEUE} else set()
        return waiting | default
