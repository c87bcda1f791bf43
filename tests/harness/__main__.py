"""Run the suite and print which harness keeps which promise.

python -m tests.harness [--markdown]
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.harness.kits import KITS

_MARKS = {"passed": "yes", "failed": "NO", "skipped": "-"}


class _Results:
    """Collects how each scenario went for each harness."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        name, _, parameters = report.nodeid.rpartition("::")[2].partition("[")
        # The longest name first: one may be part of another.
        names = sorted((kit.name for kit in KITS), key=len, reverse=True)
        kit = next((one for one in names if parameters.startswith(one)), None)
        if kit is not None:
            words = name.removeprefix("test_").replace("_", " ")
            self.rows[words][kit].add(report.outcome)


def _mark(outcomes: set[str]) -> str:
    worst = next((one for one in ("failed", "skipped", "passed") if one in outcomes), None)
    return "-" if worst is None else _MARKS[worst]


def _table(results: _Results, *, markdown: bool) -> str:
    names = [kit.name for kit in KITS]
    rows = [
        [words, *(_mark(by_kit.get(name, set())) for name in names)]
        for words, by_kit in results.rows.items()
    ]
    head = ["scenario", *names]
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    edge = "| " if markdown else ""
    lines = [
        edge + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in [head, ["-" * width for width in widths], *rows]
    ]
    return "\n".join(line + " |" if markdown else line.rstrip() for line in lines)


def main() -> int:
    """Run, print, and return how pytest ended."""
    results = _Results()
    here = Path(__file__).parent
    suites = [str(here / "test_conformance.py"), str(here / "test_kills.py")]
    ended = pytest.main(["-q", "--no-header", "-p", "no:randomly", *suites], plugins=[results])
    sys.stdout.write(_table(results, markdown="--markdown" in sys.argv) + "\n")
    return int(ended)


if __name__ == "__main__":
    sys.exit(main())
