"""Words about what goes on, for the page and the command line: why a session does not move, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from celeriac.sessions.operations import Operations, QueueInfo, Reason, ReasonKind
from celeriac.sessions.rates import Outcome, Work
from celeriac.sessions.state import StepName

__all__ = ["age_words", "problems", "queue_words", "rate_words", "reason_words"]

_LATE_MS = 30_000


def age_words(milliseconds: int) -> str:
    """Say how long something takes or is ago, as short as possible."""
    seconds = max(0, milliseconds) // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def reason_words(reason: Reason, now: int) -> str:
    """Say what a step waits for, and what can be done about it.

    Args:
        reason: The reason.
        now: Unix milliseconds.
    """
    words = _REASONS[reason.kind].format(
        what=reason.tool or _STEPS.get(reason.step, reason.step.value),
        ago=age_words(now - reason.since),
        until=_until(reason),
        attempt=reason.attempt,
        queue=reason.queue,
        worker=reason.worker or "a worker",
    )
    return f"{words}: {reason.error}" if reason.kind is ReasonKind.RETRY and reason.error else words


_REASONS = {
    ReasonKind.MESSAGE: "ready for a message, since {ago}",
    ReasonKind.APPROVAL: "{what} waits for somebody to approve it, since {ago}{until}",
    ReasonKind.ANSWER: "a question waits for its answer, since {ago}",
    ReasonKind.TIMER: "it waits for a time{until}",
    ReasonKind.LOOK_UP: "the unknown outcome of {what} is looked up{until}",
    ReasonKind.RETRY: "{what} is tried again{until}, as attempt {attempt}",
    ReasonKind.NO_WORKER: "no worker takes the queue {queue}, where {what} waits since {ago}; start one",
    ReasonKind.NOT_TAKEN: "{what} waits for a free worker of {queue} since {ago}; start more, or see their logs",
    ReasonKind.STARTING: "{what} begins at once",
    ReasonKind.RUNNING: "{worker} runs {what} since {ago}",
}

_STEPS = {
    StepName.RUN_MODEL: "the model",
    StepName.COMPACT_CONTEXT: "a summary",
    StepName.RECONCILE_CALL: "a look-up",
}


def _until(reason: Reason) -> str:
    if reason.until is None:
        return ""
    at = datetime.fromtimestamp(reason.until / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    word = "until" if reason.kind in {ReasonKind.APPROVAL, ReasonKind.TIMER} else "at"
    return f" {word} {at}"


def queue_words(queue: QueueInfo, now: int) -> str:
    """Say how full a queue is."""
    if queue.depth is None:
        return "its depth is known to the broker only"
    if queue.depth == 0:
        return "empty"
    oldest = (
        "" if queue.oldest_at is None else f", the oldest since {age_words(now - queue.oldest_at)}"
    )
    return f"{queue.depth:,} waiting{oldest}"


def rate_words(operations: Operations) -> str:
    """Say how much ended in the last hour, and how."""
    done = {(rate.work, rate.outcome): sum(rate.per_minute) for rate in operations.rates}
    works = [
        f"{sum(done.get((work, outcome), 0) for outcome in Outcome):,} attempts of {word}"
        for work, word in ((Work.MODEL, "model calls"), (Work.TOOL, "tool calls"))
    ]
    ends = [
        f"{sum(done.get((work, outcome), 0) for work in Work):,} {word}"
        for outcome, word in _ENDS.items()
    ]
    return ", ".join([*works, *ends])


_ENDS = {
    Outcome.RETRIED: "tried again",
    Outcome.FAILED: "failed",
    Outcome.UNKNOWN: "with unknown outcome",
}


def problems(operations: Operations) -> Iterator[str]:
    """Say what is wrong, the worst first; nothing when all is well."""
    if not operations.workers:
        yield "No worker is running. Sessions are kept and go on when one starts."
    for worker in operations.workers:
        if worker.stuck:
            yield f"{worker.name} takes nothing although work is queued; see its log, or start it again."
    for queue in operations.queues:
        if queue.depth and not queue.workers and operations.workers:
            steps = "1 step waits" if queue.depth == 1 else f"{queue.depth:,} steps wait"
            yield f"No worker takes the queue {queue.name}, where {steps}."
        elif queue.oldest_at is not None and operations.at - queue.oldest_at > _LATE_MS:
            age = age_words(operations.at - queue.oldest_at)
            yield f"In {queue.name} a step waits since {age}; start more workers."
    if operations.overdue and operations.workers:
        yield f"{operations.overdue:,} sessions should have been looked at by now; see the workers' logs."
