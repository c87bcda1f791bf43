"""A real order desk in an SQLite file, shared by any number of worker processes.

Every effect leaves a row in the table ``effects`` in the same transaction, so anybody can count what really
happened, whatever the session says.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from celeriac.sessions.errors import ToolFailed
from celeriac.sessions.settings import load_settings

__all__ = ["Effect", "Order", "OrderDesk"]

# How long a statement waits while another process writes.
_BUSY_SECONDS = 30.0

_TABLES = (
    """CREATE TABLE orders (order_id TEXT PRIMARY KEY, item TEXT NOT NULL, total TEXT NOT NULL,
       status TEXT NOT NULL, note TEXT NOT NULL DEFAULT '')""",
    """CREATE TABLE notes (idempotency_key TEXT PRIMARY KEY, order_id TEXT NOT NULL,
       note TEXT NOT NULL)""",
    """CREATE TABLE effects (call_id TEXT NOT NULL, tool TEXT NOT NULL,
       at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')))""",
)

_ORDERS = (
    ("1001", "Celeriac seeds, 2 packets", "6.40", "shipped"),
    ("1002", "Copper trowel", "39.00", "processing"),
    ("1003", "Garden gloves, size 8", "14.50", "processing"),
    ("1004", "Watering can, 9 litres", "52.90", "shipped"),
    ("1005", "Cold frame", "128.00", "processing"),
)


@dataclass(frozen=True, slots=True)
class Order:
    """One order as it is now."""

    order_id: str
    item: str
    total: str
    status: str
    note: str


@dataclass(frozen=True, slots=True)
class Effect:
    """One execution that really happened."""

    call_id: str
    tool: str
    at: str
    """UTC, ISO 8601."""


class OrderDesk:
    """Orders 1001 to 1005 and what was done to them.

    Args:
        path: The SQLite file; made with its orders at the first use.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of_environment(cls) -> OrderDesk:
        """Return the desk in the file that ``CELERIAC_ORDER_DESK`` names, else in the data directory."""
        named = os.environ.get("CELERIAC_ORDER_DESK")
        return cls(Path(named) if named else load_settings().data_dir / "order_desk.sqlite")

    def look_up(self, order_id: str, *, call_id: str) -> Order:
        """Return an order.

        Raises:
            ToolFailed: There is no such order.
        """
        with self._transaction() as db:
            order = _order(db, order_id)
            _leave_effect(db, call_id, "look_up_order")
            return order

    def set_note(self, order_id: str, note: str, *, idempotency_key: str, call_id: str) -> Order:
        """Write an order's note, once per idempotency key.

        Raises:
            ToolFailed: There is no such order.
        """
        with self._transaction() as db:
            _order(db, order_id)
            written = db.execute(
                "INSERT OR IGNORE INTO notes VALUES (?, ?, ?)", (idempotency_key, order_id, note)
            )
            if written.rowcount:
                db.execute("UPDATE orders SET note = ? WHERE order_id = ?", (note, order_id))
                _leave_effect(db, call_id, "set_note")
            return _order(db, order_id)

    def cancel(self, order_id: str, *, call_id: str) -> Order:
        """Cancel an order.

        Raises:
            ToolFailed: There is no such order, or it is already cancelled; nothing was changed.
        """
        with self._transaction() as db:
            order = _order(db, order_id)
            if order.status == "cancelled":
                raise ToolFailed(f"order {order_id} is already cancelled; nothing was changed")
            db.execute("UPDATE orders SET status = 'cancelled' WHERE order_id = ?", (order_id,))
            _leave_effect(db, call_id, "cancel_order")
            return _order(db, order_id)

    def effects(self, *, call_id: str | None = None) -> list[Effect]:
        """Return what really happened, oldest first; of one call, if it is named."""
        where, values = ("WHERE call_id = ?", (call_id,)) if call_id else ("", ())
        with self._transaction() as db:
            rows = db.execute(
                f"SELECT call_id, tool, at FROM effects {where} ORDER BY rowid",  # noqa: S608 - ours
                values,
            )
            return [Effect(*row) for row in rows]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        # A connection per use needs no care about threads and forks, and costs far less than the fsync.
        self.path.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
        with closing(database) as db:
            # Immediate: of several processes that find the file empty, one makes the tables.
            db.execute("BEGIN IMMEDIATE")
            try:
                _make_tables(db)
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")


def _make_tables(db: sqlite3.Connection) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version:
        return
    for table in _TABLES:
        db.execute(table)
    db.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, '')", _ORDERS)
    db.execute("PRAGMA user_version = 1")


def _order(db: sqlite3.Connection, order_id: str) -> Order:
    row = db.execute(
        "SELECT order_id, item, total, status, note FROM orders WHERE order_id = ?", (order_id,)
    ).fetchone()
    if row is None:
        raise ToolFailed(f"there is no order {order_id!r}; the desk has 1001 to 1005")
    return Order(*row)


def _leave_effect(db: sqlite3.Connection, call_id: str, tool: str) -> None:
    db.execute("INSERT INTO effects (call_id, tool) VALUES (?, ?)", (call_id, tool))
