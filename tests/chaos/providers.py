"""Two providers of the storm that nobody kills: a Stripe that loses answers, and a database of bookings.

Both book for themselves what was really done, so that it can be compared with what sessions say.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from random import Random
from urllib.parse import parse_qsl, urlsplit

from pydantic import JsonValue

from tests.chaos.ledger import Entry, Ledger
from tests.connectors.sdk.provider import Answer, Request

__all__ = ["ChaosStripe", "booked", "connections", "make_bookings"]

_STATEMENT: JsonValue = {
    "book": {
        "sql": "INSERT INTO booking (label) VALUES (:label)",
        "description": "Book it.",
        "parameters": {"label": {"type": "string", "description": "What for."}},
    }
}


class ChaosStripe:
    """Makes a refund once for each key, and answers well, badly, late or not at all.

    Args:
        ledger: Where refunds are booked.
        seed: Decides which answers get lost.
    """

    def __init__(self, ledger: Ledger, seed: int) -> None:
        self._ledger = ledger
        self._chance = Random(f"{seed}/stripe")
        self._lock = threading.Lock()
        self._refunds: dict[str, dict[str, JsonValue]] = {}

    def __call__(self, request: Request) -> Answer:
        """Answer a request."""
        if request.method == "GET":
            return self._listed(request)
        with self._lock:
            fate = self._chance.choices(
                ("well", "limit", "lost", "broken", "cut"), (12, 1, 2, 1, 1)
            )[0]
            if fate == "limit":
                return Answer(429, b"{}", {"Retry-After": "0"})
            refund = self._refunded(request)
        body = json.dumps(refund).encode()
        if fate == "broken":
            return Answer(500, b"{}", {"Retry-After": "0"})
        breaks = {"lost": "closed", "cut": "cut"}.get(fate, "")
        return Answer(200, body, {"Content-Type": "application/json"}, breaks)

    def _refunded(self, request: Request) -> dict[str, JsonValue]:
        fields = dict(parse_qsl(request.body.decode()))
        key = request.headers["idempotency-key"]
        call_id, charge = fields["metadata[celeriac_call_id]"], fields["charge"]
        name = "stripe_create_refund"
        self._ledger.enter("entered", call_id, key=call_id, tool=name, label=charge, attempt=0)
        if key not in self._refunds:
            self._refunds[key] = {
                "object": "refund",
                "id": f"re_{len(self._refunds)}",
                "charge": charge,
                "status": "succeeded",
                "metadata": {"celeriac_call_id": call_id},
            }
            self._ledger.enter("effects", call_id, key=call_id, tool=name, label=charge, attempt=0)
        return self._refunds[key]

    def _listed(self, request: Request) -> Answer:
        charge = dict(parse_qsl(urlsplit(request.path).query)).get("charge")
        with self._lock:
            found = [one for one in self._refunds.values() if one["charge"] == charge]
        body = json.dumps({"object": "list", "data": found, "has_more": False}).encode()
        return Answer(200, body, {"Content-Type": "application/json"})


def make_bookings(path: Path) -> None:
    """Make the database; a label may stand in it as often as it was really booked."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE IF NOT EXISTS booking (label)")


def booked(path: Path) -> list[Entry]:
    """Return what was booked; the label is the only name that a booking has."""
    with closing(sqlite3.connect(path)) as database:
        labels = [str(row[0]) for row in database.execute("SELECT label FROM booking")]
    return [Entry("", "", "sql_book", label, 0, 0, 0) for label in labels]


def connections(stripe_url: str, bookings: Path) -> dict[str, str]:
    """Return the variables of both connections."""
    prefix = "CELERIAC_CONNECTION"
    return {
        f"{prefix}_SHOP_CONNECTOR": "stripe",
        f"{prefix}_SHOP_SECRET_KEY": "sk_test_chaos",
        f"{prefix}_SHOP_BASE_URL": stripe_url,
        f"{prefix}_BOOKS_CONNECTOR": "sql",
        f"{prefix}_BOOKS_URL": f"sqlite:///{bookings}",
        f"{prefix}_BOOKS_STATEMENTS": json.dumps(_STATEMENT),
        f"{prefix}_BOOKS_TIMEOUT_SECONDS": "3",
    }
