"""What operators look at: what goes on, and why a session does not. Pure.

`reasons_of` says of every open step what it waits for. It is told which steps some worker would take, and knows
nothing of queues' names.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from celeriac.sessions.rates import Rate
from celeriac.sessions.snapshot import WorkerInfo
from celeriac.sessions.state import SessionState, SessionStatus, Step, StepName

__all__ = ["Operations", "QueueInfo", "Reason", "ReasonKind", "SlowSession", "reasons_of"]

_LATE_MS = 5_000
"""A ready step that nobody took for so long is worth a word."""


class _View(BaseModel):
    model_config = ConfigDict(frozen=True)


class ReasonKind(StrEnum):
    """What an open step waits for."""

    MESSAGE = "message"
    """The session is idle: for its user."""
    APPROVAL = "approval"
    ANSWER = "answer"
    TIMER = "timer"
    LOOK_UP = "look_up"
    """For the time at which a call of unknown outcome is looked up."""
    RETRY = "retry"
    """For the time of the next attempt."""
    NO_WORKER = "no_worker"
    """No worker takes the queue of the step."""
    NOT_TAKEN = "not_taken"
    """Workers take the queue, and none has taken the step yet."""
    STARTING = "starting"
    """It became ready a moment ago."""
    RUNNING = "running"


class Reason(_View):
    """Why a session is where it is, for one of its open steps."""

    kind: ReasonKind
    since: int
    """Unix milliseconds."""
    until: int | None = None
    """When it ends by itself."""
    step: StepName
    call_id: str | None = None
    tool: str | None = None
    attempt: int = 1
    worker: str | None = None
    queue: str | None = None
    error: str | None = None
    """What ended the last attempt."""

    @property
    def wrong(self) -> bool:
        """Whether somebody has to do something that is not the session's own business."""
        return self.kind in {ReasonKind.NO_WORKER, ReasonKind.NOT_TAKEN}


class QueueInfo(_View):
    """A queue of the broker."""

    name: str
    depth: int | None
    """Messages that wait; None where the broker is not the session store, and so cannot be asked."""
    oldest_at: int | None = None
    """Since when the step of the oldest message is ready, in Unix milliseconds."""
    workers: int
    """Workers that take it."""


class SlowSession(_View):
    """A session that is at work, and has not moved on for a while."""

    session_id: str
    agent: str
    title: str
    updated_at: int
    turn_id: str | None = None
    """The open turn, which can be stopped."""
    stopping: bool = False
    """Whether somebody has stopped it, and it ends at the next safe step boundary."""
    reasons: tuple[Reason, ...]


class Operations(_View):
    """What goes on now."""

    at: int
    """The store's clock, in Unix milliseconds."""
    workers: tuple[WorkerInfo, ...]
    queues: tuple[QueueInfo, ...]
    sessions: dict[SessionStatus, int]
    approvals_waiting: int
    unknown_outcomes: int
    overdue: int
    """Sessions that somebody should have looked at by now: no worker looks after waiting and lost steps."""
    slow: tuple[SlowSession, ...]
    """Sessions at work, those first that have not moved for the longest time."""
    rates: tuple[Rate, ...]
    """Attempts of model and tool calls that ended in the last hour, one series for each way of ending."""


def reasons_of(
    state: SessionState,
    now: int,
    queue_of: Callable[[Step], str],
    served: Callable[[str], bool],
) -> tuple[Reason, ...]:
    """Say of every open step what it waits for.

    Args:
        state: The session, with the timing of its steps.
        now: Unix milliseconds, by the store's clock.
        queue_of: Names the queue of a step.
        served: Says whether some worker takes a queue.

    Returns:
        A reason for each open step; for an idle session the one that it awaits a message.
    """
    reasons = tuple(_reason(state, step, now, queue_of, served) for step in state.steps)
    if state.turn is not None:
        return reasons
    idle = Reason(kind=ReasonKind.MESSAGE, since=state.updated_at, step=StepName.AWAIT_USER_MESSAGE)
    return (idle, *reasons)


_WAITS = {
    StepName.AWAIT_TOOL_APPROVAL: ReasonKind.APPROVAL,
    StepName.AWAIT_QUESTION_ANSWER: ReasonKind.ANSWER,
    StepName.AWAIT_TIMER: ReasonKind.TIMER,
}


def _reason(
    state: SessionState,
    step: Step,
    now: int,
    queue_of: Callable[[Step], str],
    served: Callable[[str], bool],
) -> Reason:
    timing = step.timing
    known = state.call(step.call_id) or state.unknown_call(step.call_id)
    queue = None if step.name.waits else queue_of(step)
    kind = _kind(step, now, served=queue is None or served(queue))
    begun = {ReasonKind.RUNNING: timing.claimed_at, ReasonKind.NOT_TAKEN: timing.not_before}
    later = kind in {ReasonKind.RETRY, ReasonKind.LOOK_UP}
    return Reason(
        kind=kind,
        since=begun.get(kind, step.created_at),
        until=timing.not_before if later else timing.due if step.name.waits else None,
        step=step.name,
        call_id=step.call_id,
        tool=known.tool if known else None,
        attempt=step.attempt,
        worker=timing.owner.partition("/")[0] or None,
        queue=queue,
        error=step.last_error,
    )


def _kind(step: Step, now: int, *, served: bool) -> ReasonKind:
    timing = step.timing
    if step.name in _WAITS:
        return _WAITS[step.name]
    if timing.claimed:
        return ReasonKind.RUNNING
    if timing.not_before > now:
        first_look = step.name.background and step.attempt == 1
        return ReasonKind.LOOK_UP if first_look else ReasonKind.RETRY
    if not served:
        return ReasonKind.NO_WORKER
    return ReasonKind.NOT_TAKEN if now - timing.not_before > _LATE_MS else ReasonKind.STARTING
