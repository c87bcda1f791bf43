"""A call of an MCP tool with no client at all: what every client has to wait for."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection

__all__ = ["Exchange", "bare_http", "bare_stdio"]

Exchange = Callable[[], None]
"""Makes one call, and waits for its answer."""

_HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bare", "version": "0"},
}
_CALL = {"name": "echo", "arguments": {"text": "hello"}}
_SECONDS = 30.0


def _message(method: str, params: object = None, number: int | None = None) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return json.dumps({key: value for key, value in message.items() if value is not None}).encode()


@contextmanager
def bare_stdio(command: Sequence[str]) -> Iterator[Exchange]:
    """Start a server's program, and talk to it line by line.

    Args:
        command: What to start.
    """
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise AssertionError("it is started with pipes")
        stdin, stdout = process.stdin, process.stdout

        def asked(message: bytes) -> None:
            stdin.write(message + b"\n")
            stdin.flush()
            if b"result" not in stdout.readline():
                raise RuntimeError("the server answered with an error")

        asked(_message("initialize", _HELLO, 1))
        stdin.write(_message("notifications/initialized") + b"\n")
        yield lambda: asked(_message("tools/call", _CALL, 2))


@contextmanager
def bare_http(port: int) -> Iterator[Exchange]:
    """Talk to a server over one kept connection.

    Args:
        port: Its port.
    """
    connection = HTTPConnection("127.0.0.1", port, timeout=_SECONDS)
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-11-25",
    }

    def asked(message: bytes) -> None:
        connection.request("POST", "/mcp", message, headers)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status >= 300 or (answer.status == 200 and b"result" not in body):
            raise RuntimeError(f"the server answered HTTP {answer.status}: {body[:200]!r}")
        session = answer.headers.get("mcp-session-id")
        if session:
            headers["mcp-session-id"] = session

    asked(_message("initialize", _HELLO, 1))
    asked(_message("notifications/initialized"))
    yield lambda: asked(_message("tools/call", _CALL, 2))
    connection.close()
