"""How much is done: attempts of model calls and tool calls that ended, minute by minute. Pure.

What ended is counted in the very commit that records it, so a commit that is sent again, or that comes too late,
counts nothing twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from celeriac.sessions.snapshot import StepRecord
from celeriac.sessions.state import SessionState, StepName

__all__ = ["HOUR_MINUTES", "MINUTE_MS", "Count", "Outcome", "Rate", "Work", "counted", "rates_of"]

MINUTE_MS = 60_000
HOUR_MINUTES = 60


class Work(StrEnum):
    """What a worker did."""

    MODEL = "model"
    """A model call, for an answer or for a summary."""
    TOOL = "tool"


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    RETRIED = "retried"
    """It failed or its worker was lost, and it is tried again."""
    FAILED = "failed"
    UNKNOWN = "unknown"
    """Nobody knows whether it happened."""


Count = tuple[int, Work, Outcome]
"""What is counted together: the minute (Unix milliseconds over 60,000), the work and how it ended."""


class Rate(BaseModel):
    """Attempts of one kind that ended in one way, in the last hour."""

    model_config = ConfigDict(frozen=True)

    work: Work
    outcome: Outcome
    per_minute: tuple[int, ...]
    """Of sixty minutes, the one that runs now being the last."""
    since_hour: int
    """Since the last full hour."""


_WORKS = {
    StepName.RUN_MODEL: Work.MODEL,
    StepName.COMPACT_CONTEXT: Work.MODEL,
    StepName.CALL_TOOL: Work.TOOL,
    StepName.CALL_SINGLE_ATTEMPT_TOOL: Work.TOOL,
}
_OUTCOMES = {
    "succeeded": Outcome.SUCCEEDED,
    "failed": Outcome.FAILED,
    "lost": Outcome.FAILED,
    "outcome_unknown": Outcome.UNKNOWN,
}


def counted(history: Iterable[StepRecord], after: SessionState) -> Counter[Count]:
    """Count the attempts that ended.

    Args:
        history: What one change adds to the history.
        after: The state after it: a failed step that is still open is tried again.

    Returns:
        How often each kind of work ended in each way. Waits, what was stopped, and what a worker gave
        back are not counted.
    """
    return Counter(count for record in history if (count := _count(record, after)) is not None)


def _count(record: StepRecord, after: SessionState) -> Count | None:
    work, outcome = _WORKS.get(record.name), _OUTCOMES.get(record.status)
    if work is None or outcome is None or record.worker is None:
        return None
    if outcome is Outcome.FAILED and after.step(record.id) is not None:
        outcome = Outcome.RETRIED
    return record.ended_at // MINUTE_MS, work, outcome


def rates_of(counts: Counter[Count], now: int) -> tuple[Rate, ...]:
    """Arrange counts for people and for metrics.

    Args:
        counts: What was counted in the last hour, and since the last full one.
        now: Unix milliseconds.
    """
    return tuple(_rates(counts, now // MINUTE_MS))


def _rates(counts: Counter[Count], minute: int) -> Iterator[Rate]:
    hour = minute - minute % HOUR_MINUTES
    for work in Work:
        for outcome in Outcome:
            yield Rate(
                work=work,
                outcome=outcome,
                per_minute=tuple(
                    counts[at, work, outcome] for at in range(minute - HOUR_MINUTES + 1, minute + 1)
                ),
                since_hour=sum(counts[at, work, outcome] for at in range(hour, minute + 1)),
            )
