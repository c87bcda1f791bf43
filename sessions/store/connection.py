"""The connection to the store, and how its failures are told."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import cast

import hiredis
import redis
from redis.backoff import ExponentialBackoff
from redis.connection import AbstractConnection
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

__all__ = ["DirectConnections", "connect", "store_errors"]

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
    "BUSY ",
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
            # redis-py's default of 100 would refuse the 101st thread of a web process.
            max_connections=2_000,
            socket_connect_timeout=3,
            **keepalive,
            # One quick retry hides a closed idle connection. Longer outages are the caller's matter.
            retry=Retry(ExponentialBackoff(cap=0.2, base=0.05), 1),
        )
    except ValueError as error:
        raise ConfigurationError(f"CELERIAC_REDIS_URL {url!r} cannot be used: {error}") from error


# redis-py leaves some methods without types.
_Untyped = Callable[..., object]


class DirectConnections:
    """Runs commands on connections of its own: as many as there are commands at a time.

    redis-py's client takes a connection from its pool, records metrics and looks for callbacks around each
    command, which costs more than twice what sending and reading does. The steps send two commands each.

    Args:
        client: Says where the store is, and what connections are like.
    """

    def __init__(self, client: redis.Redis) -> None:
        pool = client.connection_pool
        self._make = partial(pool.connection_class, **pool.connection_kwargs)
        # Not one for each thread: a web process has a thread for each stream.
        self._free: deque[tuple[int, AbstractConnection]] = deque()

    def run(self, *command: str | bytes | int) -> object:
        """Run one command.

        A connection that was found broken is replaced and the command sent again, once: whether the
        server had done it the first time is not known. Commands must stand that.

        Args:
            command: The command and its arguments.

        Returns:
            The answer, undecoded.

        Raises:
            RedisError: The server refused the command or cannot be reached.
        """
        connection = self._take()
        try:
            return self._once(connection, command)
        except RedisConnectionError:
            return self._once(connection, command)
        finally:
            self._free.append((os.getpid(), connection))

    def _once(
        self, connection: AbstractConnection, command: tuple[str | bytes | int, ...]
    ) -> object:
        try:
            # redis-py's own packing walks over all arguments twice more, for kinds that we never send.
            packed = cast("_Untyped", hiredis.pack_command)(command)
            cast("_Untyped", connection.send_packed_command)([packed])
            return connection.read_response()
        except ResponseError:
            raise
        except BaseException:
            # An answer may still be on its way; it must not be taken for the next command's.
            cast("_Untyped", connection.disconnect)()
            raise

    def _take(self) -> AbstractConnection:
        """Return the connection that was used last, or a new one; those of before a fork are let go."""
        process = os.getpid()
        while True:
            try:
                made_in, connection = self._free.pop()
            except IndexError:
                made: AbstractConnection = self._make()
                return made
            if made_in == process:
                return connection


@contextmanager
def store_errors() -> Iterator[None]:
    """Turn the store's failures into `StoreUnavailable`; anything else passes."""
    try:
        yield
    except _UNAVAILABLE as error:
        raise StoreUnavailable(f"The session store does not answer: {error}") from error
    except ResponseError as error:
        # redis-py puts words of its own before an error in a pipeline.
        said = str(error).rpartition(" of pipeline caused error: ")[2]
        if said.startswith(_UNAVAILABLE_WORDS):
            raise StoreUnavailable(f"The session store refuses writes: {error}") from error
        raise
    except RedisError as error:
        raise StoreUnavailable(f"The session store failed: {error}") from error
