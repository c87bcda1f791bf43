"""Where the store and the broker are, for this process."""

from __future__ import annotations

import atexit
from functools import lru_cache
from urllib.parse import parse_qs, urlsplit

from celeriac.sessions.settings import Settings
from celeriac.sessions.store.embedded import EmbeddedStore

__all__ = ["broker_is_store", "broker_url_for", "store_url"]


@lru_cache(maxsize=1)
def _embedded(settings: Settings) -> EmbeddedStore:
    # Kept for the life of the process; the last process that uses the server stops it.
    store = EmbeddedStore(settings.data_dir, appendfsync=settings.appendfsync)
    atexit.register(store.stop)
    return store


def store_url(settings: Settings) -> str:
    """Return the URL of the session store; without one configured, start or join the embedded store.

    Raises:
        EmbeddedStoreError: The embedded store could not be started.
    """
    return settings.redis_url or _embedded(settings).start()


def broker_is_store(settings: Settings) -> bool:
    """Whether messages can be pushed within a commit: the broker is the very same Redis."""
    return settings.broker_url is None or settings.broker_url == settings.redis_url


def broker_url_for(store: str) -> str:
    """Write the store's URL the way Celery wants it (they differ for Unix sockets)."""
    parts = urlsplit(store)
    if parts.scheme != "unix":
        return store
    database = parse_qs(parts.query).get("db", ["0"])[0]
    return f"redis+socket://{parts.path}?virtual_host={database}"
