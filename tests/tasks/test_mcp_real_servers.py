"""Real MCP servers of other people behind real workers, sessions and the page."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from typing import cast

import httpx
import pytest

from celeriac.sessions.calls import CallStatus, ToolEffect
from celeriac.sessions.events import EventType
from tests.node_tools import needs_node_tools
from tests.tasks.cluster import PATIENCE, results
from tests.tasks.mcp_place import OPERATOR_TOKEN, Place, open_place

pytestmark = [
    needs_node_tools,
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("mcp_real_servers"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with open_place(tmp_path_factory.mktemp("real")) as made:
        yield made


@pytest.mark.parametrize("server", ["everything", "remote"])
def test_server_everything_over_both_transports(place: Place, server: str) -> None:
    assert place.said(f"{server}__echo", message="Grüße").result == "Echo: Grüße"
    structured = place.said(f"{server}__get-structured-content", location="New York")
    assert isinstance(structured.result, dict)
    assert {"temperature", "conditions", "humidity"} <= set(structured.result)
    image = place.said(f"{server}__get-tiny-image")
    assert "image/png" in json.dumps(image.result)
    links = place.said(f"{server}__get-resource-links", count=2)
    assert json.dumps(links.result).count('"resource_link"') == 2
    wrong = place.said(f"{server}__get-sum", a="one", b=2)
    assert wrong.status is CallStatus.FAILED
    assert wrong.error is not None
    assert "the tool did not run" in wrong.error
    document = place.said(
        "mcp_read_resource",
        server=server,
        uri="demo://resource/static/document/features.md",
    )
    assert document.effect is ToolEffect.READ
    assert "#" in str(document.result)
    prompt = place.said("mcp_get_prompt", server=server, name="simple-prompt")
    assert "simple prompt without arguments" in json.dumps(prompt.result)


def test_progress_is_told_while_a_call_runs(place: Place) -> None:
    call = place.said("everything__trigger-long-running-operation", duration=1, steps=4)
    assert call.status is CallStatus.SUCCEEDED
    told: list[str] = []
    for key in place.cluster.redis.scan_iter("celeriac:*:events"):
        told += map(str, cast("list[object]", place.cluster.redis.xrange(key)))
    progress = [one for one in told if EventType.TOOL_PROGRESS.value in one and call.id in one]
    assert any("4 of 4" in one for one in progress), told


def test_server_memory_keeps_what_was_approved(place: Place) -> None:
    entity = {"name": "Ana", "entityType": "person", "observations": ["likes tea"]}
    call = place.approved("memory__create_entities", entities=[entity])
    assert call.status is CallStatus.SUCCEEDED
    assert (call.source, call.original_name, call.effect) == (
        "memory",
        "create_entities",
        ToolEffect.NON_IDEMPOTENT_WRITE,
    )
    assert "likes tea" in place.graph.read_text()
    assert "likes tea" in json.dumps(place.said("memory__read_graph").result)


def test_server_filesystem_writes_and_reads(place: Place) -> None:
    path = place.files / "note.txt"
    written = place.said("files__write_file", path=str(path), content="ein Gruß")
    assert written.effect is ToolEffect.IDEMPOTENT_WRITE
    assert path.read_text() == "ein Gruß"
    assert "ein Gruß" in json.dumps(
        place.said("files__read_text_file", path=str(path)).result, ensure_ascii=False
    )
    outside = place.said("files__read_text_file", path="/etc/hostname")
    assert outside.status is CallStatus.FAILED
    assert outside.error is not None
    assert "outside allowed directories" in outside.error
    assert outside.attempts == 1, "an error of the tool is not tried again"


def test_server_git_on_the_page(place: Place) -> None:
    (place.repository / "a.txt").write_text("a")
    arguments = {"repo_path": str(place.repository)}
    added = place.said("git__git_add", **arguments, files=["a.txt"])
    assert added.status is CallStatus.SUCCEEDED
    text = json.dumps({**arguments, "message": "from a page"})
    session_id = place.cluster.say(f"/tool git__git_commit {text}", agent="librarian")
    waiting = place.cluster.waiting(session_id)
    with httpx.Client(base_url=place.base, timeout=PATIENCE) as browser:
        log_in(browser)
        html = browser.get(f"/sessions/{session_id}").text
        assert "git: git_commit" in html
        assert "from a page" in html
        answer = browser.post(
            f"/sessions/{session_id}/calls/{waiting.id}/decision",
            data={"csrf_token": csrf(html), "digest": waiting.digest, "decision": "approve"},
        )
        assert answer.status_code == 303
        snapshot = place.cluster.idle(session_id)
        assert "Changes committed successfully" in results(snapshot)[-1]
        html = browser.get(f"/sessions/{session_id}").text
        assert "Approved by ana" in html
    log = subprocess.run(
        ["git", "-C", str(place.repository), "log", "--format=%s"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert log.stdout.splitlines() == ["from a page"]


def csrf(html: str) -> str:
    found = re.search(r'name="csrf-token" content="([^"]+)"', html)
    assert found is not None
    return found[1]


def log_in(browser: httpx.Client) -> None:
    token = csrf(browser.get("/login").text)
    answer = browser.post("/login", data={"csrf_token": token, "operator_token": OPERATOR_TOKEN})
    assert answer.status_code == 303
