"""Reads what goes on: counts, queues, sessions that do not move, and why one does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import redis

from celeriac.sessions.codec import read_timing
from celeriac.sessions.operations import (
    Operations,
    QueueInfo,
    Reason,
    SlowSession,
    reasons_of,
)
from celeriac.sessions.snapshot import WorkerInfo
from celeriac.sessions.state import ControlVerb, SessionState, Step
from celeriac.sessions.store.connection import store_errors
from celeriac.sessions.store.keys import SessionKeys, step_field
from celeriac.sessions.store.lists import SessionLists
from celeriac.sessions.store.rates import read_rates
from celeriac.sessions.store.sessions import SessionStore

__all__ = ["QueueLook", "Queues", "SessionOperations"]

_SLOW = 20


@dataclass(frozen=True, slots=True)
class QueueLook:
    """What a look into a queue found."""

    depth: int
    oldest: tuple[str, str] | None
    """Session and step of the oldest message, if it is one of ours."""


class Queues(Protocol):
    """What is known of queues outside of the store."""

    @property
    def defaults(self) -> Sequence[str]:
        """Queues that there are even if no worker takes them."""

    def of(self, step: Step) -> str:
        """Return the queue that a step is sent to."""

    def look(self, client: redis.Redis, names: Sequence[str]) -> Sequence[QueueLook | None]:
        """Look into queues; None for each where the broker is not the session store."""


class SessionOperations:
    """What operators look at.

    Args:
        store: The session store.
        lists: Counts and lists.
    """

    def __init__(self, store: SessionStore, lists: SessionLists) -> None:
        self._store = store
        self._lists = lists

    def read(self, queues: Queues) -> Operations:
        """Read what goes on now.

        Args:
            queues: What is known of queues.

        Raises:
            StoreUnavailable: The store did not answer.
        """
        now = self._now()
        workers = self._lists.workers(now)
        served = _served(workers)
        counts = self._lists.counts(now)
        slow = [
            SlowSession(
                session_id=state.session_id,
                agent=state.agent,
                title=state.title,
                updated_at=state.updated_at,
                turn_id=state.turn.id if state.turn else None,
                stopping=_stopping(state),
                reasons=reasons_of(state, now, queues.of, served),
            )
            for state in self._lists.longest_at_work(_SLOW)
        ]
        names = {*queues.defaults, *(name for worker in workers for name in worker.queues)}
        names |= {one.queue for session in slow for one in session.reasons if one.queue}
        return Operations(
            at=now,
            workers=workers,
            queues=tuple(self._queues(sorted(names), workers, queues)),
            sessions=counts.sessions,
            approvals_waiting=counts.approvals,
            unknown_outcomes=counts.unknown,
            overdue=counts.overdue,
            slow=tuple(slow),
            rates=read_rates(self._store.client, now),
        )

    def reasons(
        self, session_id: str, queues: Queues
    ) -> tuple[SessionState, int, tuple[Reason, ...]]:
        """Read a session, the store's clock in Unix milliseconds, and why the session is where it is.

        Raises:
            NotFound: There is no such session.
            StoreUnavailable: The store did not answer.
        """
        loaded = self._store.load(session_id)
        served = _served(self._lists.workers(loaded.now))
        reasons = reasons_of(loaded.state, loaded.now, queues.of, served)
        return loaded.state, loaded.now, reasons

    def _now(self) -> int:
        with store_errors():
            seconds, micros = self._store.client.time()
        return seconds * 1000 + micros // 1000

    def _queues(
        self, names: Sequence[str], workers: Sequence[WorkerInfo], queues: Queues
    ) -> list[QueueInfo]:
        looks = queues.look(self._store.client, names)
        return [
            QueueInfo(
                name=name,
                depth=None if look is None else look.depth,
                oldest_at=self._ready_since(look.oldest) if look and look.oldest else None,
                workers=sum(name in worker.queues for worker in workers),
            )
            for name, look in zip(names, looks, strict=True)
        ]

    def _ready_since(self, oldest: tuple[str, str]) -> int | None:
        """Return since when a step is ready: the message of it carries no time of its own."""
        session_id, step_id = oldest
        with store_errors():
            raw = self._store.client.hget(SessionKeys.of(session_id).session, step_field(step_id))
        return None if raw is None else read_timing(cast("bytes", raw)).not_before


def _stopping(state: SessionState) -> bool:
    control = state.turn.control if state.turn else None
    return control is not None and control.verb is ControlVerb.CANCEL


def _served(workers: Sequence[WorkerInfo]) -> Callable[[str], bool]:
    taken = {name for worker in workers if not worker.stuck for name in worker.queues}
    return taken.__contains__
