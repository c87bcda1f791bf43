"""`celeriac dev` as a program, and a conversation with it over HTTP."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, cast

import httpx
import pytest
from pydantic import JsonValue

from tests.node_tools import free_port

__all__ = ["Conversation", "Dev", "running_dev"]

_MAIN = "from celeriac.tasks.cli import main; main()"
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Dev:
    """A running `celeriac dev`."""

    process: subprocess.Popen[str]
    base: str
    link: str


@contextmanager
def running_dev(data: Path, **variables: str) -> Iterator[Dev]:
    """Run it for the time of the block, with one worker.

    Args:
        data: Its folder.
        variables: What the user has set in the environment.
    """
    port = free_port()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("CELERIAC_")},
        "CELERIAC_PORT": str(port),
        "CELERIAC_DATA_DIR": str(data),
        "CELERIAC_WEB_PROCESSES": "1",
        "CELERIAC_WEB_THREADS": "8",
        **variables,
    }
    process = subprocess.Popen(
        [sys.executable, "-c", _MAIN, "dev", "--workers", "1"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    link: queue.Queue[str] = queue.Queue()
    # Somebody must read to the end, or the pipe fills up and everything stands still.
    reader = threading.Thread(target=_read, args=(process.stdout, link))
    reader.start()
    try:
        yield Dev(process, f"http://127.0.0.1:{port}", link.get(timeout=60))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
        reader.join()
        process.stdout.close()


def _read(output: TextIO, link: queue.Queue[str]) -> None:
    for line in output:
        if found := re.search(r"Open\s+(http://\S+/login\?code=[\w-]+)", line):
            link.put(found[1])


class Conversation:
    """A session with its event stream open; everything waits for an event, nothing for a time."""

    def __init__(self, web: httpx.Client) -> None:
        self.web = web
        created = web.post("/api/sessions", json={}).raise_for_status().json()
        self.path = f"/api/sessions/{created['session_id']}"
        web.headers["X-Agent-Session-Token"] = created["session_token"]
        self.token = self.snapshot()["resume_token"]

    def snapshot(self) -> dict[str, JsonValue]:
        body: dict[str, JsonValue] = self.web.get(self.path).raise_for_status().json()
        return body

    def send(self, text: str) -> None:
        self.web.post(f"{self.path}/messages", json={"text": text}).raise_for_status()

    def last_text(self) -> str:
        messages = cast("list[dict[str, str]]", self.snapshot()["messages"])
        return messages[-1]["text"]

    def wait_for(self, kind: str, **data: JsonValue) -> dict[str, JsonValue]:
        """Read on to an event, in a new connection that resumes where the last one ended."""
        with self.web.stream("GET", f"{self.path}/events?resume_token={self.token}") as stream:
            event = ""
            for line in stream.iter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    self.token = value
                elif name == "event":
                    event = value
                elif name == "data" and event == kind:
                    body: dict[str, JsonValue] = json.loads(value)
                    if all(body.get(key) == wanted for key, wanted in data.items()):
                        return body
        pytest.fail(f"the stream ended without {kind}")
