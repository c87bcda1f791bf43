"""Many turns through one worker: does it keep memory, files, sockets, threads or processes? Linux only."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machinery import Bench, Row
from benchmarks.sessions import running

__all__ = ["measure"]

_TURNS = 1_000
_LOOKS = 10
_READS = 2
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class _Burden:
    """What a process and its descendants hold."""

    kilobytes: int
    files: int
    sockets: int
    threads: int
    children: int

    def __str__(self) -> str:
        return (
            f"{self.kilobytes / 1024:.1f} MB, {self.files} files, {self.sockets} of them sockets, "
            f"{self.threads} threads, {self.children} children"
        )


def measure(place: Bench, pool: str, *, scale: float) -> list[Row]:
    """Run turns through one worker and look at what it holds, ten times.

    Args:
        place: Where.
        pool: Its Celery pool.
        scale: How much of the work to do.

    Returns:
        A row per look.
    """
    environment = {"CELERIAC_WORKER_POOL": pool, "CELERIAC_WORKER_CONCURRENCY": str(_AT_ONCE)}
    with running(place, count=1, environment=environment) as sessions:
        (worker,) = _children(os.getpid(), "bench0@")
        each = max(_AT_ONCE, int(_TURNS * scale) // _LOOKS)
        # The pools grow to their size first.
        names = [sessions.start({"reads": _READS}) for _ in range(_AT_ONCE)]
        place.bell.wait(len(names))
        rows = [Row("turns 0", str(_burden(worker)))]
        for look in range(1, _LOOKS + 1):
            for number in range(each):
                sessions.turn(names[number % _AT_ONCE], {"reads": _READS})
            rows.append(Row(f"turns {look * each}", str(_burden(worker))))
        return rows


def _burden(worker: int) -> _Burden:
    children = list(_descendants(worker))
    family = [worker, *children]
    links = [link for pid in family for link in _open_files(pid)]
    return _Burden(
        kilobytes=sum(_status(pid, "RssAnon") for pid in family),
        files=len(links),
        sockets=sum(link.startswith("socket:") for link in links),
        threads=sum(_status(pid, "Threads") for pid in family),
        children=len(children),
    )


def _descendants(pid: int) -> Iterator[int]:
    for child in _children(pid):
        yield child
        yield from _descendants(child)


def _children(pid: int, word: str = "") -> Sequence[int]:
    """Return the children of a process, those alone that have a word in their command."""
    return [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
        if word.encode() in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def _status(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def _open_files(pid: int) -> Iterator[str]:
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            yield str(link.readlink())
        except OSError:
            continue  # closed meanwhile
