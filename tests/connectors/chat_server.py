"""A scripted server on loopback that streams what it is told, in any dialect, and counts what it is asked."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from tests.connectors.wire import wire_problems

Json = Mapping[str, object]


@dataclass(frozen=True)
class Stream:
    """A streamed answer.

    Args:
        chunks: The data of its events.
        done: Whether the end marker follows.
        reset: Break the connection instead of ending it properly.
        hang: Stay open and silent after the chunks, until the server stops.
    """

    chunks: Sequence[Json | str]
    done: bool = True
    reset: bool = False
    hang: bool = False


@dataclass(frozen=True)
class Failure:
    """An answer with an error status."""

    status: int
    message: str = "no"
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def chunk(
    delta: Json | None = None, *, finish: str | None = None, usage: Json | None = None
) -> dict[str, object]:
    """Return the data of one event; without delta and finish it has no choices."""
    choices: list[object] = []
    if delta is not None or finish is not None:
        choices = [{"index": 0, "delta": delta or {}, "finish_reason": finish}]
    data: dict[str, object] = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "gpt-4o-mini-2024-07-18",
        "choices": choices,
    }
    if usage is not None:
        data["usage"] = usage
    return data


def call_delta(
    arguments: str | None = None,
    *,
    index: int | None = 0,
    call_id: str | None = None,
    name: str | None = None,
) -> dict[str, object]:
    """Return a delta with one piece of a tool call."""
    function: dict[str, object] = {}
    if name is not None:
        function["name"] = name
    if arguments is not None:
        function["arguments"] = arguments
    piece: dict[str, object] = {"function": function, "type": "function"}
    if index is not None:
        piece["index"] = index
    if call_id is not None:
        piece["id"] = call_id
    return {"tool_calls": [piece]}


USAGE = {
    "prompt_tokens": 1200,
    "completion_tokens": 300,
    "total_tokens": 1500,
    "prompt_tokens_details": {"cached_tokens": 1000},
    "completion_tokens_details": {"reasoning_tokens": 40},
}


class ChatServer:
    """Answers each request with the next entry of the script."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.script: list[Stream | Failure] = []
        self.requests: list[dict[str, object]] = []
        self.times: list[float] = []
        """When each request came, on the monotonic clock."""
        self.paths: list[str] = []
        self.problems: list[str] = []
        self.stopping = threading.Event()

    def take(self, path: str, body: dict[str, object]) -> Stream | Failure:
        self.requests.append(body)
        self.times.append(time.monotonic())
        self.paths.append(path)
        self.problems += wire_problems(body)
        at = len(self.requests) - 1
        return self.script[at] if at < len(self.script) else Failure(500, "the script has ended")


@contextmanager
def chat_server() -> Iterator[ChatServer]:
    """Run a server for the time of the block."""

    class Answer(_Answer):
        pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    http.daemon_threads = True
    server = Answer.server_of_tests = ChatServer(f"http://127.0.0.1:{http.server_address[1]}/v1")
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.stopping.set()
        http.shutdown()
        thread.join()
        http.server_close()


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of_tests: ClassVar[ChatServer]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = self.server_of_tests.take(self.path, body)
        if isinstance(answer, Failure):
            self._fail(answer)
        else:
            self._stream(answer)

    def _fail(self, answer: Failure) -> None:
        error = {"error": {"message": answer.message, "type": "error", "code": answer.code}}
        data = json.dumps(error).encode()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, answer: Stream) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for data in answer.chunks:
                self._event(data if isinstance(data, str) else json.dumps(data))
            if answer.hang:
                self.server_of_tests.stopping.wait(60)
            if answer.reset or answer.hang:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            if answer.done:
                self._event("[DONE]")
            self.wfile.write(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _event(self, data: str) -> None:
        event = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base
        pass
