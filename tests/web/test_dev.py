"""The web on everything it is made for: `celeriac dev` with its store, a worker and the demo agent."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, cast

import httpx
import pytest
from pydantic import JsonValue

pytestmark = pytest.mark.xdist_group("dev")

_MAIN = "from celeriac.tasks.cli import main; main()"
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Dev:
    process: subprocess.Popen[str]
    base: str
    link: str


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    port = _free_port()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("CELERIAC_")},
        "CELERIAC_PORT": str(port),
        "CELERIAC_DATA_DIR": str(tmp_path_factory.mktemp("dev")),
        "CELERIAC_WEB_PROCESSES": "1",
        "CELERIAC_WEB_THREADS": "8",
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


def test_a_message_a_read_and_an_approved_write(dev: Dev) -> None:
    with httpx.Client(base_url=dev.base, timeout=30) as web:
        talk = Conversation(web)
        talk.send("hello")
        assert talk.wait_for("turn.ended")["state"] == "answered"
        assert "hello" in str(talk.snapshot()["messages"])

        talk.send('/tool cancel_order {"order_id": "1002"}')
        asked = talk.wait_for("call.updated", status="awaiting_approval")
        path = f"{talk.path}/calls/{asked['call_id']}/decision"
        changed = web.post(path, json={"decision": "approve", "digest": "another"})
        assert (changed.status_code, changed.json()["code"]) == (409, "changed")
        (call,) = [c for c in web.get(talk.path).json()["calls"] if c["id"] == asked["call_id"]]
        approve = {"decision": "approve", "digest": call["digest"]}
        assert web.post(path, json=approve).json()["decision"]["by"] == "session user"
        assert talk.wait_for("turn.ended")["state"] == "answered"
        assert web.post(path, json=approve).status_code == 200
        other = web.post(path, json={"decision": "reject"})
        assert (other.status_code, other.json()["code"]) == (409, "already_decided")
        assert "session user" in other.json()["detail"]


def test_a_question_a_wait_and_a_plan_of_the_demo(dev: Dev) -> None:
    with httpx.Client(base_url=dev.base, timeout=30) as web:
        talk = Conversation(web)
        for said, given in (("/ask Which order?", "1002"), ("/choose red|green", "green")):
            talk.send(said)
            asked = talk.wait_for("call.updated", status="awaiting_answer")
            path = f"{talk.path}/calls/{asked['call_id']}/answer"
            web.post(path, json={"answer": given}).raise_for_status()
            assert talk.wait_for("turn.ended")["state"] == "answered"
            assert talk.last_text() == f"ask_user returned: {given}"

        talk.send("/wait 1")
        talk.wait_for("call.updated", status="awaiting_timer")
        assert talk.wait_for("turn.ended")["state"] == "answered"
        assert "waited_seconds" in talk.last_text()

        body = {"text": "/plan buy seeds; sow them", "plan_mode": True}
        web.post(f"{talk.path}/messages", json=body).raise_for_status()
        assert talk.wait_for("plan.changed") == {"revision": 1, "status": "draft"}
        talk.wait_for("turn.ended")
        execute = f"{talk.path}/plan/execute"
        stale = web.post(execute, json={"revision": 2})
        assert (stale.status_code, stale.json()["code"]) == (409, "stale_plan")
        assert web.post(execute, json={"revision": 1}).status_code == 202
        assert talk.wait_for("plan.changed", revision=2)["status"] == "completed"
        assert talk.wait_for("turn.ended")["state"] == "answered"


def test_the_printed_link_logs_a_browser_in_once(dev: Dev) -> None:
    with httpx.Client(base_url=dev.base, timeout=30) as browser, httpx.Client() as other:
        csrf = _csrf(browser.get(dev.link).text)
        form = {"csrf_token": csrf, "code": dev.link.rsplit("=", 1)[1]}
        assert browser.post("/login", data=form).status_code == 303
        assert browser.get("/approvals").status_code == 200
        again = {"csrf_token": _csrf(other.get(dev.link).text), "code": form["code"]}
        assert other.post(f"{dev.base}/login", data=again).status_code == 403


def _csrf(html: str) -> str:
    found = re.search(r'name="csrf-token" content="([^"]+)"', html)
    assert found is not None
    return found[1]
