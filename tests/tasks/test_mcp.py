"""MCP servers behind real workers: their processes, their absence, and a real one that is killed in the middle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from celeriac.connectors.mcp_config import HttpServer, McpServer, StdioServer
from celeriac.sessions.calls import CallStatus
from celeriac.tasks.dev import DEMO_AGENTS
from tests.connectors.mcp_talk import http_server, odd_server
from tests.mcp_servers.odd_http import OddHttp
from tests.tasks.cluster import PATIENCE
from tests.tasks.mcp_cluster import McpCluster, processes_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("mcp")]


def gone(root: Path, what: str) -> None:
    wait_until(lambda: not processes_of(root), f"nothing is left: {what}", timeout_seconds=PATIENCE)


@pytest.mark.parametrize("options", [(), ("--pool", "prefork", "--concurrency", "2")])
def test_no_process_is_left_of_a_worker_that_was_killed(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    folder = tmp_path / "odd"
    odd = odd_server(folder, env={"ODD_STAYS": "1"})
    with McpCluster(tmp_path / "cluster", {"odd": odd.server}) as cluster:
        worker = cluster.start_worker(*options)
        session_id = cluster.say('/tool odd__look {"child": true}', agent="librarian")
        assert cluster.idle(session_id).calls[0].status is CallStatus.SUCCEEDED
        assert processes_of(folder), "the server and its child are there"
        worker.kill()
        gone(folder, "a server that ignores the end of its input, and its child")


def test_no_process_is_left_of_a_worker_that_was_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    odd = odd_server(folder)
    with McpCluster(tmp_path / "cluster", {"odd": odd.server}) as cluster:
        worker = cluster.start_worker()
        session_id = cluster.say("/tool odd__look {}", agent="librarian")
        cluster.idle(session_id)
        assert worker.stop() == 0
        assert not processes_of(folder)
        assert len(odd.journal("end")) == len(odd.pids()), "each saw the end of its input"


def test_the_agent_answers_without_servers_that_are_down_slow_or_broken(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd")
    slow = odd_server(tmp_path / "slow", env={"ODD_START": "hang"})
    broken = odd_server(tmp_path / "broken", env={"ODD_START": "fail", "ODD_SECRET": "hidden-word"})
    servers: dict[str, McpServer] = {
        "odd": odd.server,
        "down": HttpServer(url="http://127.0.0.1:9/mcp"),
        "slow": slow.server,
        "broken": broken.server,
    }
    with McpCluster(tmp_path / "cluster", servers) as cluster:
        cluster.start_worker()
        session_id = cluster.say("/tool odd__look {}", agent="librarian")
        snapshot = cluster.idle(session_id)
        assert snapshot.calls[0].status is CallStatus.SUCCEEDED
        (agent,) = cluster.client.agents()
        told = {line.split(":")[0]: line for line in agent.missing_tools}
        assert set(told) == {"MCP server down", "MCP server slow", "MCP server broken"}
        assert "it cannot be reached" in told["MCP server down"]
        assert "the database password is …" in told["MCP server broken"]
        assert "hidden-word" not in str(agent)
        notes = [step.note for step in cluster.client.steps(session_id) if step.note]
        assert any(
            note.startswith("some tools were missing: ") and "MCP server down: " in note
            for note in notes
        ), notes


def test_the_demo_agent_has_the_tools_of_whatever_servers_there_are(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd")
    with McpCluster(tmp_path / "cluster", {"odd": odd.server}) as cluster:
        cluster.env["CELERIAC_AGENTS"] = DEMO_AGENTS
        cluster.start_worker()
        cluster.await_tool("odd__look")
        cluster.await_tool("look_up_order")
        session_id = cluster.say("/tool odd__look {}", agent="order-support")
        assert cluster.idle(session_id).calls[0].result == "done"


def repository(folder: Path) -> Path:
    git(folder.parent, "init", "--quiet", str(folder))
    git(folder, "config", "user.name", "Ana")
    git(folder, "config", "user.email", "ana@example.invalid")
    (folder / "a.txt").write_text("a")
    git(folder, "add", "a.txt")
    return folder


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def commits(folder: Path) -> int:
    done = subprocess.run(
        ["git", "-C", str(folder), "rev-list", "--count", "--all"],
        check=True,
        capture_output=True,
        text=True,
    )
    return int(done.stdout)


@pytest.mark.parametrize(("hook", "committed"), [("pre-commit", 0), ("post-commit", 1)])
def test_a_commit_that_was_approved_and_killed_in_the_middle_is_made_at_most_once(
    tmp_path: Path, hook: str, committed: int
) -> None:
    repo = repository(tmp_path / "repo")
    script = repo / ".git" / "hooks" / hook
    mark, gate = tmp_path / "in-the-hook", tmp_path / "go-on"
    script.write_text(f"#!/bin/sh\ntouch {mark}\nwhile [ ! -e {gate} ]; do sleep 0.05; done\n")
    script.chmod(0o755)
    server = StdioServer(
        command=sys.executable, args=["-m", "mcp_server_git"], trust_annotations=True
    )
    with McpCluster(tmp_path / "cluster", {"git": server}) as cluster:
        cluster.start_worker()
        cluster.await_tool("git__git_commit")
        arguments = f'{{"repo_path": "{repo}", "message": "first"}}'
        session_id = cluster.say(f"/tool git__git_commit {arguments}", agent="librarian")
        waiting = cluster.waiting(session_id)
        assert (waiting.source, waiting.original_name) == ("git", "git_commit")
        cluster.approve(session_id, waiting)
        wait_until(mark.exists, "the commit is in the middle", timeout_seconds=PATIENCE)
        cluster.kill_workers()
        cluster.start_worker()
        cluster.await_tool("git__git_commit")
        (call,) = cluster.idle(session_id).calls
        assert call.status is CallStatus.OUTCOME_UNKNOWN
        assert call.decision is not None
        assert call.attempts == 1
        gone_hook = str(tmp_path / "repo")
        wait_until(
            lambda: not any(gone_hook in line for line in processes_of(script).values()),
            "nothing of the killed worker's server is left",
            timeout_seconds=PATIENCE,
        )
        gate.touch()
        assert commits(repo) == committed
        # The same worker reads the truth from the same server.
        cluster.client.send_message(session_id, f'/tool git__git_status {{"repo_path": "{repo}"}}')
        status = cluster.idle(session_id).calls[-1]
        assert status.status is CallStatus.SUCCEEDED
        assert ("Changes to be committed" in str(status.result)) is (committed == 0)
    assert commits(repo) == committed


def test_fifty_sessions_of_four_calls_leave_nothing_behind(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd", env={"ODD_TELLS": "1"})
    with (
        OddHttp() as desk,
        McpCluster(
            tmp_path / "cluster", {"odd": odd.server, "desk": http_server(desk.url)}
        ) as cluster,
    ):
        worker = cluster.start_worker()
        cluster.await_tool("odd__look")
        cluster.await_tool("desk__look")
        four = "/tools " + " ".join(['odd__look {"note": "x"}', 'desk__look {"note": "x"}'] * 2)

        def round_of(count: int) -> None:
            sessions = [cluster.say(four, agent="librarian") for _ in range(count)]
            for session_id in sessions:
                calls = cluster.idle(session_id).calls
                assert [call.status for call in calls] == [CallStatus.SUCCEEDED] * 4

        round_of(10)  # pools fill, modules are loaded
        before = usage(worker.pid)
        round_of(50)
        after = usage(worker.pid)
        assert len(odd.pids()) == 1, "one server served all"
        assert after["children"] == before["children"]
        # As many connections as calls run at a time, whether the first round needed them all or not.
        assert after["files"] <= before["files"] + 8
        assert after["memory_kib"] <= before["memory_kib"] + 16 * 1024
        assert desk.handshakes == 1, "and one session"
        keys = [str(entry["key"]) for entry in odd.journal("effect")] + desk.calls
        assert len(keys) == len(set(keys)) == 240


def usage(pid: int) -> dict[str, int]:
    """What a process holds: children, open files, memory that is its own."""
    status = Path(f"/proc/{pid}/status").read_text()
    children = Path(f"/proc/{pid}/task").glob("*/children")
    return {
        "children": sum(len(path.read_text().split()) for path in children),
        "files": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "memory_kib": int(status.split("RssAnon:")[1].split()[0]),
    }
