"""Part 2: what a durable step costs, beside the targets."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import cast

import redis

from benchmarks.machinery import Bench, Row, ms, percentile
from benchmarks.people import http_rows, waiting_rows
from benchmarks.race import race
from benchmarks.sessions import Sessions, running
from celeriac.sessions.calls import DecisionVerb
from celeriac.sessions.state import SessionStatus

__all__ = ["measure"]

_SESSIONS = 64
_READS = 20
"""Tool calls of one turn; with the model calls between them a turn has 41 steps."""
_ROUNDS = 7
_SMALL = 100
_PARALLEL = 64
_QUEUED = 96
"""Messages steered into one turn; a session's queue holds a hundred."""
_THROUGHPUT_TARGET = {"everysec": 1.5, "always": 1.2}
_P50_TARGET = {"everysec": 0.0015, "always": 0.0025}


def measure(place: Bench, *, scale: float) -> list[Row]:
    """Measure everything on two workers.

    Args:
        place: Where.
        scale: How much of the work to do.
    """
    with running(place) as sessions:
        return [
            *race(place, lambda: throughput(sessions), rounds=max(3, round(7 * scale))),
            *_overhead_rows(sessions, count=max(3, round(50 * scale))),
            *_history_rows(sessions, sizes=(10, 1_000, 10_000) if scale >= 1 else (10, 1_000)),
            _parallel_row(sessions, count=max(3, round(10 * scale))),
            *_approval_rows(sessions, count=max(10, round(200 * scale))),
            *http_rows(sessions, count=max(10, round(200 * scale))),
            *_memory_rows(sessions, count=20),
            *waiting_rows(sessions, count=round(100_000 * scale)),
        ]


# --- steps per second


def throughput(sessions: Sessions) -> float:
    """Return steps per second of 64 new sessions."""
    started = time.monotonic()
    for _ in range(_SESSIONS):
        sessions.start({"reads": _READS})
    sessions.place.bell.wait(_SESSIONS)
    return _SESSIONS * (2 * _READS + 1) / (time.monotonic() - started)


# --- one step of one session


def _overhead_rows(sessions: Sessions, *, count: int) -> list[Row]:
    names = []
    for _ in range(count):
        names.append(sessions.start({"reads": _READS}))
        sessions.place.bell.wait(1)
    gaps = [
        later.at - earlier.at
        for marks in sessions.marks(names)
        for earlier, later in pairwise(marks)
    ]
    p50, p99 = percentile(gaps, 0.5), percentile(gaps, 0.99)
    aimed = _P50_TARGET[sessions.place.fsync]
    worst = 0.006 if sessions.place.fsync == "everysec" else None
    return [
        Row("one step, one session, p50", ms(p50), f"≤ {ms(aimed)}", p50 <= aimed),
        Row(
            "one step, one session, p99",
            ms(p99),
            f"≤ {ms(worst)}" if worst else "",
            p99 <= worst if worst else None,
        ),
    ]


# --- long histories


def _history_rows(sessions: Sessions, *, sizes: Sequence[int]) -> list[Row]:
    """Measure in turns: what else a machine does changes from minute to minute."""
    costs: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
    grown = {size: _grown(sessions, size) for size in sizes if size > _SMALL}
    for _ in range(_ROUNDS):
        for size in sizes:
            # Measuring adds messages, which would be most of a small session's.
            session_id = grown[size] if size in grown else _grown(sessions, size)
            costs[size].append(_cost_at(sessions, session_id))
    rows: list[Row] = []
    first = median(step for step, _ in costs[sizes[0]])
    for size in sizes:
        step, model = (median(column) for column in zip(*costs[size], strict=True))
        ratio = step / first
        rows.append(
            Row(
                f"to a tool, at {size:,} messages",
                ms(step),
                "≤ 1.05 x the first" if rows else "",
                ratio <= 1.05 if rows else None,
                f"{ratio:.2f} x; to the model call after it, which reads them all: {ms(model)}",
            )
        )
    return rows


def _grown(sessions: Sessions, size: int) -> str:
    session_id = sessions.start({})
    sessions.place.bell.wait(1)
    _grow(sessions, session_id, size)
    return session_id


