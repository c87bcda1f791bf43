"""What every benchmark needs: a store of its own, workers as processes, percentiles, and a table."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.marks import BENCH_DIR, Bell
from celeriac.sessions.store.embedded import EmbeddedStore

__all__ = [
    "Bench",
    "Fsync",
    "Row",
    "bench",
    "cpu_seconds",
    "ms",
    "percentile",
    "print_table",
    "stop",
    "workers",
]

Fsync = Literal["everysec", "always"]


@dataclass(frozen=True, slots=True)
class Bench:
    """A place to measure in.

    Args:
        url: The store, as redis-py takes it.
        directory: Its files, and those of the workers.
        bell: What workers ring.
        fsync: The store's policy.
        store_pid: The store's process.
    """

    url: str
    directory: Path
    bell: Bell
    fsync: Fsync
    store_pid: int


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    name: str
    value: str
    target: str = ""
    reached: bool | None = None
    note: str = ""


@contextlib.contextmanager
def bench(fsync: Fsync) -> Iterator[Bench]:
    """Start an empty store for the time of the block."""
    with tempfile.TemporaryDirectory(prefix="celeriac-bench-") as name:
        directory = Path(name)
        store = EmbeddedStore(directory / "store", appendfsync=fsync)
        url = store.start()
        try:
            with Bell(directory) as bell:
                if store.pid is None:
                    raise RuntimeError("the store does not run")
                yield Bench(url, directory, bell, fsync, store.pid)
        finally:
            store.stop()


@contextlib.contextmanager
def workers(
    place: Bench,
    app: str,
    count: int,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
) -> Iterator[list[int]]:
    """Run Celery workers for the time of the block, and give their process ids.

    Each rings once when it is ready.
    """
    settings = {**os.environ, BENCH_DIR: str(place.directory), **(environment or {})}
    command = [sys.executable, "-m", "celery", "-A", app, "worker", *arguments]
    pids = []
    with contextlib.ExitStack() as stack:
        for number in range(count):
            log = stack.enter_context((place.directory / f"worker-{number}.log").open("ab"))
            process = subprocess.Popen(
                [*command, "--hostname", f"bench{number}@localhost"],
                env=settings,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            stack.callback(stop, process)
            pids.append(process.pid)
        try:
            place.bell.wait(count, timeout_seconds=60)
            yield pids
        except TimeoutError:
            tail = (place.directory / "worker-0.log").read_text(errors="replace")[-3000:]
            raise RuntimeError(f"the workers of {app} are stuck; the log ends:\n{tail}") from None


def stop(process: subprocess.Popen[bytes]) -> None:
    """Let a process end; kill one that does not."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the CPU time that processes have used, from Linux's scheduler: exact where `ps` knows seconds."""
    spent = 0
    for pid in pids:
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            # A thread may end between the two looks.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                spent += int(path.read_text().split()[0])
    return spent / 1e9


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that so large a share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def ms(seconds: float) -> str:
    """Write a duration in milliseconds."""
    return f"{seconds * 1000:.2f} ms"


def print_table(title: str, rows: Sequence[Row]) -> None:
    """Print rows as a table, with what was aimed at beside what was measured."""
    print(f"\n{title}\n{'-' * len(title)}")
    width = max(len(row.name) for row in rows)
    for row in rows:
        verdict = {None: "", True: "  reached", False: "  MISSED"}[row.reached]
        target = f"  target {row.target}" if row.target else ""
        note = f"  {row.note}" if row.note else ""
        print(f"{row.name:<{width}}  {row.value:>16}{target}{verdict}{note}", flush=True)
