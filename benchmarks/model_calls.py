"""What a model call costs over the provider's own time: litellm's import, the first call, and later ones.

Each measurement has a process of its own, as a worker has: this module is that process too.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median
from typing import TypedDict, cast
from urllib.parse import urlsplit

from benchmarks.machinery import Row, ms, percentile
from celeriac.connectors.litellm_client import LiteLlmClient
from celeriac.connectors.litellm_module import preload
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.model import ModelReply, ModelRequest

__all__ = ["measure"]

_WORDS = 20
"""Pieces of each answer."""
_MODELS = {"chat": "openai/gpt-4o-mini", "responses": "openai/gpt-5-mini"}


class _Measured(TypedDict):
    imported: float
    provider: list[float]
    calls: list[float]


def measure(*, scale: float) -> list[Row]:
    """Measure calls to a provider on this machine that answers at once.

    Args:
        scale: How much of the work to do.
    """
    rounds, count = max(3, round(5 * scale)), max(20, round(200 * scale))
    rows: list[Row] = []
    with _provider() as url:
        for api, model in _MODELS.items():
            runs = [_in_a_process(url, model, count) for _ in range(rounds)]
            own = median(one for run in runs for one in run["provider"])
            first = [run["calls"][0] - own for run in runs]
            later = [one - own for run in runs for one in run["calls"][1:]]
            if not rows:
                imported = median(run["imported"] for run in runs)
                rows.append(Row("import of litellm, at the start of a worker", f"{imported:.2f} s"))
            rows += [
                Row(f"the provider's own time, {api}", ms(own), note=f"{_WORDS} pieces"),
                Row(
                    f"first call over it, {api}", ms(median(first)), note=f"worst {ms(max(first))}"
                ),
                Row(
                    f"later calls over it, {api}",
                    ms(percentile(later, 0.5)),
                    note=f"p99 {ms(percentile(later, 0.99))}",
                ),
            ]
    return rows


def _in_a_process(url: str, model: str, count: int) -> _Measured:
    command = [sys.executable, "-m", "benchmarks.model_calls", url, model, str(count)]
    environment = {**os.environ, "OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": "none"}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return cast("_Measured", json.loads(done.stdout.splitlines()[-1]))


# --- the measured process


async def _measured(url: str, model: str, count: int) -> _Measured:
    started = time.perf_counter()
    preload()
    imported = time.perf_counter() - started
    client = LiteLlmClient()
    calls = []
    for _ in range(count):
        started = time.perf_counter()
        [*_, last] = [piece async for piece in client.stream(_request(model))]
        calls.append(time.perf_counter() - started)
        if not isinstance(last, ModelReply):
            raise TypeError(f"no reply but {last!r}")
    return {"imported": imported, "provider": _raw(url, model, count), "calls": calls}


def _request(model: str) -> ModelRequest:
    return ModelRequest(
        model=model,
        instructions="Be brief.",
        messages=[Message(seq=0, role=Role.USER, text="hi", created_at=0)],
        tools=(),
        session_id="bench",
        turn_id="t1",
        attempt=1,
        timeout_seconds=60,
    )


def _raw(url: str, model: str, count: int) -> list[float]:
    """Ask the provider over a kept connection, with nothing in between."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    path = "/v1/responses" if model == _MODELS["responses"] else "/v1/chat/completions"
    times = []
    for _ in range(count):
        started = time.perf_counter()
        connection.request("POST", path, b"{}", {"content-type": "application/json"})
        connection.getresponse().read()
        times.append(time.perf_counter() - started)
    connection.close()
    return times


# --- the provider


@contextmanager
def _provider() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _chat_events() -> list[object]:
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    pieces: list[tuple[dict[str, str], str | None]] = [({"content": "word "}, None)] * _WORDS
    usage = {"prompt_tokens": 10, "completion_tokens": _WORDS, "total_tokens": 10 + _WORDS}
    return [
        *[
            {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
            for delta, finish in [*pieces, ({}, "stop")]
        ],
        {**head, "choices": [], "usage": usage},
    ]


def _responses_events() -> list[object]:
    part = {"type": "output_text", "text": "word " * _WORDS, "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    item_done: dict[str, object] = {**item, "content": [part]}
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m"}
    usage = {"input_tokens": 10, "output_tokens": _WORDS, "total_tokens": 10 + _WORDS}
    delta = {"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0}
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        *[{**delta, "content_index": 0, "delta": "word "} for _ in range(_WORDS)],
        {"type": "response.output_item.done", "output_index": 0, "item": item_done},
        {
            "type": "response.completed",
            "response": {**response, "status": "completed", "output": [item_done], "usage": usage},
        },
    ]


def _body(events: list[object]) -> bytes:
    return b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    bodies = {  # noqa: RUF012 - made once, never changed
        "/v1/chat/completions": _body(_chat_events()) + b"data: [DONE]\n\n",
        "/v1/responses": _body(_responses_events()),
    }

    def do_POST(self) -> None:
        """Answer at once."""
        self.rfile.read(int(self.headers["content-length"]))
        body = self.bodies[self.path]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base
        """Say nothing."""


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_measured(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
