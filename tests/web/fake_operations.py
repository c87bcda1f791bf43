"""What the in-memory client says of what goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from celeriac.sessions.operations import (
    Operations,
    QueueInfo,
    Reason,
    ReasonKind,
    SlowSession,
)
from celeriac.sessions.rates import MINUTE_MS, Count, Outcome, Work, rates_of
from celeriac.sessions.snapshot import WorkerInfo
from celeriac.sessions.state import SCHEMA_VERSION, SessionState, SessionStatus, StepName
from celeriac.sessions.store.operations import Queues, SessionOperations

NOON = 1_796_040_000_000


class FakeOperations(SessionOperations):
    """One worker, two queues and one session that nobody takes.

    Args:
        check: Raises what the client raises when its store is down, or for an unknown session.
    """

    def __init__(self, check: Callable[[str | None], None]) -> None:
        self._check = check
        self.workers: tuple[WorkerInfo, ...] = (
            WorkerInfo(
                name="worker-1@host",
                seen_at=NOON,
                pid=4711,
                host="host",
                queues=("celeriac.model", "celeriac.tool"),
                concurrency=16,
                version="0.1.0",
                running=3,
            ),
        )
        self.queues: tuple[QueueInfo, ...] = (
            QueueInfo(name="celeriac.model", depth=0, workers=1),
            QueueInfo(name="celeriac.tool", depth=2, oldest_at=NOON - 4_000, workers=1),
        )
        self.slow: tuple[SlowSession, ...] = ()
        self.counts: Counter[Count] = Counter(
            {
                (NOON // MINUTE_MS - ago, Work.MODEL, Outcome.SUCCEEDED): 5 + ago * 7 % 30
                for ago in range(50)
            }
        )
        """What ended, by minute."""

    def read(self, queues: Queues) -> Operations:
        self._check(None)
        return Operations(
            at=NOON,
            workers=self.workers,
            queues=self.queues,
            sessions={
                SessionStatus.IDLE: 12_345,
                SessionStatus.RUNNING: 3,
                SessionStatus.WAITING: 2,
            },
            approvals_waiting=1,
            unknown_outcomes=0,
            overdue=0,
            slow=self.slow,
            rates=rates_of(self.counts, NOON),
        )

    def reasons(
        self, session_id: str, queues: Queues
    ) -> tuple[SessionState, int, tuple[Reason, ...]]:
        self._check(session_id)
        state = SessionState(
            schema_version=SCHEMA_VERSION,
            session_id=session_id,
            agent="support",
            model="demo",
            created_at=NOON,
            updated_at=NOON,
        )
        reason = Reason(
            kind=ReasonKind.MESSAGE, since=NOON - 60_000, step=StepName.AWAIT_USER_MESSAGE
        )
        return state, NOON, (reason,)
