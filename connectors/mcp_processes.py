"""Processes of MCP servers: where one is found, how one is ended with all that it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from celeriac.connectors import mcp_reaper

__all__ = ["Reaper", "end_process", "find_program"]

_GRACE_SECONDS = 2.0
_LOOK_SECONDS = 0.01


def find_program(command: str, path: str) -> str:
    """Return where a command is: on the path, or beside this Python, as packages install theirs there."""
    beside = os.fspath(Path(sys.executable).parent)
    return shutil.which(command, path=f"{path}{os.pathsep}{beside}") or command


class Reaper:
    """This process's connection to `mcp_reaper`, which is started with the first server."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()

    def watch(self, group: int) -> None:
        """End this process group should this process die."""
        self._groups.add(group)
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """The group has ended."""
        self._groups.discard(group)
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """End the reaper, and with it any group that is left."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            process.wait()

    def _tell(self, line: str) -> None:
        try:
            self._write(line)
        except OSError:
            # Somebody ended it: a new one hears of all.
            self.close()
            self._write("".join(f"+{group}\n" for group in self._groups))

    def _write(self, text: str) -> None:
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 - our own Python
                [sys.executable, "-I", "-S", mcp_reaper.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                bufsize=0,
            )
        if self._process.stdin is not None:
            self._process.stdin.write(text.encode())


async def end_process(process: asyncio.subprocess.Process) -> None:
    """End a group's leader, whose input was closed, and then what it left: by itself, by request, by force."""
    await _ended(process)
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not _send(process.pid, number):
            return
        await _ended(process)


async def _ended(process: asyncio.subprocess.Process) -> None:
    # Not process.wait(): it also waits for the pipes, which a grandchild may hold open.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GRACE_SECONDS):
            while process.returncode is None or _send(process.pid, None):
                await asyncio.sleep(_LOOK_SECONDS)


def _send(group: int, number: signal.Signals | None) -> bool:
    try:
        os.killpg(group, number or 0)
    except OSError:
        return False
    return True
