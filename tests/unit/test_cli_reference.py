"""docs/reference/cli.md names every command, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from celeriac.tasks.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md"


def test_the_reference_names_every_command_and_no_other() -> None:
    rows = re.findall(r"^\| (`.*?) \| ", PAGE.read_text(), re.MULTILINE)
    named = {re.split(r"[ \\]", name)[0] for row in rows for name in re.findall(r"`([^`]*)`", row)}
    assert named == set(main.commands)