def _grow(sessions: Sessions, session_id: str, size: int) -> None:
    """Make a history of a hundred messages a turn: they are queued behind a call that waits, then steered.

    Many calls a turn would do too, but would measure something else on the way.
    """
    have = 2
    while have < size:
        sessions.client.send_message(session_id, json.dumps({"guarded": True}))
        sessions.until(session_id, SessionStatus.WAITING)
        queued = min(_QUEUED, size - have)
        for _ in range(queued):
            sessions.client.send_message(session_id, "{}")
        sessions.client.steer(session_id)
        sessions.place.bell.wait(1)
        sessions.until(session_id, SessionStatus.IDLE)
        have += queued + 4


def _cost_at(sessions: Sessions, session_id: str) -> tuple[float, float]:
    """Return the seconds from a model's reply to its tool, and from a tool to the next model call.

    The first has the commit of the reply and the claim of the tool step in it, the second the commit of the
    result, and the claim of the model step with its whole active context.
    """
    before = len(sessions.marks([session_id])[0])
    for _ in range(2):
        sessions.turn(session_id, {"reads": _READS})
    marks = sessions.marks([session_id])[0][before:]
    to_tool, to_model = [], []
    for earlier, later in pairwise(marks):
        gap = later.at - earlier.at
        if (earlier.kind, later.kind) == ("model", "tool"):
            to_tool.append(gap)
        elif earlier.kind == "tool":
            to_model.append(gap)
    return percentile(to_tool, 0.5), percentile(to_model, 0.5)


# --- many calls at once


def _parallel_row(sessions: Sessions, *, count: int) -> Row:
    session_id = sessions.start({})
    sessions.place.bell.wait(1)
    before = len(sessions.marks([session_id])[0])
    for _ in range(count):
        sessions.turn(session_id, {"parallel": _PARALLEL})
    models = [one.at for one in sessions.marks([session_id])[0][before:] if one.kind == "model"]
    turns = [models[at + 1] - models[at] for at in range(0, len(models), 2)]
    return Row(
        f"{_PARALLEL} calls of one response, per call", ms(percentile(turns, 0.5) / _PARALLEL)
    )


# --- approvals


def _approval_rows(sessions: Sessions, *, count: int) -> list[Row]:
    decided: list[tuple[str, float]] = []
    for _ in range(count):
        session_id = sessions.start({"guarded": True})
        sessions.until(session_id, SessionStatus.WAITING)
        [call] = sessions.client.snapshot(session_id).calls
        decided.append((session_id, time.monotonic()))
        sessions.client.decide(
            session_id, call.id, DecisionVerb.APPROVE, by="bench", digest=call.digest
        )
        sessions.place.bell.wait(1)
    marks = sessions.marks([session_id for session_id, _ in decided])
    waits = [
        next(one.at for one in found if one.kind == "tool") - at
        for (_, at), found in zip(decided, marks, strict=True)
    ]
    p50 = percentile(waits, 0.5)
    return [
        Row("approve to tool start, p50", ms(p50), "≤ 5.00 ms", p50 <= 0.005),
        Row("approve to tool start, p99", ms(percentile(waits, 0.99))),
    ]


# --- memory


def _memory_rows(sessions: Sessions, *, count: int) -> list[Row]:
    client = redis.Redis.from_url(sessions.place.url)
    names = []
    for _ in range(count):
        names.append(sessions.start({"say": "x" * 500}))
        sessions.place.bell.wait(1)
        for _ in range(9):
            sessions.turn(names[-1], {"say": "x" * 500})
        sessions.until(names[-1], SessionStatus.IDLE)
    stored, messages, events = [], [], []
    for name in names:
        sizes = {key: _size(client, key) for key in client.scan_iter(match=f"*{name}*")}
        events.append(sum(size for key, size in sizes.items() if key.endswith(b":events")))
        stored.append(sum(sizes.values()) - events[-1])
        log = next(key for key in sizes if key.endswith(b":log"))
        messages.append(sum(map(len, cast("list[bytes]", client.lrange(log, 0, -1)))))
    client.close()
    aimed = 3_000 + 1.3 * percentile(messages, 0.5)
    kept = percentile(stored, 0.5)
    note = f"20 messages of {percentile(messages, 0.5):,.0f} bytes; besides them events for a day: "
    return [
        Row(
            "idle session in the store",
            f"{kept:,.0f} bytes",
            f"≤ {aimed:,.0f} bytes",
            kept <= aimed,
            f"{note}{percentile(events, 0.5):,.0f}",
        )
    ]


def _size(client: redis.Redis, key: bytes) -> int:
    return client.memory_usage(key, samples=0) or 0
