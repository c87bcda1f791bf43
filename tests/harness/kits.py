"""The harnesses that the suite runs: add a file ``kit_<name>.py`` and a line here."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

__all__ = ["KITS", "Kit", "those_that_have"]


@dataclass(frozen=True)
class Kit:
    """A harness with its agents, and what its framework has."""

    name: str
    """Of its agent, too; ``<name>-small`` is the agent whose context is soon full."""
    package: str | None = None
    """What must be installed."""
    has: frozenset[str] = field(default_factory=frozenset)
    """Of: compaction, handoff, raw arguments (as the model wrote them), reasoning."""

    @property
    def path(self) -> Path:
        return Path(__file__).with_name(f"kit_{self.name.replace('-', '_')}.py")

    @property
    def installed(self) -> bool:
        return self.package is None or find_spec(self.package) is not None


KITS = (
    Kit("built-in", has=frozenset({"compaction", "raw arguments", "reasoning"})),
    Kit("openai-agents", "agents", frozenset({"compaction", "handoff", "raw arguments"})),
    Kit("google-adk", "google.adk", frozenset({"compaction", "handoff", "reasoning"})),
    Kit("langgraph", "langgraph", frozenset({"compaction", "raw arguments", "reasoning"})),
    Kit("custom-langgraph", "langgraph", frozenset({"compaction", "raw arguments", "reasoning"})),
    Kit("pydantic-ai", "pydantic_ai", frozenset({"compaction", "raw arguments", "reasoning"})),
)


def those_that_have(what: str) -> pytest.MarkDecorator:
    """Let a scenario be for those harnesses only whose framework has something."""
    kits = [kit for kit in KITS if what in kit.has]
    return pytest.mark.parametrize("kit", kits, ids=[kit.name for kit in kits], indirect=True)
