"""A provider over HTTP that answers as it is told, breaks as it is told, and counts every request that arrives."""

from __future__ import annotations

import contextlib
import http.client
import secrets
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

__all__ = [
    "Answer",
    "Provider",
    "Request",
    "cut_after_headers",
    "forward",
    "json_answer",
    "lost",
    "reset",
    "running_provider",
]


@dataclass(frozen=True)
class Request:
    """A request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What goes back; `breaks` names how the connection ends instead of well."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    breaks: str = ""


Behaviour = Callable[[Request], Answer]


def json_answer(text: str, status: int = 200, **headers: str) -> Behaviour:
    """Answer with JSON."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    content = {"Content-Type": "application/json", **named}
    return lambda _request: Answer(status, text.encode(), content)


def lost(_request: Request) -> Answer:
    """Close the connection without an answer, after the whole request was read."""
    return Answer(breaks="closed")


def reset(_request: Request) -> Answer:
    """Reset the connection after the whole request was read."""
    return Answer(breaks="reset")


def cut_after_headers(_request: Request) -> Answer:
    """Promise more of a body than comes."""
    return Answer(200, b'{"ok": tr', {"Content-Type": "application/json"}, breaks="cut")


def forward(to: str, *, breaks: str = "") -> Behaviour:
    """Let another server do it; then the answer may get lost."""
    host = to.removeprefix("http://").rstrip("/")

    def behave(request: Request) -> Answer:
        connection = http.client.HTTPConnection(host, timeout=30)
        headers = {
            name: value
            for name, value in request.headers.items()
            if name not in {"host", "connection", "accept-encoding"}
        }
        connection.request(request.method, request.path, request.body or None, headers)
        with contextlib.closing(connection), connection.getresponse() as answer:
            kept = {"Content-Type": answer.headers.get("Content-Type", "application/json")}
            for name in ("Idempotent-Replayed", "Retry-After"):
                if name in answer.headers:
                    kept[name] = answer.headers[name]
            return Answer(answer.status, answer.read(), kept, breaks)

    return behave


class Provider:
    """What arrived, and what happens next.

    Args:
        url: Where it listens.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.call_id = f"call_{secrets.token_hex(8)}"
        """A Call ID that no other test has, for servers that remember."""
        self.requests: list[Request] = []
        self.then: Behaviour = json_answer("{}")
        """What happens when `script` is empty."""
        self.script: list[Behaviour] = []
        """What happens to the next requests, in order."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        provider = cast("_Server", self.server).provider
        length = int(self.headers.get("Content-Length") or 0)
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, self.rfile.read(length))
        provider.requests.append(request)
        behave = provider.script.pop(0) if provider.script else provider.then
        answer = behave(request)
        if answer.breaks in {"closed", "reset"}:
            self._break(hard=answer.breaks == "reset")
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        promised = len(answer.body) + (100 if answer.breaks == "cut" else 0)
        self.send_header("Content-Length", str(promised))
        self.end_headers()
        self.wfile.write(answer.body)
        if answer.breaks == "cut":
            self.wfile.flush()
            self._break(hard=False)

    def _break(self, *, hard: bool) -> None:
        if hard:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - the names that http.server looks for

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    provider: Provider

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone is what some tests are about."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextlib.contextmanager
def running_provider() -> Iterator[Provider]:
    """Run it for the time of the block."""
    server = _Server(("127.0.0.1", 0), _Handler)
    provider = server.provider = Provider(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
