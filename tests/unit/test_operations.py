"""Why a session does not move: a reason for each open step, in words that say what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celeriac.sessions.operations import Operations, QueueInfo, Reason, ReasonKind, reasons_of
from celeriac.sessions.snapshot import WorkerInfo
from celeriac.sessions.state import SessionStatus, Step
from celeriac.tasks.operation_words import age_words, problems, reason_words
from tests.unit.world import NOON, ONCE, READ, World, planned, question, timer


def _reasons(world: World, *, served: bool = True) -> tuple[Reason, ...]:
    def queue_of(step: Step) -> str:
        return step.queue or "celeriac.tool"

    return reasons_of(world.state, world.now, queue_of, lambda _name: served)


def _asks(world: World) -> None:
    world.calling(planned("call_a", ONCE, asks=True))


def _questions(world: World) -> None:
    world.calling(question())


def _waits(world: World) -> None:
    world.calling(timer("call_a", 3600))


def _ready(world: World) -> None:
    world.calling(planned("call_a", READ, queue="slow"))


def _late(world: World) -> None:
    _ready(world)
    world.pass_time(60_000)


def _runs(world: World) -> None:
    _ready(world)
    world.start_call()
    world.pass_time(3_000)


def _retries(world: World) -> None:
    _ready(world)
    world.breaks(world.start_call(), "HTTP 503", delay_ms=60_000)


@pytest.mark.parametrize(
    ("play", "kind", "said"),
    [
        (lambda _world: None, ReasonKind.MESSAGE, "ready for a message, since 0 s"),
        (_asks, ReasonKind.APPROVAL, "a_tool waits for somebody to approve it, since 0 s"),
        (_questions, ReasonKind.ANSWER, "a question waits for its answer, since 0 s"),
        (_waits, ReasonKind.TIMER, "it waits for a time until 2026-11-30"),
        (_ready, ReasonKind.STARTING, "a_tool begins at once"),
        (
            _late,
            ReasonKind.NOT_TAKEN,
            "a_tool waits for a free worker of slow since 60 s; start more, or see their logs",
        ),
        (_runs, ReasonKind.RUNNING, "worker runs a_tool since 3 s"),
        (_retries, ReasonKind.RETRY, "a_tool is tried again at 2026-11-30"),
    ],
    ids=lambda value: value.value if isinstance(value, ReasonKind) else None,
)
def test_each_reason_and_its_words(
    play: Callable[[World], None], kind: ReasonKind, said: str
) -> None:
    world = World()
    play(world)
    (reason,) = _reasons(world)
    assert reason.kind is kind
    assert reason_words(reason, world.now).startswith(said)
    assert reason.wrong is (kind is ReasonKind.NOT_TAKEN)


def test_a_queue_that_no_worker_takes() -> None:
    world = World()
    _ready(world)
    (reason,) = _reasons(world, served=False)
    assert reason.kind is ReasonKind.NO_WORKER
    assert reason.wrong
    assert reason_words(reason, world.now + 90_000) == (
        "no worker takes the queue slow, where a_tool waits since 90 s; start one"
    )


def test_a_retry_says_what_ended_the_last_attempt() -> None:
    world = World()
    _retries(world)
    (reason,) = _reasons(world)
    assert reason_words(reason, world.now).endswith("as attempt 2: HTTP 503")


def test_an_idle_session_with_a_look_up_has_two_reasons() -> None:
    world = World()
    world.calling(planned("call_a", ONCE, reconcile_after_ms=60_000))
    world.start_call()
    world.lose_worker()
    world.reply()
    message, look_up = _reasons(world)
    assert (message.kind, look_up.kind) == (ReasonKind.MESSAGE, ReasonKind.LOOK_UP)
    assert reason_words(look_up, world.now).startswith(
        "the unknown outcome of a_tool is looked up at"
    )


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [(-5, "0 s"), (900, "0 s"), (119_000, "119 s"), (120_000, "2 min"), (7_200_000, "2 h")],
)
def test_ages(milliseconds: int, words: str) -> None:
    assert age_words(milliseconds) == words


def _worker(**values: object) -> WorkerInfo:
    known = {
        "name": "worker-1",
        "seen_at": NOON,
        "pid": 1,
        "host": "h",
        "queues": ("a",),
        "concurrency": 4,
        "version": "0",
        "running": 0,
        **values,
    }
    return WorkerInfo.model_validate(known)


def _operations(**values: object) -> Operations:
    known = {
        "at": NOON,
        "workers": (_worker(),),
        "queues": (QueueInfo(name="a", depth=0, workers=1),),
        "sessions": dict.fromkeys(SessionStatus, 0),
        "approvals_waiting": 0,
        "unknown_outcomes": 0,
        "overdue": 0,
        "slow": (),
        "rates": (),
        **values,
    }
    return Operations.model_validate(known)


@pytest.mark.parametrize(
    ("operations", "told"),
    [
        (_operations(), []),
        (_operations(workers=()), ["No worker is running"]),
        (_operations(workers=(_worker(stuck=True),)), ["takes nothing although work is queued"]),
        (
            _operations(queues=(QueueInfo(name="b", depth=3, workers=0),)),
            ["No worker takes the queue b, where 3 steps wait"],
        ),
        (
            _operations(queues=(QueueInfo(name="a", depth=3, workers=1, oldest_at=NOON - 60_000),)),
            ["In a a step waits since 60 s; start more workers."],
        ),
        (_operations(overdue=7), ["7 sessions should have been looked at by now"]),
    ],
    ids=["well", "no worker", "stuck", "no taker", "late", "overdue"],
)
def test_what_is_wrong_is_said(operations: Operations, told: list[str]) -> None:
    found = list(problems(operations))
    assert len(found) == len(told)
    assert all(one in said for one, said in zip(told, found, strict=True))
