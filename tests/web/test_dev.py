"""The web on everything it is made for: `celeriac dev` with its store, a worker and the demo agent."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from tests.web.dev_process import Conversation, Dev, running_dev

pytestmark = pytest.mark.xdist_group("dev")


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    with running_dev(tmp_path_factory.mktemp("dev")) as running:
        yield running


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
