"""The connection to the store, and how its failures are told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import (
    BusyLoadingError,
    ConnectionError as RedisConnectionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError as RedisTimeoutError,
)
from redis.retry import Retry

from celeriac.sessions.errors import ConfigurationError, StoreUnavailable

__all__ = ["connect", "store_errors"]

_UNAVAILABLE = (
    RedisConnectionError,
    RedisTimeoutError,
    BusyLoadingError,
    OutOfMemoryError,
    ReadOnlyError,
)
_UNAVAILABLE_WORDS = (
    "OOM",
    "MISCONF",
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "NOREPLICAS",
)


def connect(url: str, *, name: str = "celeriac") -> redis.Redis:
    """Make a client for the store; it connects at the first command.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://`` URL.
        name: Client name, seen in ``CLIENT LIST``.

    Returns:
        A thread-safe client of this process; make it after a fork.

    Raises:
        ConfigurationError: The URL cannot be used.
    """
    # A Unix socket knows no keep-alive, and redis-py refuses the option for one.
    keepalive = {} if url.startswith("unix:") else {"socket_keepalive": True}
    try:
        return redis.Redis.from_url(
            url,
            client_name=name,
            socket_timeout=10,
            socket_connect_timeout=3,
            **keepalive,
            # One quick retry hides a closed idle connection. Longer outages are the caller's matter.
            retry=Retry(ExponentialBackoff(cap=0.2, base=0.05), 1),
        )
    except ValueError as error:
        raise ConfigurationError(f"CELERIAC_REDIS_URL {url!r} cannot be used: {error}") from error


@contextmanager
def store_errors() -> Iterator[None]:
    """Turn the store's failures into `StoreUnavailable`; anything else passes."""
    try:
        yield
    except _UNAVAILABLE as error:
        raise StoreUnavailable(f"The session store does not answer: {error}") from error
    except ResponseError as error:
        if str(error).startswith(_UNAVAILABLE_WORDS) or "OOM" in str(error):
            raise StoreUnavailable(f"The session store refuses writes: {error}") from error
        raise
    except RedisError as error:
        raise StoreUnavailable(f"The session store failed: {error}") from error
