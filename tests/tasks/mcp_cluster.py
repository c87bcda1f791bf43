"""A cluster whose workers have MCP servers, and what is left of their processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from celeriac.connectors.mcp_config import McpServer
from celeriac.sessions.calls import CallRecord, DecisionVerb
from tests.tasks.cluster import PATIENCE, Cluster
from tests.waiting import wait_until

__all__ = ["McpCluster", "processes_of", "write_config"]

AGENTS = Path(__file__).with_name("mcp_agents.py")


def write_config(path: Path, servers: Mapping[str, McpServer]) -> Path:
    entries = {name: server.model_dump(exclude_defaults=True) for name, server in servers.items()}
    path.write_text(yaml.safe_dump({"servers": entries}))
    path.chmod(0o600)
    return path


class McpCluster(Cluster):
    """A cluster with these MCP servers.

    Args:
        root: A directory of its own.
        servers: The servers by name.
    """

    def __init__(self, root: Path, servers: Mapping[str, McpServer]) -> None:
        root.mkdir(parents=True, exist_ok=True)
        config = write_config(root / "mcp.yaml", servers)
        super().__init__(root, agents=str(AGENTS), env={"CELERIAC_MCP_CONFIG": str(config)})

    def await_tool(self, name: str) -> None:
        """Wait until a worker has told that its agent has this tool: its server is then up."""

        def told() -> bool:
            return any(tool.name == name for agent in self.client.agents() for tool in agent.tools)

        wait_until(told, f"there is a tool {name}", timeout_seconds=PATIENCE)

    def approve(self, session_id: str, call: CallRecord) -> None:
        self.client.decide(session_id, call.id, DecisionVerb.APPROVE, by="ana", digest=call.digest)


def processes_of(root: Path) -> dict[int, str]:
    """Return the living processes that have to do with a folder: by their command or their environment."""
    wanted = str(root).encode()
    found = {}
    for process in _processes():
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes()
            known = wanted in command or wanted in (process / "environ").read_bytes()
            if known and "Z" not in (process / "stat").read_text().rpartition(")")[2].split()[0]:
                found[int(process.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


def _processes() -> Iterator[Path]:
    return (path for path in Path("/proc").iterdir() if path.name.isdigit())
