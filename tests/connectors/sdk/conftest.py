"""The connector of the tests' own, installed for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from celeriac.connectors.sdk import registry
from tests.connectors.sdk.things import install


@pytest.fixture(autouse=True)
def things(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install(monkeypatch)
    yield
    registry.connector_named.cache_clear()
