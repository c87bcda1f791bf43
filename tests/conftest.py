"""Fixtures for every tier that needs a real store.

================== =============================================================================
fixture            what it is
================== =============================================================================
``store_url``      URL of a Valkey of this test process (one per xdist worker), for `Settings`
``redis_client``   a plain connection to it; the store is emptied before the test
``settings``       `Settings` for that store, whatever the environment says; change some with
                   ``settings.model_copy(update={"queue_max_messages": 3})``
``dispatcher``     `RecordingDispatcher`: remembers the steps that were sent to the broker
``session_store``  `SessionStore` on that store with that dispatcher
``session_client`` `SessionClient` on it; one worker has announced the agents ``desk`` (models
                   ``demo`` and ``other``) and ``helper`` (model ``demo``)
================== =============================================================================

After each test that used the store every key in it is compared with the inventory of
``celeriac.sessions.store.keys``; a key that is not in it, or has another type or lifetime, fails the test.
`tests.waiting.wait_until` waits for a condition; nothing in the tests sleeps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

import pytest
import redis
from _pytest.nodeid import NodeId

from celeriac.sessions.client import SessionClient
from celeriac.sessions.settings import Settings
from celeriac.sessions.store.connection import connect
from celeriac.sessions.store.embedded import EmbeddedStore
from celeriac.sessions.store.lists import SessionLists
from celeriac.sessions.store.reader import SessionReader
from celeriac.sessions.store.sessions import SessionStore
from tests.store.announced import AGENTS, WORKER
from tests.store.dispatcher import RecordingDispatcher
from tests.store.inventory import wrong_keys


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let ``xdist_group`` work: xdist 3.8 notes an item's group where pytest 9.2 no longer looks for its id.

    Without it the tests of a module are spread over the processes, and each starts a cluster of its own.
    """
    for item in items:
        named = getattr(item, "_nodeid", None)
        if isinstance(named, str) and "@" in named:
            item._id = NodeId.parse(named)


@pytest.fixture(scope="session")
def store_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedStore(tmp_path_factory.mktemp("store"), appendfsync="everysec") as store:
        yield store.url


@pytest.fixture
def redis_client(store_url: str) -> Iterator[redis.Redis]:
    with closing(connect(store_url)) as client:
        client.flushall()
        yield client


@pytest.fixture
def settings(store_url: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in os.environ:
        if name.startswith("CELERIAC_"):
            monkeypatch.delenv(name)
    return Settings(redis_url=store_url)


@pytest.fixture
def dispatcher() -> RecordingDispatcher:
    return RecordingDispatcher()


@pytest.fixture
def session_store(
    redis_client: redis.Redis, dispatcher: RecordingDispatcher, settings: Settings
) -> SessionStore:
    return SessionStore(redis_client, dispatcher, settings)


@pytest.fixture
def session_client(session_store: SessionStore, settings: Settings) -> SessionClient:
    lists = SessionLists(session_store, SessionReader(session_store, settings), settings)
    lists.announce(WORKER, AGENTS)
    return SessionClient(session_store, settings)


@pytest.fixture(autouse=True)
def only_known_keys(request: pytest.FixtureRequest) -> Iterator[None]:
    if "redis_client" not in request.fixturenames:
        yield
        return
    client = request.getfixturevalue("redis_client")
    yield
    wrong = wrong_keys(client)
    if wrong:
        pytest.fail("keys that the inventory does not allow:\n  " + "\n  ".join(wrong))
