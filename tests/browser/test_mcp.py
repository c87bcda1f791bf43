"""MCP servers as a person meets them on the page: real servers, real workers, a real browser."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from celeriac.connectors.mcp_config import HttpServer, McpServer
from celeriac.sessions.calls import CallStatus
from tests.connectors.mcp_talk import odd_server
from tests.node_tools import needs_node_tools
from tests.tasks.cluster import PATIENCE
from tests.tasks.mcp_cluster import McpCluster
from tests.tasks.mcp_place import OPERATOR_TOKEN, Place, allow_operator, open_place
from tests.waiting import wait_until

pytestmark = [needs_node_tools, pytest.mark.timeout(240)]

DOWN = HttpServer(url="http://127.0.0.1:9/mcp")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with open_place(tmp_path_factory.mktemp("page"), down=DOWN) as made:
        yield made


@pytest.fixture
def page(chromium: Browser, place: Place) -> Iterator[Page]:
    with logged_in(chromium, place.base) as page:
        yield page


@contextmanager
def logged_in(chromium: Browser, base: str) -> Iterator[Page]:
    """Open a page with Ana logged in."""
    context = chromium.new_context(base_url=base)
    context.set_default_timeout(PATIENCE * 1000)
    page = context.new_page()
    page.goto("/login")
    page.get_by_label("Operator token").fill(OPERATOR_TOKEN)
    page.get_by_role("button", name="Log in with token").click()
    yield page
    context.close()


def start(page: Page, tool: str, **arguments: object) -> Locator:
    """Begin a session whose model calls a tool; return the call's card."""
    page.goto("/sessions")
    page.get_by_label("First message").fill(f"/tool {tool} {json.dumps(arguments)}")
    page.get_by_role("button", name="Start session").click()
    return page.locator(".call").first


def result_of(card: Locator) -> Locator:
    expect(card).to_contain_text("Done", timeout=PATIENCE * 1000)
    card.get_by_text("Arguments and result").click()
    return card.locator("pre").last


def approve(card: Locator) -> None:
    expect(card).to_contain_text("Needs approval", timeout=PATIENCE * 1000)
    card.get_by_role("button", name="Approve").click()
    expect(card.locator(".decision")).to_contain_text("Approved by ana, ")


@pytest.mark.parametrize("server", ["everything", "remote"])
def test_a_call_shows_server_and_tool_and_the_page_says_which_server_is_missing(
    page: Page, server: str
) -> None:
    card = start(page, f"{server}__echo", message="Grüße")
    expect(card.locator(".call__title")).to_have_text(f"{server}: echo")
    expect(result_of(card)).to_contain_text("Echo: Grüße")
    expect(page.locator("article.message--assistant").last).to_contain_text("Echo: Grüße")
    banner = page.locator(".banner--warn").filter(has_text="MCP server down")
    expect(banner).to_contain_text(
        "Some tools are missing just now; the agent answers without them"
    )
    expect(banner).to_contain_text("MCP server down: it cannot be reached")
    expect(page.locator(".state__sentence")).to_have_text("Ready for your message")


def test_the_agent_answers_without_a_server_that_is_down_a_slow_and_a_broken_one(
    chromium: Browser, tmp_path: Path
) -> None:
    servers: dict[str, McpServer] = {
        "odd": odd_server(tmp_path / "odd").server,
        "down": DOWN,
        "slow": odd_server(tmp_path / "slow", env={"ODD_START": "hang"}).server,
        "broken": odd_server(tmp_path / "broken", env={"ODD_START": "fail"}).server,
    }
    with McpCluster(tmp_path / "cluster", servers) as cluster:
        allow_operator(cluster)
        cluster.start_worker()
        cluster.await_tool("odd__look")
        _, base = cluster.start_web()
        with logged_in(chromium, base) as page:
            card = start(page, "odd__look")
            expect(card.locator(".call__title")).to_have_text("odd: look")
            expect(page.locator("article.message--assistant").last).to_contain_text(
                "odd__look returned: done", timeout=PATIENCE * 1000
            )
            banner = page.locator(".banner--warn")
            for name in ("down", "slow", "broken"):
                expect(banner.filter(has_text=f"MCP server {name}: ")).to_have_count(1)
            expect(page.locator(".state__sentence")).to_have_text("Ready for your message")


def test_what_is_approved_on_the_page_is_remembered_by_server_memory(
    page: Page, place: Place
) -> None:
    entity = {"name": "Bo", "entityType": "person", "observations": ["likes coffee"]}
    card = start(page, "memory__create_entities", entities=[entity])
    expect(card.locator(".call__title")).to_have_text("memory: create_entities")
    expect(card.locator(".arguments")).to_contain_text("likes coffee")
    expect(card).to_contain_text("memory says of this tool")
    approve(card)
    expect(result_of(card)).to_contain_text("likes coffee")
    assert "likes coffee" in place.graph.read_text()


def test_server_filesystem_reads_what_it_wrote(page: Page, place: Place) -> None:
    path = place.files / "page.txt"
    card = start(page, "files__write_file", path=str(path), content="from a page")
    expect(card.locator(".call__title")).to_have_text("files: write_file")
    expect(result_of(card)).to_contain_text("Successfully wrote")
    page.get_by_label("Message", exact=True).fill(
        f"/tool files__read_text_file {json.dumps({'path': str(path)})}"
    )
    page.keyboard.press("Enter")
    card = page.locator(".call").last
    expect(card.locator(".call__title")).to_have_text("files: read_text_file")
    expect(result_of(card)).to_contain_text("from a page")


@pytest.mark.parametrize(("hook", "committed"), [("pre-commit", 0), ("post-commit", 1)])
def test_a_commit_that_was_approved_and_killed_is_told_honestly_and_made_at_most_once(
    page: Page, place: Place, hook: str, committed: int
) -> None:
    repository = place.files / hook
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
    mark, gate = place.files / f"{hook}-mark", place.files / f"{hook}-gate"
    script = repository / ".git" / "hooks" / hook
    script.write_text(f"#!/bin/sh\ntouch {mark}\nwhile [ ! -e {gate} ]; do sleep 0.05; done\n")
    script.chmod(0o755)
    (repository / "a.txt").write_text("a")
    subprocess.run(["git", "-C", str(repository), "add", "a.txt"], check=True)
    card = start(page, "git__git_commit", repo_path=str(repository), message="first")
    expect(card.locator(".call__title")).to_have_text("git: git_commit")
    approve(card)
    wait_until(mark.exists, "the commit is in the middle", timeout_seconds=PATIENCE)
    place.cluster.kill_workers()
    place.cluster.start_workers(2)
    place.await_tools()
    expect(card.locator(".chip")).to_have_text("Outcome unknown", timeout=PATIENCE * 1000)
    gate.touch()
    session_id = page.url.rpartition("/")[2]
    (call,) = place.cluster.idle(session_id).calls
    assert (call.status, call.attempts) == (CallStatus.OUTCOME_UNKNOWN, 1)
    assert commits(repository) == committed
    # A person looks, and says what they found.
    outcome = "It happened" if committed else "It did not happen"
    card.get_by_role("button", name=outcome, exact=True).click()
    expect(card).to_contain_text("Outcome settled later by ana")
    assert commits(repository) == committed


def commits(repository: Path) -> int:
    done = subprocess.run(
        ["git", "-C", str(repository), "rev-list", "--count", "--all"],
        check=True,
        capture_output=True,
        text=True,
    )
    return int(done.stdout)
