"""Moments that worker processes note down, and the bell they ring when something is finished.

A mark is a line in a file of its process: a few microseconds, nothing of which loads the store under test.
`time.monotonic` is one clock for all processes of a machine.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

__all__ = ["BENCH_DIR", "Bell", "Mark", "mark", "read_marks", "ring"]

BENCH_DIR = "CELERIAC_BENCH_DIR"
"""Environment variable: the directory of marks and bell."""

_files: dict[int, TextIO] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Mark:
    """One moment.

    Args:
        chain: What it belongs to: a chain or a session.
        kind: What happened.
        at: Seconds of the monotonic clock.
        pid: The process.
    """

    chain: str
    kind: str
    at: float
    pid: int


def mark(chain: str, kind: str) -> None:
    """Note this moment down."""
    line = f"{chain} {kind} {time.monotonic():.6f}\n"
    with _lock:
        pid = os.getpid()
        file = _files.get(pid)
        if file is None:
            file = _files[pid] = (_directory() / f"{pid}.marks").open("a", buffering=1)
        file.write(line)


def ring(chain: str) -> None:
    """Tell the benchmark that a chain is finished."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
        bell.sendto(chain.encode(), str(_directory() / "bell"))


def read_marks(directory: Path) -> dict[str, list[Mark]]:
    """Return all marks by chain, each in order of time."""
    marks: dict[str, list[Mark]] = defaultdict(list)
    for path in directory.glob("*.marks"):
        for line in path.read_text().splitlines():
            chain, kind, at = line.split()
            marks[chain].append(Mark(chain, kind, float(at), int(path.stem)))
    for found in marks.values():
        found.sort(key=lambda one: one.at)
    return marks


class Bell:
    """Waits for workers to ring; also a context manager."""

    def __init__(self, directory: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(directory / "bell"))

    def wait(self, count: int, *, timeout_seconds: float = 120) -> float:
        """Wait for so many rings and return the moment of the last one.

        Raises:
            TimeoutError: Nobody rang for that long.
        """
        self._socket.settimeout(timeout_seconds)
        for _ in range(count):
            self._socket.recv(256)
        return time.monotonic()

    def close(self) -> None:
        """Free the socket."""
        self._socket.close()

    def __enter__(self) -> Bell:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _directory() -> Path:
    return Path(os.environ[BENCH_DIR])
