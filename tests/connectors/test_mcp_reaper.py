"""The program that ends what a killed worker leaves: it is started again when somebody ends it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from celeriac.connectors.mcp_processes import Reaper
from tests.waiting import wait_until

DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"


@pytest.fixture
def deaf() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two programs of groups of their own that end by SIGKILL only."""
    with ExitStack() as stack:
        started = []
        for _ in range(2):
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-S", "-c", DEAF],
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                )
            )
            stack.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()
            started.append(process)
        yield started


def test_what_is_left_is_ended_though_the_reaper_was_killed_meanwhile(
    deaf: list[subprocess.Popen[bytes]],
) -> None:
    first, second = deaf
    reaper = Reaper()
    reaper.watch(first.pid)
    assert reaper._process is not None
    reaper._process.kill()
    reaper._process.wait()
    reaper.watch(second.pid)
    reaper.close()
    for process in deaf:
        wait_until(lambda: process.poll() is not None, "it is dead", timeout_seconds=30)  # noqa: B023 - at once


def test_what_has_ended_by_itself_is_left_alone(deaf: list[subprocess.Popen[bytes]]) -> None:
    reaper = Reaper()
    for process in deaf:
        reaper.watch(process.pid)
        reaper.forget(process.pid)
    reaper.close()
    assert [process.poll() for process in deaf] == [None, None]
