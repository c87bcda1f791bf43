"""One call, one effect: the Call ID is written in the transaction of the effect. The same for every database.

A repetition finds its row and replays the stored result. Two at the same time meet at the row: the second waits until
the first has committed or was rolled back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import JsonValue

from celeriac.connectors.sdk import Outcome
from celeriac.sessions.jsonsafe import dump_json, to_json_value

__all__ = [
    "Database",
    "LedgerEntry",
    "Result",
    "Rows",
    "Work",
    "as_objects",
    "execute_once",
    "find",
    "request_hash",
]

_NEVER = "never"
"""The request of a call that was looked up and not found: it can never run any more."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What a statement returned."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    affected: int
    """Rows that it changed, or returned."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A row of the ledger."""

    request_hash: str
    result: str | None


@dataclass(frozen=True, slots=True)
class Result:
    """How `execute_once` ended."""

    outcome: Outcome
    commit: bool
    """Whether the transaction is to be committed; else it is rolled back."""


Work = Callable[["Database"], Result]


class Database(Protocol):
    """An open transaction."""

    def claim(self, key: str, request: str) -> bool:
        """Insert a row into the ledger; say whether there was none of this key."""

    def entry(self, key: str) -> LedgerEntry:
        """Read a row of the ledger."""

    def store(self, key: str, result: str) -> None:
        """Write a result into a row of the ledger."""

    def run(self, sql: str, parameters: Mapping[str, JsonValue], limit: int) -> Rows:
        """Run a statement and return its first rows."""


def request_hash(statement: str, parameters: Mapping[str, JsonValue]) -> str:
    """Return what tells one request from another; the order of its parameters does not matter."""
    text = json.dumps([statement, parameters], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def execute_once(
    database: Database,
    key: str,
    request: str,
    run: Callable[[], Rows],
    *,
    most_rows: int,
) -> Result:
    """Run a statement unless this call has run already.

    Args:
        database: The open transaction.
        key: The call's key.
        request: From `request_hash`.
        run: Runs the statement.
        most_rows: More changed rows than these are undone.
    """
    if not database.claim(key, request):
        return _replayed(database.entry(key), request)
    rows = run()
    if rows.affected > most_rows:
        message = f"it would have changed {rows.affected:,} rows, more than {most_rows:,}; nothing was changed"
        return Result(Outcome("limitExceeded", message=message), commit=False)
    value: dict[str, JsonValue] = {"rowsAffected": rows.affected}
    if rows.columns:
        value["rows"] = as_objects(rows)
    database.store(key, dump_json(value))
    return Result(Outcome("completed", value), commit=True)


def find(database: Database, key: str) -> Result:
    """Look a call up; where it has not run, see to it that it never will."""
    if database.claim(key, _NEVER):
        message = "The ledger has no such call; it did not run, and cannot run any more."
        return Result(Outcome("notFound", message=message), commit=True)
    entry = database.entry(key)
    if entry.request_hash == _NEVER:
        return Result(Outcome("notFound", message="It did not run."), commit=False)
    return Result(Outcome("found", _value(entry), "The ledger has it."), commit=False)


def as_objects(rows: Rows) -> list[JsonValue]:
    """Return rows as objects by column; two columns of one name get numbers."""
    names: list[str] = []
    for column in rows.columns:
        same = sum(name == column or name.startswith(f"{column}_") for name in names)
        names.append(column if column not in names else f"{column}_{same + 1}")
    return [to_json_value(dict(zip(names, row, strict=True))) for row in rows.rows]


def _replayed(entry: LedgerEntry, request: str) -> Result:
    if entry.request_hash == request and entry.result is not None:
        return Result(Outcome("completed", _value(entry)), commit=False)
    if entry.request_hash == _NEVER:
        message = "it was looked up, and recorded as one that never runs"
        return Result(Outcome("defect", message=message), commit=False)
    message = "this call ran with another statement or other parameters before; nothing was changed"
    return Result(Outcome("defect", message=message), commit=False)


def _value(entry: LedgerEntry) -> dict[str, JsonValue]:
    value = json.loads(entry.result or "{}")
    return value if isinstance(value, dict) else {}
