"""A driver for each harness."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from celeriac.sessions.settings import Settings
from tests.harness.driver import Driver
from tests.harness.kits import KITS, Kit


@pytest.fixture(params=KITS, ids=lambda kit: kit.name)
def kit(request: pytest.FixtureRequest) -> Kit:
    """Each harness in turn."""
    found: Kit = request.param
    if not found.installed:
        pytest.skip(f"{found.package} is not installed")
    return found


@pytest.fixture
def driver(
    kit: Kit,
    settings: Settings,
    redis_client: redis.Redis,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Driver]:
    """Sessions of a harness in an empty store, steps run in this process."""
    monkeypatch.setenv("HARNESS_DIR", str(tmp_path))
    made = Driver(kit, settings, tmp_path)
    yield made
    made.close()
