"""PostgreSQL: a connection for each call; a reader is in a read-only transaction and sends one statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, cast

from pydantic import JsonValue

from celeriac.connectors.sdk import Outcome
from celeriac.connectors.sql.ledger import LedgerEntry, Result, Rows
from celeriac.sessions.errors import ConfigurationError, ToolNotRun, ToolOutcomeUnknown

if TYPE_CHECKING:
    import psycopg
    from psycopg.rows import TupleRow

    _Connection = psycopg.Connection[TupleRow]

__all__ = ["Place", "PostgresDatabase", "read", "require_driver", "transact"]

_CONNECT_SECONDS = 10
_UNDEFINED_TABLE = "42P01"
_TRY_AGAIN = frozenset({"40001", "40P01", "55P03", "57014", "53300", "57P01", "57P02", "57P03"})
"""Rolled back for certain, and worth another attempt: deadlocks, locks, time-outs, a server that goes down."""


class Place:
    """Where a database is, and how long a statement may take.

    Args:
        url: Its URL, without a password.
        password: The password, if it has one.
        seconds: Longest time of one statement.
        table: Name of the ledger.
        creates_ledger: Whether the ledger is made when it is missing.
    """

    def __init__(
        self,
        url: str,
        password: str | None,
        seconds: float,
        table: str,
        *,
        creates_ledger: bool,
    ) -> None:
        self.url = url
        self.password = password
        self.milliseconds = int(seconds * 1000)
        self.table = table
        self.creates_ledger = creates_ledger

    @contextmanager
    def connected(self) -> Iterator[_Connection]:
        """Connect.

        Raises:
            ToolNotRun: No connection; nothing was sent.
        """
        driver = require_driver()
        given = {} if self.password is None else {"password": self.password}
        try:
            connection = driver.connect(
                self.url,
                connect_timeout=_CONNECT_SECONDS,
                application_name="celeriac",
                autocommit=True,
                options=f"-c statement_timeout={self.milliseconds} -c lock_timeout={self.milliseconds}",
                **given,
            )
        except driver.OperationalError as error:
            raise ToolNotRun(f"no connection to the database: {_first_line(error)}") from error
        try:
            yield connection
        finally:
            connection.close()


class PostgresDatabase:
    """An open transaction; see `Database`.

    Args:
        connection: The connection.
        table: Name of the ledger.
    """

    def __init__(self, connection: _Connection, table: str) -> None:
        self._connection = connection
        self._table = table

    def claim(self, key: str, request: str) -> bool:
        insert = f"INSERT INTO {self._table} (call_id, request_hash) VALUES (%s, %s) ON CONFLICT DO NOTHING"  # noqa: S608 - checked by the manifest
        return self._execute(insert, (key, request)).rowcount == 1

    def entry(self, key: str) -> LedgerEntry:
        select = f"SELECT request_hash, result FROM {self._table} WHERE call_id = %s"  # noqa: S608 - as above
        row = self._execute(select, (key,)).fetchone()
        if row is None:
            raise ToolOutcomeUnknown("the ledger lost a row")
        return LedgerEntry(row[0], row[1])

    def store(self, key: str, result: str) -> None:
        update = f"UPDATE {self._table} SET result = %s WHERE call_id = %s"  # noqa: S608 - as above
        self._execute(update, (result, key))

    def run(self, sql: str, parameters: Mapping[str, JsonValue], limit: int) -> Rows:
        cursor = self._execute(sql, dict(parameters))
        columns = [column.name for column in cursor.description or ()]
        rows = cursor.fetchmany(limit) if columns else []
        return Rows(columns, rows, max(cursor.rowcount, 0))

    def _execute(
        self, sql: str, parameters: tuple[object, ...] | dict[str, JsonValue]
    ) -> psycopg.Cursor[TupleRow]:
        # Prepared: the server then takes one statement and no more.
        return self._connection.execute(
            cast("psycopg.abc.QueryNoTemplate", sql), parameters, prepare=True
        )


def transact(place: Place, work: Callable[[PostgresDatabase], Result]) -> Outcome:
    """Do work in one transaction; where the ledger is missing it is made first.

    Raises:
        ToolNotRun: Nothing was changed, and another attempt may succeed.
        ToolOutcomeUnknown: The connection broke; the ledger will tell the next attempt.
    """
    driver = require_driver()
    with place.connected() as connection:
        try:
            return _once(connection, place, work)
        except driver.errors.UndefinedTable as error:
            if not place.creates_ledger or place.table not in str(error):
                return Outcome("rejected", message=_first_line(error))
        _create_ledger(connection, place.table)
        return _once(connection, place, work)


def _once(
    connection: _Connection, place: Place, work: Callable[[PostgresDatabase], Result]
) -> Outcome:
    driver = require_driver()
    try:
        connection.execute("BEGIN")
        result = work(PostgresDatabase(connection, place.table))
        connection.execute("COMMIT" if result.commit else "ROLLBACK")
    except driver.errors.UndefinedTable:
        connection.execute("ROLLBACK")
        raise
    except driver.Error as error:
        return _refused(error)
    return result.outcome


def _create_ledger(connection: _Connection, table: str) -> None:
    driver = require_driver()
    try:
        connection.execute(
            cast(
                "psycopg.abc.QueryNoTemplate",
                f"CREATE TABLE IF NOT EXISTS {table} (call_id text PRIMARY KEY, request_hash text NOT NULL, "
                "result text, created_at timestamptz NOT NULL DEFAULT now())",
            )
        )
    except driver.errors.UniqueViolation:
        return  # another worker made it at the same moment
    except driver.Error as error:
        raise ToolNotRun(f"the ledger {table} cannot be made: {_first_line(error)}") from error


def read(place: Place, sql: str, limit: int) -> Rows | Outcome:
    """Run a statement that reads.

    Raises:
        ToolNotRun: No connection, or it broke; a read may be repeated.
    """
    driver = require_driver()
    with place.connected() as connection:
        try:
            connection.execute("BEGIN READ ONLY")
            cursor = connection.execute(cast("psycopg.abc.QueryNoTemplate", sql), prepare=True)
            columns = [column.name for column in cursor.description or ()]
            rows = cursor.fetchmany(limit + 1) if columns else []
            connection.execute("ROLLBACK")
        except driver.Error as error:
            if error.sqlstate is None:
                raise ToolNotRun(f"the connection broke: {_first_line(error)}") from error
            return Outcome("rejected", message=_first_line(error))
        return Rows(columns, rows, len(rows))


def require_driver() -> ModuleType:
    """Load the driver.

    Raises:
        ConfigurationError: It is not installed.
    """
    try:
        return import_module("psycopg")
    except ImportError as error:
        raise ConfigurationError(
            f"PostgreSQL needs the extra `sql`: pip install 'celeriac[sql]' ({error})"
        ) from error


def _refused(error: psycopg.Error) -> Outcome:
    """Sort an error of a transaction: with a code the server said it itself, and has rolled back."""
    state = error.sqlstate
    if state is None:
        raise ToolOutcomeUnknown(f"the connection broke: {_first_line(error)}") from error
    if state in _TRY_AGAIN:
        raise ToolNotRun(f"{_first_line(error)} ({state}); nothing was changed") from error
    return Outcome("rejected", message=f"{_first_line(error)} ({state})")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
