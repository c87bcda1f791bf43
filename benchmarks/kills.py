"""Part 4: from the kill of a process to its step running again."""

from __future__ import annotations

import os
import signal
import time

from benchmarks.machinery import Bench, Row, percentile
from benchmarks.marks import Mark
from benchmarks.sessions import Sessions, running, wait_for

__all__ = ["measure"]

_CASES = {
    "worker killed": ("threads", 2.0),
    "prefork child killed": ("prefork", 0.5),
}


def measure(place: Bench, *, rounds: int) -> list[Row]:
    """Kill workers and children that hold a step, and wait until it runs again.

    Args:
        place: Where.
        rounds: How often each; a killed worker needs a new one each time.
    """
    rows = []
    for what, (pool, aimed) in _CASES.items():
        waits = []
        for _ in range(rounds):
            with running(place, environment={"CELERIAC_WORKER_POOL": pool}) as sessions:
                waits.append(_one(sessions))
        p50 = percentile(waits, 0.5)
        rows.append(
            Row(
                f"{what} to its step running again",
                f"{p50:.2f} s",
                f"≤ {aimed:g} s",
                p50 <= aimed,
                f"median of {rounds}; worst {max(waits):.2f} s",
            )
        )
    return rows


def _one(sessions: Sessions) -> float:
    session_id = sessions.start({"held": True})
    wait_for(lambda: bool(_entered(sessions, session_id)))
    [first] = _entered(sessions, session_id)
    killed = time.monotonic()
    os.kill(first.pid, signal.SIGKILL)
    sessions.place.bell.wait(1)
    again = _entered(sessions, session_id)[1]
    return again.at - killed


def _entered(sessions: Sessions, session_id: str) -> list[Mark]:
    return [one for one in sessions.marks([session_id])[0] if one.kind == "tool"]
