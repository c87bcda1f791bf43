"""The tests' own machinery: modules with a cluster run in one process."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("groups")
def test_xdist_knows_the_group_of_a_test(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("not run with --dist loadgroup")
    assert request.node.nodeid.endswith("@groups")
