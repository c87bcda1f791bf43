"""An MCP server over Streamable HTTP (2025-11-25), written by hand, that forgets sessions and cuts connections.

It runs in a thread of the test, which sets `plan`: what becomes of the next ``tools/call`` requests, by name:
``ok``, ``forget`` (the session is forgotten first), ``cut`` and ``cut_after`` (before and after the effect),
``status:502``, ``retry:7`` (429), ``redirect:address``, ``half`` (half of a JSON answer), ``sse_cut`` (an event stream without an answer).
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import uuid
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

__all__ = ["OddHttp"]

_TOOLS = [
    {"name": "pay", "description": "Pay.", "inputSchema": {"type": "object"}},
    {
        "name": "look",
        "description": "Look.",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    },
]


class OddHttp:
    """The server; a context."""

    def __init__(self) -> None:
        self.plan: deque[str] = deque()
        self.sessions: set[str] = set()
        self.handshakes = 0
        self.calls: list[str] = []
        """Idempotency keys of the calls that had their effect."""
        self.requests: list[tuple[str, str]] = []
        """Idempotency key and session of every call that came, refused ones too."""
        self.headers: list[dict[str, str]] = []
        self.refuse_sessions = False
        self.lock = threading.Lock()
        self.connections: list[socket.socket] = []
        odd = self

        class Handler(_Handler):
            server_state = odd

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/mcp"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Be gone, kept connections included."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self.cut_connections()

    def cut_connections(self) -> None:
        """End every kept connection."""
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: OddHttp

    def setup(self) -> None:
        super().setup()
        self.server_state.connections.append(self.connection)

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._reply(405, b"")

    def do_DELETE(self) -> None:
        with self.server_state.lock:
            self.server_state.sessions.discard(self.headers.get("mcp-session-id", ""))
        self._reply(204, b"")

    def do_POST(self) -> None:
        odd = self.server_state
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        odd.headers.append({name.lower(): value for name, value in self.headers.items()})
        method = message.get("method")
        if method == "initialize":
            self._initialize(message)
        elif "id" not in message:
            self._reply(202, b"")
        elif method == "server/discover":
            self._error(400, message, -32601, "no such method")
        elif method == "tools/call":
            self._call(message)
        elif self._knows_session():
            self._result(message, {"tools": _TOOLS})

    def _initialize(self, message: dict[str, Any]) -> None:
        session = uuid.uuid4().hex
        with self.server_state.lock:
            self.server_state.handshakes += 1
            if not self.server_state.refuse_sessions:
                self.server_state.sessions.add(session)
        result = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "odd", "version": "1"},
        }
        self._result(message, result, {"mcp-session-id": session})

    def _knows_session(self) -> bool:
        if self.headers.get("mcp-session-id") in self.server_state.sessions:
            return True
        self._reply(404, b"no such session", {"content-type": "text/plain"})
        return False

    def _call(self, message: dict[str, Any]) -> None:
        odd = self.server_state
        key = message["params"]["_meta"]["celeriac/idempotencyKey"]
        with odd.lock:
            odd.requests.append((key, self.headers.get("mcp-session-id", "")))
            plan = odd.plan.popleft() if odd.plan else "ok"
            if plan == "forget":
                odd.sessions.clear()
        if not self._knows_session():
            return
        word, _, number = plan.partition(":")
        if word == "status":
            self._reply(int(number), b"sorry", {"content-type": "text/plain"})
        elif word == "retry":
            self._reply(429, b"", {"retry-after": number})
        elif word == "redirect":
            self._reply(307, b"", {"location": number})
        elif word == "cut":
            self._cut()
        else:
            odd.calls.append(key)
            self._end(word, message)

    def _end(self, word: str, message: dict[str, Any]) -> None:
        if word == "cut_after":
            self._cut()
        elif word == "half":
            self._begin(200, 1000, {"content-type": "application/json"})
            self.wfile.write(b'{"jsonrpc": "2.0", ')
            self._cut()
        elif word == "sse_cut":
            self._begin(200, None, {"content-type": "text/event-stream", "connection": "close"})
            self.wfile.write(b": hello\n\n")
            self._cut()
        else:
            self._result(message, {"content": [{"type": "text", "text": "paid"}]})

    def _cut(self) -> None:
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def _result(
        self, message: dict[str, Any], result: object, headers: dict[str, str] | None = None
    ) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        self._reply(200, body, {"content-type": "application/json", **(headers or {})})

    def _error(self, status: int, message: dict[str, Any], code: int, text: str) -> None:
        error = {"code": code, "message": text}
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()
        self._reply(status, body, {"content-type": "application/json"})

    def _begin(self, status: int, length: int | None, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if length is not None:
            self.send_header("content-length", str(length))
        self.end_headers()

    def _reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self._begin(status, len(body), headers or {})
        self.wfile.write(body)
