"""SQLite: a file, opened for each call; a reader gets nothing that could change or leave it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from pydantic import JsonValue

from celeriac.connectors.sdk import Outcome
from celeriac.connectors.sql.ledger import LedgerEntry, Result, Rows
from celeriac.sessions.errors import ToolNotRun

__all__ = ["SqliteDatabase", "read", "transact"]

_READING = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_LOOK_EVERY = 10_000
"""Instructions between two looks at the clock."""


class SqliteDatabase:
    """An open transaction; see `Database`.

    Args:
        connection: The connection.
        table: Name of the ledger.
    """

    def __init__(self, connection: sqlite3.Connection, table: str) -> None:
        self._connection = connection
        self._table = table

    def claim(self, key: str, request: str) -> bool:
        insert = f"INSERT INTO {self._table} (call_id, request_hash) VALUES (?, ?) ON CONFLICT DO NOTHING"  # noqa: S608 - checked by the manifest
        return self._connection.execute(insert, (key, request)).rowcount == 1

    def entry(self, key: str) -> LedgerEntry:
        select = f"SELECT request_hash, result FROM {self._table} WHERE call_id = ?"  # noqa: S608 - as above
        row = self._connection.execute(select, (key,)).fetchone()
        return LedgerEntry(row[0], row[1])

    def store(self, key: str, result: str) -> None:
        update = f"UPDATE {self._table} SET result = ? WHERE call_id = ?"  # noqa: S608 - as above
        self._connection.execute(update, (result, key))

    def run(self, sql: str, parameters: Mapping[str, JsonValue], limit: int) -> Rows:
        cursor = self._connection.execute(sql, dict(parameters))
        columns = [column[0] for column in cursor.description or ()]
        rows = cursor.fetchmany(limit) if columns else []
        # Of a statement that returns rows the count is known only once they have all been read.
        more = len(cursor.fetchall()) if columns else 0
        affected = cursor.rowcount if cursor.rowcount >= 0 else len(rows) + more
        return Rows(columns, rows, affected)


def transact(
    path: str, table: str, seconds: float, work: Callable[[SqliteDatabase], Result]
) -> Outcome:
    """Do work in one transaction, with the ledger there.

    Raises:
        ToolNotRun: The database is busy; nothing was changed.
    """
    with closing(_opened(path, "rw", seconds)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {table} (call_id TEXT PRIMARY KEY, request_hash TEXT NOT NULL, "
                "result TEXT, created_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)"
            )
            with _in_time(connection, seconds):
                result = work(SqliteDatabase(connection, table))
        except sqlite3.OperationalError as error:
            connection.rollback()
            if _is_busy(error):
                raise ToolNotRun(f"the database is busy: {error}") from error
            return Outcome("rejected", message=str(error))
        except sqlite3.Error as error:
            connection.rollback()
            return Outcome("rejected", message=str(error))
        connection.execute("COMMIT" if result.commit else "ROLLBACK")
        return result.outcome


def read(path: str, sql: str, seconds: float, limit: int) -> Rows | Outcome:
    """Run a statement that reads.

    Raises:
        ToolNotRun: The database is busy.
    """
    with closing(_opened(path, "ro", seconds)) as connection:
        connection.set_authorizer(_only_reading)
        try:
            with _in_time(connection, seconds):
                cursor = connection.execute(sql)
                columns = [column[0] for column in cursor.description or ()]
                rows = cursor.fetchmany(limit + 1)
        except (sqlite3.Error, sqlite3.Warning) as error:
            if _is_busy(error):
                raise ToolNotRun(f"the database is busy: {error}") from error
            return Outcome("rejected", message=str(error))
        return Rows(columns, rows, len(rows))


def _only_reading(action: int, *_about: object) -> int:
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


def _opened(path: str, mode: str, seconds: float) -> sqlite3.Connection:
    if not Path(path).is_file():
        raise ToolNotRun(f"there is no database {path}")
    uri = f"file:{quote(path)}?mode={mode}"
    try:
        return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=seconds)
    except sqlite3.OperationalError as error:
        raise ToolNotRun(f"the database {path} cannot be opened: {error}") from error


@contextmanager
def _in_time(connection: sqlite3.Connection, seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > end, _LOOK_EVERY)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)


def _is_busy(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(code, int) and code & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
