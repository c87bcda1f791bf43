"""What the tests of real models share: one event loop, and a server that they talk to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from celeriac.connectors.litellm_module import preload
from tests.connectors.chat_server import ChatServer, chat_server
from tests.connectors.talk import KEY, Talk


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.Runner]:
    """One loop for all, as in a worker: pooled connections belong to the loop they began in.

    Clients of a loop that is gone would be collected later, with connections that nobody can close any more.
    """
    # On a busy machine the import alone may take longer than a test lets a model answer.
    preload()
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    with chat_server() as running:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_API_BASE", running.url)
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        yield running
        assert running.problems == []


@pytest.fixture
def talk(server: ChatServer, loop: asyncio.Runner) -> Talk:
    return Talk(server, loop)
