"""One aimock for each test process; its script and its journal are empty at the beginning of each test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from celeriac.connectors.litellm_module import preload
from tests.models.aimock import Aimock, run_aimock
from tests.models.dialects import environment


@pytest.fixture(scope="session")
def running_aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aimock]:
    with run_aimock(tmp_path_factory.mktemp("aimock")) as server:
        yield server


@pytest.fixture
def aimock(running_aimock: Aimock, monkeypatch: pytest.MonkeyPatch) -> Aimock:
    """The server, asked by litellm of this process."""
    running_aimock.reset()
    for name, value in environment(running_aimock.url).items():
        monkeypatch.setenv(name, value)
    return running_aimock


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.Runner]:
    """One loop for all that asks the one server: pooled connections belong to the loop they began in."""
    preload()
    with asyncio.Runner() as runner:
        yield runner
