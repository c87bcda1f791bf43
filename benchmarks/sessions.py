"""Workers of ours, and the sessions that they run."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from benchmarks.bench_agent import Order
from benchmarks.machinery import Bench, workers
from benchmarks.marks import Mark, read_marks
from celeriac.sessions.client import SessionClient
from celeriac.sessions.settings import Settings
from celeriac.sessions.state import SessionStatus
from celeriac.tasks.dispatch import open_client

__all__ = ["Sessions", "running", "wait_for"]


class Sessions:
    """Talks to the sessions under test.

    Args:
        place: Where.
        environment: The settings of all processes.
        processes: Process ids of the workers and the store.
    """

    def __init__(
        self, place: Bench, environment: Mapping[str, str], processes: Sequence[int]
    ) -> None:
        self.place = place
        self.environment = environment
        self.processes = processes
        self.client: SessionClient = open_client(Settings(redis_url=place.url))

    def start(self, order: Order) -> str:
        """Start a session with a first turn."""
        return self.client.create_session(agent="bench", message=json.dumps(order)).session_id

    def turn(self, session_id: str, order: Order) -> None:
        """Run one turn to its last reply."""
        self.client.send_message(session_id, json.dumps(order))
        self.place.bell.wait(1)

    def marks(self, session_ids: Sequence[str]) -> list[list[Mark]]:
        """Return the marks of sessions, each in order."""
        marks = read_marks(self.place.directory)
        return [marks[session_id] for session_id in session_ids]

    def until(self, session_id: str, status: SessionStatus) -> None:
        """Wait until a session is idle, or waits."""
        wait_for(lambda: self.client.snapshot(session_id).status is status)


@contextmanager
def running(
    place: Bench, *, count: int = 2, environment: Mapping[str, str] | None = None
) -> Iterator[Sessions]:
    """Run some of our workers for the time of the block.

    Args:
        place: Where.
        count: How many.
        environment: Settings besides those that all need.
    """
    environment = {
        "CELERIAC_REDIS_URL": place.url,
        "CELERIAC_AGENTS": "benchmarks.bench_agent",
        # The stock workers log nothing of a task either.
        "CELERIAC_LOG_LEVEL": "WARNING",
        **(environment or {}),
    }
    with workers(place, "celeriac.tasks", count, "-l", "WARNING", environment=environment) as pids:
        sessions = Sessions(place, environment, [place.store_pid, *pids])
        wait_for(lambda: bool(sessions.client.agents()))
        yield sessions


def wait_for(condition: Callable[[], bool], *, seconds: float = 60) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: It does not come about.
    """
    pause = threading.Event()
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the workers do not get on; see their logs")
        pause.wait(0.005)
