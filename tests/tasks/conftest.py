"""A cluster for each test module; what its processes said is shown when a test fails."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.tasks.cluster import Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without workers, shared by the tests of a module: each brings back what it needs."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made
        assert made.model_problems() == [], "a model got a request that some provider would refuse"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    arguments: dict[str, object] = getattr(item, "funcargs", {})
    if report.failed:
        # Several fixtures may hand out the same one.
        for cluster in {value for value in arguments.values() if isinstance(value, Cluster)}:
            report.sections += cluster.logs()
    return report
