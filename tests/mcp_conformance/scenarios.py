"""Which scenarios of the suite are run and which are not, and how one is run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from tests.node_tools import node_command

__all__ = ["LEFT_OUT", "SCENARIOS", "Outcome", "listed_by_the_suite", "run"]

SCENARIOS = (
    "initialize",
    "tools_call",
    "sse-retry",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-metadata-backcompat",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/client-credentials-jwt",
    "auth/client-credentials-basic",
)

LEFT_OUT = {
    "elicitation-sep1034-client-defaults": (
        "A server cannot ask a person for input while its tool runs: our client does not declare `elicitation`, so "
        "that no server may ask. The scenario asks nevertheless, and wants an answer that no person gave."
    ),
    "auth/cross-app-access-complete-flow": (
        "An extension of the protocol: tokens of an enterprise's identity provider are exchanged for the server's. "
        "There are two grants in our configuration, and it is neither of them."
    ),
}

_ROOT = Path(__file__).parents[2]
_SECONDS = 120
_TIMING = "client-sse-retry-timing"
_TRIES = 3


class _Details(TypedDict, total=False):
    tooEarly: bool


class _Check(TypedDict, total=False):
    id: str
    status: str
    description: str
    errorMessage: str
    details: _Details


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the suite says of one scenario.

    Args:
        passed: How many of its checks hold.
        faults: Those that do not, warnings included, and what else was wrong.
    """

    passed: int
    faults: tuple[str, ...]


def listed_by_the_suite() -> set[str]:
    """Return the names of all client scenarios."""
    command = node_command("@modelcontextprotocol/conformance", "list")
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SECONDS)
    _, _, clients = said.stdout.partition("Client scenarios")
    lines = map(str.split, clients.splitlines())
    return {words[1] for words in lines if words[:1] == ["-"]}


def run(scenario: str, folder: Path) -> Outcome:
    """Let our client meet one scenario.

    Args:
        scenario: Its name.
        folder: An empty folder, for what the suite writes.

    Returns:
        What the suite says.
    """
    tried = 0
    while True:
        tried += 1
        checks, failure = _run_once(scenario, folder / str(tried))
        wrong = [check for check in checks if check["status"] in ("FAILURE", "WARNING")]
        # That it came back to the server late says nothing on a busy machine; too early does.
        if tried == _TRIES or not any(map(_is_late, wrong)):
            break
    faults = [f"{check['id']}: {_told(check)}" for check in wrong]
    passed = sum(check["status"] == "SUCCESS" for check in checks)
    if passed == 0:
        faults.append("it checked nothing")
    return Outcome(passed, (*faults, *failure))


def _is_late(check: _Check) -> bool:
    return check["id"] == _TIMING and not check["details"].get("tooEarly", False)


def _told(check: _Check) -> str:
    return check.get("errorMessage") or check["description"]


def _run_once(scenario: str, folder: Path) -> tuple[list[_Check], list[str]]:
    folder.mkdir(parents=True)
    command = node_command(
        "@modelcontextprotocol/conformance",
        "client",
        "--command",
        f"{sys.executable} -m tests.mcp_conformance.client",
        "--scenario",
        scenario,
        "--timeout",
        str(_SECONDS * 1000),
        "--output-dir",
        str(folder),
    )
    own = {name: value for name, value in os.environ.items() if not name.startswith("CELERIAC_")}
    env = {**own, "CELERIAC_DATA_DIR": str(folder / "data"), "NO_COLOR": "1"}
    said = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=_ROOT,
        env=env,
        timeout=2 * _SECONDS,
    )
    (written,) = folder.rglob("checks.json")
    checks: list[_Check] = json.loads(written.read_text())
    # Its status tells of checks, which are looked at one by one, and of a client that failed.
    failed = "CLIENT EXITED WITH ERROR" in said.stderr or "CLIENT TIMED OUT" in said.stderr
    return checks, [f"the client failed: {said.stderr}"] if failed else []
