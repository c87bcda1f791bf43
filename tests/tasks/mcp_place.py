"""A cluster with real MCP servers of other people, what they write to, and the page."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from celeriac.connectors.mcp_config import HttpServer, McpServer, StdioServer
from celeriac.sessions.calls import CallRecord
from tests.node_tools import answers, free_port, node_command, start_node_tool
from tests.tasks.cluster import last_answer
from tests.tasks.mcp_cluster import McpCluster

__all__ = ["OPERATOR_TOKEN", "Place", "allow_operator", "open_place"]

OPERATOR_TOKEN = "ana"
"""With it Ana logs in to the page."""


@dataclass(frozen=True)
class Place:
    """A cluster with the servers, and what they write to."""

    cluster: McpCluster
    base: str
    files: Path
    graph: Path
    repository: Path

    def await_tools(self) -> None:
        """Wait until the workers' servers are up."""
        for tool in (
            "everything__echo",
            "remote__echo",
            "memory__read_graph",
            "files__read_text_file",
            "git__git_status",
        ):
            self.cluster.await_tool(tool)

    def said(self, tool: str, **arguments: object) -> CallRecord:
        """Have the model call a tool that runs at once; return its call."""
        session_id = self.cluster.say(f"/tool {tool} {json.dumps(arguments)}", agent="librarian")
        snapshot = self.cluster.idle(session_id)
        assert snapshot.calls, last_answer(snapshot)
        return snapshot.calls[-1]

    def approved(self, tool: str, **arguments: object) -> CallRecord:
        """Have the model call a tool that asks, and approve it; return its call."""
        session_id = self.cluster.say(f"/tool {tool} {json.dumps(arguments)}", agent="librarian")
        self.cluster.approve(session_id, self.cluster.waiting(session_id))
        return self.cluster.idle(session_id).calls[-1]


def node_server(package: str, *arguments: str, **more: object) -> StdioServer:
    command, *rest = node_command(f"@modelcontextprotocol/server-{package}", *arguments)
    return StdioServer.model_validate(
        {"command": command, "args": rest, "trust_annotations": True, **more}
    )


def allow_operator(cluster: McpCluster) -> None:
    """Let Ana log in to the page of a cluster that has none yet."""
    token = hashlib.sha256(OPERATOR_TOKEN.encode()).hexdigest()
    cluster.env["CELERIAC_OPERATORS"] = f"ana:operator:{token}"


@contextmanager
def open_place(root: Path, **more: McpServer) -> Iterator[Place]:
    """Start the servers, two workers and the web.

    Args:
        root: A folder of its own.
        more: Other servers.
    """
    files, graph, repository = root / "files", root / "graph.jsonl", root / "repository"
    files.mkdir()
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    with ExitStack() as stack:
        monkeypatch = stack.enter_context(pytest.MonkeyPatch.context())
        monkeypatch.setenv("TEST_MEMORY_FILE", str(graph))
        everything = node_command("@modelcontextprotocol/server-everything", "streamableHttp")
        stack.enter_context(
            start_node_tool(
                everything,
                root / "everything.log",
                ready=lambda _: answers(url),
                env={"PORT": str(port)},
            )
        )
        servers: dict[str, McpServer] = {
            "everything": node_server("everything", "stdio"),
            "remote": HttpServer(url=url, trust_annotations=True),
            "memory": node_server("memory", env={"MEMORY_FILE_PATH": "TEST_MEMORY_FILE"}),
            "files": node_server("filesystem", str(files)),
            "git": StdioServer(
                command=sys.executable, args=["-m", "mcp_server_git"], trust_annotations=True
            ),
            **more,
        }
        cluster = stack.enter_context(McpCluster(root / "cluster", servers))
        allow_operator(cluster)
        cluster.start_workers(2)
        _, base = cluster.start_web()
        place = Place(cluster, base, files, graph, repository)
        place.await_tools()
        yield place
