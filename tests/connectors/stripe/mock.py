"""stripe-stateful-mock: somebody else's Stripe, with charges, refunds and idempotency keys in its memory."""

from __future__ import annotations

import contextlib
import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from tests.node_tools import answers, free_port, node, start_node_tool

__all__ = ["KEY", "StripeMock", "running_stripe"]

KEY = "sk_test_Qm3Vt8aa1Zz"

_PROGRAM = """
const mock = require("stripe-stateful-mock");
require("http").createServer(mock.createExpressApp()).listen(Number(process.argv[1]), "127.0.0.1");
"""


class StripeMock:
    """The server, asked beside the connector.

    Args:
        url: Where it listens.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def charge(self, amount: int) -> str:
        """Charge a card and return the charge's id."""
        made = self._ask("/v1/charges", amount=str(amount), currency="eur", source="tok_visa")
        return str(made["id"])

    def refunds(self, charge: str) -> list[tuple[int, str]]:
        """Return amount and Call ID of each refund of a charge."""
        listed = self._ask(f"/v1/refunds?charge={charge}&limit=100")
        items = cast("list[dict[str, object]]", listed["data"])
        return [
            (
                cast("int", item["amount"]),
                cast("dict[str, str]", item["metadata"]).get("celeriac_call_id", ""),
            )
            for item in items
        ]

    def _ask(self, path: str, **fields: str) -> dict[str, object]:
        body = urllib.parse.urlencode(fields).encode() if fields else None
        request = urllib.request.Request(self.url + path, body)
        request.add_header("Authorization", f"Bearer {KEY}")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return cast("dict[str, object]", json.load(answer))


@contextlib.contextmanager
def running_stripe(folder: Path) -> Iterator[StripeMock]:
    """Run it for the time of the block."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [node(), "-e", _PROGRAM, str(port)]
    env = {"NODE_PATH": str(Path(__file__).parents[2] / "node" / "node_modules")}
    with start_node_tool(command, folder / "stripe.log", ready=lambda _tool: answers(url), env=env):
        yield StripeMock(url)
