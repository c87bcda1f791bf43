"""Reads what goes on: counts, queues, sessions that do not move, and why one does not."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Sequence
from typing import cast

from celeriac.sessions.codec import read_timing
from celeriac.sessions.operations import (
    Operations,
    QueueInfo,
    Reason,
    SlowSession,
    reasons_of,
)
from celeriac.sessions.snapshot import WorkerInfo
from celeriac.sessions.state import SessionState, Step
from celeriac.sessions.store.connection import store_errors
from celeriac.sessions.store.keys import SessionKeys, step_field
from celeriac.sessions.store.lists import SessionLists
from celeriac.sessions.store.sessions import SessionStore

__all__ = ["QueueNames", "SessionOperations"]

_SLOW = 20


class QueueNames:
    """What is known of queues outside of the store.

    Args:
        of: Names the queue of a step.
        defaults: Queues that there are even if no worker takes them.
        in_store: Whether the broker is the session store, so that queues can be looked into.
    """

    def __init__(
        self, of: Callable[[Step], str], defaults: Collection[str], *, in_store: bool
    ) -> None:
        self.of = of
        self.defaults = tuple(defaults)
        self.in_store = in_store


class SessionOperations:
    """What operators look at.

    Args:
        store: The session store.
        lists: Counts and lists.
    """

    def __init__(self, store: SessionStore, lists: SessionLists) -> None:
        self._store = store
        self._lists = lists

    def read(self, queues: QueueNames) -> Operations:
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
                reasons=reasons_of(state, now, queues.of, served),
            )
            for state in self._lists.longest_at_work(_SLOW)
        ]
        names = {*queues.defaults, *(name for worker in workers for name in worker.queues)}
        names |= {one.queue for session in slow for one in session.reasons if one.queue}
        return Operations(
            at=now,
            workers=workers,
            queues=tuple(self._queues(sorted(names), workers, in_store=queues.in_store)),
            sessions=counts.sessions,
            approvals_waiting=counts.approvals,
            unknown_outcomes=counts.unknown,
            overdue=counts.overdue,
            slow=tuple(slow),
        )

    def reasons(
        self, session_id: str, queues: QueueNames
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
        self, names: Sequence[str], workers: Sequence[WorkerInfo], *, in_store: bool
    ) -> list[QueueInfo]:
        depths: list[int | None] = [None] * len(names)
        oldest: list[bytes | None] = [None] * len(names)
        if in_store:
            with store_errors():
                pipe = self._store.client.pipeline(transaction=False)
                for name in names:
                    pipe.llen(name)
                    pipe.lindex(name, -1)
                replies = cast("list[object]", pipe.execute())
            depths = cast("list[int | None]", replies[::2])
            oldest = cast("list[bytes | None]", replies[1::2])
        return [
            QueueInfo(
                name=name,
                depth=depth,
                oldest_at=None if raw is None else self._ready_since(raw),
                workers=sum(name in worker.queues for worker in workers),
            )
            for name, depth, raw in zip(names, depths, oldest, strict=True)
        ]

    def _ready_since(self, message: bytes) -> int | None:
        """Return since when the step of a message is ready; a message carries no time of its own."""
        try:
            arguments = json.loads(base64.b64decode(json.loads(message)["body"]))[0]
            session_id, step_id = str(arguments[0]), str(arguments[1])
        except (ValueError, KeyError, IndexError, TypeError):
            return None  # somebody else's message
        with store_errors():
            raw = self._store.client.hget(SessionKeys.of(session_id).session, step_field(step_id))
        return None if raw is None else read_timing(cast("bytes", raw)).not_before


def _served(workers: Sequence[WorkerInfo]) -> Callable[[str], bool]:
    taken = {name for worker in workers if not worker.stuck for name in worker.queues}
    return taken.__contains__
