"""Stands between litellm and a model server and keeps every byte of both directions.

A server's journal may hold requests in a form of its own; what was replayed is proved by what went over the wire.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar, cast
from urllib.parse import urlsplit

__all__ = ["Exchange", "Relay", "running_relay"]

_NOT_PASSED_ON = {"host", "connection", "transfer-encoding", "content-length", "accept-encoding"}


@dataclass
class Exchange:
    """One request and its answer."""

    path: str
    sent: bytes
    answered: bytes = b""

    @property
    def request(self) -> dict[str, object]:
        return cast("dict[str, object]", json.loads(self.sent))

    @property
    def events(self) -> list[dict[str, object]]:
        """The data of the answer's events."""
        lines = self.answered.decode().splitlines()
        data = (line.removeprefix("data: ") for line in lines if line.startswith("data: {"))
        return [json.loads(one) for one in data]


class Relay:
    """What went over the wire.

    Args:
        url: Where it listens.
        to: The model server.
    """

    def __init__(self, url: str, to: str) -> None:
        self.url = url
        self.to = to
        self.exchanges: list[Exchange] = []


@contextmanager
def running_relay(to: str) -> Iterator[Relay]:
    """Run it for the time of the block."""

    class Pass(_Pass):
        pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pass)
    server.daemon_threads = True
    relay = Pass.relay = Relay(f"http://127.0.0.1:{server.server_address[1]}", to)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield relay
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Pass(BaseHTTPRequestHandler):
    relay: ClassVar[Relay]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        exchange = Exchange(self.path, body)
        self.relay.exchanges.append(exchange)
        kept = {k: v for k, v in self.headers.items() if k.lower() not in _NOT_PASSED_ON}
        upstream = http.client.HTTPConnection(urlsplit(self.relay.to).netloc)
        try:
            upstream.request("POST", self.path, body, kept)
            answer = upstream.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _NOT_PASSED_ON:
                    self.send_header(name, value)
            self.end_headers()  # without a length: it ends with the connection
            while piece := answer.read1(65_536):
                exchange.answered += piece
                self.wfile.write(piece)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            upstream.close()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base
        pass
