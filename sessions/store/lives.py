"""Which processes that run steps are alive, and which sessions hold claims of one that is not.

Each such process is registered, and holds a subscription to a channel of its own: a connection's subscriptions
end with it, at the latest when the system closes the sockets of a dead process. A step costs nothing by this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from typing import cast

import redis
from pydantic import BaseModel, ConfigDict

from celeriac.sessions.codec import read_record, read_timing, write_record
from celeriac.sessions.store import scripts
from celeriac.sessions.store.connection import DirectConnections, store_errors
from celeriac.sessions.store.keys import (
    LIFE_CHANNEL,
    LIVES,
    PARTITIONS,
    PartitionKeys,
    SessionKeys,
)

__all__ = ["LifeRecord", "Lives", "Subscription"]

_BATCH = 200
_PUT_OFF_MS = 3_000
"""A session that was just taken from the wake index is put off by less than this."""


class LifeRecord(BaseModel):
    """What is known of a process that runs steps."""

    model_config = ConfigDict(frozen=True)

    worker: str
    """The worker that it belongs to."""
    machine: str
    """Where its process id means something: a running system and a process namespace of it."""
    pid: int
    parent: int
    started: str = ""
    """When it started, in the system's own terms: tells it from a later process of the same id."""
    lease_ms: int
    """Length of its leases."""


# redis-py leaves some methods without types.
_Untyped = Callable[..., object]


class Subscription:
    """A subscription on a connection of its own.

    Args:
        client: Says where the store is, and what connections are like.
        channel: The channel.

    Raises:
        RedisError: The store does not answer.
    """

    def __init__(self, client: redis.Redis, channel: str) -> None:
        pool = client.connection_pool
        # By the third version of the protocol, redis-py hands what is pushed to callbacks only.
        values = {**pool.connection_kwargs, "protocol": 2}
        self._connection = pool.connection_class(**values)
        try:
            cast("_Untyped", self._connection.send_command)("SUBSCRIBE", channel)
            self._connection.read_response()
        except BaseException:
            self.close()
            raise

    def hold(self, seconds: float) -> None:
        """Return after so long, or once something was received.

        Raises:
            RedisError: The connection is lost.
        """
        if not self._connection.can_read(timeout=seconds):
            cast("_Untyped", self._connection.send_command)("PING")
        self._connection.read_response()

    def close(self) -> None:
        """End the subscription."""
        cast("_Untyped", self._connection.disconnect)()


class Lives:
    """The register of living processes.

    Args:
        client: The store.
        direct: Connections for scripts.
    """

    def __init__(self, client: redis.Redis, direct: DirectConnections) -> None:
        self._client = client
        self._direct = direct

    def subscribe(self, owner: str) -> closing[Subscription]:
        """Show that the process is alive, for as long as the subscription is open."""
        with store_errors():
            return closing(Subscription(self._client, LIFE_CHANNEL + owner))

    def register(self, owner: str, record: LifeRecord) -> None:
        """Register a process that holds its subscription."""
        with store_errors():
            self._client.hset(LIVES, owner, write_record(record))

    def forget(self, owner: str) -> bool:
        """Take a process out of the register; say whether it was in it."""
        with store_errors():
            return bool(self._client.hdel(LIVES, owner))

    def missing(self, asker: str) -> tuple[bool, Mapping[str, LifeRecord]]:
        """Return whether the asker itself is seen, and the processes that are not."""
        with store_errors():
            reply = scripts.MISSING_LIVES.run(self._direct, [LIVES], [LIFE_CHANNEL, asker])
        seen, *parts = cast("list[bytes | int]", reply)
        owners = cast("list[bytes]", parts[::2])
        records = cast("list[bytes]", parts[1::2])
        found = zip(owners, records, strict=True)
        return seen == 1, {owner.decode(): read_record(LifeRecord, raw) for owner, raw in found}

    def all(self) -> Mapping[str, LifeRecord]:
        """Return every registered process."""
        with store_errors():
            raw = cast("dict[bytes, bytes]", self._client.hgetall(LIVES))
        return {owner.decode(): read_record(LifeRecord, text) for owner, text in raw.items()}

    def claims_of(self, owners: Collection[str], lease_ms: int) -> Iterator[str]:
        """Find the sessions with a claim of some owners, through the wake index.

        Args:
            owners: The owners.
            lease_ms: Their longest lease: no claim is indexed later than that.

        Yields:
            Session ids.
        """
        session_ids = self._due_within(max(lease_ms, _PUT_OFF_MS))
        for begin in range(0, len(session_ids), _BATCH):
            batch = session_ids[begin : begin + _BATCH]
            with store_errors():
                pipe = self._client.pipeline(transaction=False)
                for session_id in batch:
                    # The state may be long; a session has few timings.
                    pipe.hscan(SessionKeys.of(session_id).session, match="c:*", count=10_000)
                replies = cast("list[tuple[int, dict[bytes, bytes]]]", pipe.execute())
            for session_id, (_, timings) in zip(batch, replies, strict=True):
                if any(read_timing(raw).owner in owners for raw in timings.values()):
                    yield session_id

    def _due_within(self, milliseconds: int) -> list[str]:
        with store_errors():
            seconds, micros = self._client.time()
            until = seconds * 1000 + micros // 1000 + milliseconds
            pipe = self._client.pipeline(transaction=False)
            for number in range(PARTITIONS):
                pipe.zrange(PartitionKeys(number).wake, "-inf", until, byscore=True)
            replies = cast("list[list[bytes]]", pipe.execute())
        return [raw.decode() for reply in replies for raw in reply]
