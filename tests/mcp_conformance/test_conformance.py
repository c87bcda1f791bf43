"""Each scenario of the official suite that fits our client; `scenarios` says which do not, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mcp_conformance.scenarios import LEFT_OUT, SCENARIOS, listed_by_the_suite, run
from tests.node_tools import needs_node_tools

pytestmark = needs_node_tools


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_our_client_passes(scenario: str, tmp_path: Path) -> None:
    outcome = run(scenario, tmp_path)
    assert not outcome.faults, "\n".join(outcome.faults)


def test_every_scenario_is_run_or_left_out_for_a_reason() -> None:
    assert listed_by_the_suite() == {*SCENARIOS, *LEFT_OUT}
    assert not set(SCENARIOS) & set(LEFT_OUT)
    assert all(LEFT_OUT.values())
