"""aimock, a scripted model server that is not ours: it speaks OpenAI's and Anthropic's dialects and keeps a journal.

It runs strictly: a request that its script does not foresee is answered 503, a conversation of which
it gets another turn than the script says is refused, and so is a replay that lost its signed thinking.
"""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from tests.node_tools import answers, free_port, node_command, start_node_tool

__all__ = ["Aimock", "Json", "run_aimock"]

Json = Mapping[str, object]


class Aimock:
    """A running server.

    Args:
        url: Where it listens.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def reset(self) -> None:
        """Forget script and journal."""
        self._ask("POST", "/reset")

    def script(self, *fixtures: Json) -> None:
        """Add to the script; the first fixture that matches a request answers it."""
        self._ask("POST", "/fixtures", {"fixtures": fixtures})

    def in_turn(self, *responses: Json, **match: object) -> None:
        """Answer the first request with the first response, the next with the next, and no more.

        Args:
            responses: Each a response, or a fixture with its ``response`` and options.
            match: Which requests are meant, if not all.
        """
        for at, one in enumerate(responses):
            fixture = dict(one) if "response" in one else {"response": one}
            self.script({"match": {**match, "sequenceIndex": at}, **fixture})

    def journal(self) -> list[dict[str, object]]:
        """Every model request so far: its path, its headers, what it asked and how it was answered.

        Anthropic's and Responses' bodies stand here as chat completions.
        """
        return cast("list[dict[str, object]]", self._ask("GET", "/journal"))

    def statuses(self) -> list[int]:
        """The status of each answer so far, in order."""
        return [cast("dict[str, int]", entry["response"])["status"] for entry in self.journal()]

    def _ask(self, method: str, path: str, body: object = None) -> object:
        asked = urllib.request.Request(
            f"{self.url}/__aimock{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.loads(answer.read())


@contextlib.contextmanager
def run_aimock(folder: Path) -> Iterator[Aimock]:
    """Run the server for the time of the block.

    Args:
        folder: Where its log goes.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    # It does not start strictly without any; the first `reset` forgets this one.
    first = {"match": {"model": "nobody asks this"}, "response": {"content": "never"}}
    fixtures = folder / "fixtures.json"
    fixtures.write_text(json.dumps({"fixtures": [first]}))
    command = node_command(
        "@copilotkit/aimock",
        *("--port", str(port), "--fixtures", str(fixtures), "--strict", "--log-level", "warn"),
        program="llmock",
    )
    strict = {"AIMOCK_STRICT_TURN_INDEX": "1"}
    health = f"{url}/__aimock/health"
    with start_node_tool(command, folder / "log", ready=lambda _: answers(health), env=strict):
        yield Aimock(url)
