"""``python -m tests.chaos --sessions 300 --minutes 10 --seed 42``: the storm, as long as you like."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from tests.chaos.report import story_lines, table_lines
from tests.chaos.run import Plan, run_storm


def main() -> int:
    """Run one storm, print its table and, for each fault, the whole story; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=4.0, help="how long harm is done")
    parser.add_argument("--seed", type=int, help="repeats the choices of an earlier run")
    parser.add_argument(
        "--rate", type=float, default=0.004, help="share of named points that strike"
    )
    parser.add_argument("--calm", type=float, default=2.5, help="mean seconds between two acts")
    parser.add_argument("--keep", type=Path, help="a directory for ledger, logs and store")
    given = parser.parse_args()
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    plan = Plan(given.sessions, given.minutes, seed, given.rate, given.calm)
    sys.stdout.write(f"{plan.sessions} sessions, {plan.minutes:g} minutes, seed {seed}\n")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory(prefix="celeriac-chaos-") as scratch:
        outcome = run_storm(plan, given.keep or Path(scratch))
    for line in (*story_lines(outcome), *table_lines(outcome)):
        sys.stdout.write(line + "\n")
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
