"""The outside world's own book: what tools and models really did, written by them and by nobody else.

One SQLite file in WAL mode. A process that is killed in the middle of an entry leaves none; what was entered
before stays, because only the machine's end could lose it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Blow", "Entry", "Ledger", "Seen"]

_TABLES = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS entered (call_id, key, tool, label, attempt, pid, at);
CREATE TABLE IF NOT EXISTS effects (call_id, key, tool, label, attempt, pid, at);
CREATE TABLE IF NOT EXISTS blows (kind, point, label, attempt, pid, at, thaw_at);
CREATE TABLE IF NOT EXISTS requests (session_id, turn_id, attempt, problems, pid, at);
"""
_BUSY_SECONDS = 60
"""A process may be frozen in the middle of an entry, and the others wait until it goes on."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One attempt that was entered, or one effect."""

    call_id: str
    key: str
    tool: str
    label: str
    attempt: int
    pid: int
    at: float


@dataclass(frozen=True, slots=True)
class Blow:
    """What a process did to itself at a named point."""

    kind: str
    point: str
    label: str
    attempt: int
    pid: int
    at: float
    thaw_at: float | None


@dataclass(frozen=True, slots=True)
class Seen:
    """One model request, and what was wrong with it."""

    session_id: str
    turn_id: str
    attempt: int
    problems: str
    pid: int
    at: float


class Ledger:
    """The book; every thread of every process opens it for itself.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mine = threading.local()

    def _connection(self) -> sqlite3.Connection:
        mine: tuple[int, sqlite3.Connection] | None = getattr(self._mine, "connection", None)
        if mine is None or mine[0] != os.getpid():
            # Without autocommit an entry would not be there for others when its line has run.
            connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)
            connection.executescript(_TABLES)
            connection.execute("PRAGMA synchronous = OFF")
            mine = self._mine.connection = (os.getpid(), connection)
        return mine[1]

    def enter(
        self, table: str, call_id: str, *, key: str, tool: str, label: str, attempt: int
    ) -> None:
        """Enter an attempt (table ``entered``) or an effect (``effects``)."""
        row = (call_id, key, tool, label, attempt, os.getpid(), time.time())
        self._connection().execute(f"INSERT INTO {table} VALUES (?,?,?,?,?,?,?)", row)

    def strike(self, kind: str, point: str, label: str, attempt: int, freeze: float | None) -> None:
        """Enter that this process kills or freezes itself; `freeze` is for how many seconds."""
        now = time.time()
        thaw_at = None if freeze is None else now + freeze
        row = (kind, point, label, attempt, os.getpid(), now, thaw_at)
        self._connection().execute("INSERT INTO blows VALUES (?,?,?,?,?,?,?)", row)

    def request(self, session_id: str, turn_id: str, attempt: int, problems: Sequence[str]) -> None:
        """Enter a model request."""
        row = (session_id, turn_id, attempt, "; ".join(problems), os.getpid(), time.time())
        self._connection().execute("INSERT INTO requests VALUES (?,?,?,?,?,?)", row)

    # --- reading

    def _rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        return list(self._connection().execute(query, values))

    def entered(self) -> list[Entry]:
        """Every attempt that a tool was entered for."""
        return [Entry(*row) for row in self._rows("SELECT * FROM entered ORDER BY at")]  # type: ignore[arg-type]

    def effects(self) -> list[Entry]:
        """Everything that happened."""
        return [Entry(*row) for row in self._rows("SELECT * FROM effects ORDER BY at")]  # type: ignore[arg-type]

    def happened(self, call_id: str) -> bool:
        """Whether a call has had its effect by now."""
        return bool(self._rows("SELECT 1 FROM effects WHERE call_id = ? LIMIT 1", call_id))

    def length(self) -> int:
        """How many entries there are of attempts and model requests: as it grows, work goes on."""
        rows = self._rows("SELECT (SELECT count(*) FROM entered) + (SELECT count(*) FROM requests)")
        return int(str(rows[0][0]))

    def blows(self, *, after: float = 0) -> list[Blow]:
        """What processes did to themselves, since a moment."""
        rows = self._rows("SELECT * FROM blows WHERE at > ? ORDER BY at", after)
        return [Blow(*row) for row in rows]  # type: ignore[arg-type]

    def requests(self) -> list[Seen]:
        """Every model request."""
        return [Seen(*row) for row in self._rows("SELECT * FROM requests ORDER BY at")]  # type: ignore[arg-type]
