"""Run every scenario, and print a table: ``make conformance``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.mcp_conformance.scenarios import LEFT_OUT, SCENARIOS, listed_by_the_suite, run


def main() -> int:
    say = sys.stdout.write
    faults = 0
    passed = 0
    width = max(map(len, [*SCENARIOS, *LEFT_OUT]))
    with tempfile.TemporaryDirectory() as folder:
        for number, scenario in enumerate(SCENARIOS):
            outcome = run(scenario, Path(folder, str(number)))
            word = "FAILS" if outcome.faults else "passes"
            say(f"{scenario:<{width}}  {word:<8}  {outcome.passed:>3} checks\n")
            sys.stdout.flush()
            for fault in outcome.faults:
                say(f"    {fault}\n")
            passed += outcome.passed
            faults += len(outcome.faults)
    for scenario, reason in LEFT_OUT.items():
        say(f"{scenario:<{width}}  left out  {reason}\n")
    for scenario in listed_by_the_suite() - {*SCENARIOS, *LEFT_OUT}:
        say(f"{scenario:<{width}}  is neither run nor left out\n")
        faults += 1
    say(f"\n{len(SCENARIOS)} scenarios: {passed} checks hold, {faults} do not\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
