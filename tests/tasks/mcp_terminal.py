"""Somebody who types ``celeriac mcp …``, and logs in with a browser."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from pydantic import JsonValue

__all__ = ["Login", "Terminal"]

CELERIAC = [sys.executable, "-c", "from celeriac.tasks.cli import main; main()"]


class Terminal:
    """Where commands are typed.

    Args:
        folder: The folder in which that is.
        environment: All variables there.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = dict(environment)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*CELERIAC, *words],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )

    def listed(self) -> Mapping[str, JsonValue]:
        found: dict[str, dict[str, JsonValue]] = json.loads(
            self.run("mcp", "list", "--json").stdout
        )
        return found["guarded"]

    @contextmanager
    def logging_in(self) -> Iterator[Login]:
        with subprocess.Popen(
            [*CELERIAC, "mcp", "login", "guarded"],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield Login(process)
            finally:
                process.kill()


class Login:
    """A login that goes on."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._process = process
        for line in process.stdout:
            if line.startswith("  http"):
                self.address = line.strip()
                return
        pytest.fail(process.communicate()[1])

    def way_back(self) -> str:
        """Open the address in a browser, which is then sent on to this one."""
        answer = httpx.get(self.address)
        assert answer.status_code == 302, answer.text
        return str(answer.headers["location"])

    def paste(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def end(self) -> tuple[int, str, str]:
        out, err = self._process.communicate(timeout=60)
        return self._process.returncode, out, err
