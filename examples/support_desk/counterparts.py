"""What the example talks to on your machine: a database, and very small stand-ins for Stripe and Slack.

python counterparts.py        makes shop.sqlite here and serves until Ctrl-C
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, parse_qsl, urlsplit

Answer = tuple[int, dict[str, object]]


def make_shop(path: Path) -> None:
    """Make the database, unless it is there."""
    with closing(sqlite3.connect(path)) as shop, shop:
        shop.execute(
            "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT, total INTEGER, charge TEXT, "
            "refunded INTEGER NOT NULL DEFAULT 0)"
        )
        shop.execute("INSERT OR IGNORE INTO orders VALUES (1001, 'Lamp', 4900, 'ch_1001', 0)")
        shop.execute("INSERT OR IGNORE INTO orders VALUES (1002, 'Desk', 34900, 'ch_1002', 0)")


class Stripe(BaseHTTPRequestHandler):
    """Charges ch_1001 and ch_1002, and refunds with idempotency keys."""

    refunds: ClassVar[dict[str, dict[str, object]]] = {}

    def do_GET(self) -> None:
        """Answer a read."""
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if path == "/v1/refunds":
            charge = query.get("charge", [""])[0]
            found = [one for one in self.refunds.values() if one["charge"] == charge]
            _answer(self, 200, {"object": "list", "data": found, "has_more": False})
        elif path.startswith("/v1/charges/ch_100"):
            charge = path.rsplit("/", 1)[1]
            _answer(
                self,
                200,
                {"object": "charge", "id": charge, "currency": "eur", "status": "succeeded"},
            )
        else:
            _answer(
                self, 404, {"error": {"type": "invalid_request_error", "message": "No such thing"}}
            )

    def do_POST(self) -> None:
        """Make a refund; a key that is known is answered as the first time."""
        fields = dict(parse_qsl(_body(self).decode()))
        key = self.headers.get("Idempotency-Key", "")
        refund = {
            "object": "refund",
            "id": f"re_{len(self.refunds) + 1}",
            "charge": fields.get("charge"),
            "amount": int(fields.get("amount", 4900)),
            "currency": "eur",
            "status": "succeeded",
            "metadata": {"celeriac_call_id": fields.get("metadata[celeriac_call_id]")},
        }
        _answer(self, 200, self.refunds.setdefault(key, refund))

    def log_message(self, *_: object) -> None:
        """Say nothing of each request."""


class Slack(BaseHTTPRequestHandler):
    """One channel with one thread."""

    messages: ClassVar[list[dict[str, object]]] = [
        {"ts": "1710000000.000100", "user": "U1", "text": "My lamp (order 1001) does not shine."}
    ]

    def do_GET(self) -> None:
        """Show the thread."""
        _answer(self, 200, {"ok": True, "messages": self.messages, "has_more": False})

    def do_POST(self) -> None:
        """Post in it."""
        fields = json.loads(_body(self))
        message = {"ts": f"{time.time():.6f}", "bot_id": "B1", **fields}
        self.messages.append(message)
        print(f"Slack: {fields['text']}", flush=True)
        _answer(self, 200, {"ok": True, "channel": fields["channel"], "ts": message["ts"]})

    def log_message(self, *_: object) -> None:
        """Say nothing of each request."""


def _body(handler: BaseHTTPRequestHandler) -> bytes:
    return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))


def _answer(handler: BaseHTTPRequestHandler, status: int, content: dict[str, object]) -> None:
    body = json.dumps(content).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stripe-port", type=int, default=8091)
    parser.add_argument("--slack-port", type=int, default=8092)
    options = parser.parse_args()
    make_shop(Path("shop.sqlite"))
    stripe = ThreadingHTTPServer(("127.0.0.1", options.stripe_port), Stripe)
    slack = ThreadingHTTPServer(("127.0.0.1", options.slack_port), Slack)
    threading.Thread(target=stripe.serve_forever, daemon=True).start()
    print(
        f"Stripe on {options.stripe_port}, Slack on {options.slack_port}, orders in shop.sqlite",
        flush=True,
    )
    try:
        slack.serve_forever()
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    main()
