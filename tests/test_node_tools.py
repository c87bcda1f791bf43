"""The kit itself: each installed server starts, answers, and can be reached from this machine only."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.node_tools import (
    answers,
    free_port,
    needs_node_tools,
    node,
    node_command,
    start_node_tool,
)

pytestmark = needs_node_tools

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"},
    },
}


def test_node_is_new_enough() -> None:
    said = subprocess.run([node(), "--version"], check=True, capture_output=True, text=True)
    assert int(said.stdout.lstrip("v").split(".")[0]) >= 22


@pytest.mark.parametrize(
    ("package", "arguments", "path"),
    [
        ("stripe-stateful-mock", [], "/v1/charges"),
        ("@modelcontextprotocol/server-everything", ["streamableHttp"], "/mcp"),
    ],
    ids=["stripe", "everything"],
)
def test_a_server_answers_on_loopback_only(
    tmp_path: Path, package: str, arguments: list[str], path: str
) -> None:
    port = free_port()
    command = node_command(package, *arguments)
    url = f"http://127.0.0.1:{port}{path}"
    with start_node_tool(
        command, tmp_path / "log", ready=lambda _: answers(url), env={"PORT": str(port)}
    ) as tool:
        if sys.platform == "linux":  # where every 127.* address is one of this machine's
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.2", port))
    assert tool.process.poll() is not None


@pytest.mark.parametrize("name", ["everything", "filesystem", "memory"])
def test_a_server_answers_over_its_pipes(tmp_path: Path, name: str) -> None:
    command = node_command(f"@modelcontextprotocol/server-{name}", str(tmp_path))
    if name == "everything":
        command[-1] = "stdio"
    said = subprocess.run(
        command, input=json.dumps(HELLO) + "\n", check=False, capture_output=True, text=True
    )
    answer = json.loads(said.stdout.splitlines()[0])
    assert answer["result"]["serverInfo"]["name"]


def test_the_conformance_suite_lists_its_scenarios() -> None:
    command = node_command("@modelcontextprotocol/conformance", "list")
    said = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "tools_call" in said.stdout


def test_a_tool_that_cannot_start_says_why(tmp_path: Path) -> None:
    command = node_command("@copilotkit/aimock", "--no-such-option")
    with (
        pytest.raises(AssertionError, match="no-such-option"),
        start_node_tool(command, tmp_path / "log", ready=lambda _: False),
    ):
        pass
