"""One connection that waits for live events of many sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import redis

from celeriac.sessions.errors import StoreUnavailable
from celeriac.sessions.store.connection import store_errors
from celeriac.sessions.store.keys import SessionKeys

if TYPE_CHECKING:
    from redis.typing import KeyT

__all__ = ["Entries", "EventWatch", "wait_for_entries"]

Entries = list[tuple[bytes, dict[bytes, bytes]]]


def wait_for_entries(
    client: redis.Redis, after: Mapping[str, str], *, block_ms: int, count: int
) -> dict[str, Entries]:
    """Wait until one of several streams has an entry after its position.

    Args:
        client: Blocks meanwhile.
        after: The position of each stream, by key.
        block_ms: Milliseconds to wait, at least 1.
        count: Most entries to return of each stream.

    Returns:
        New entries by key; a stream without any is left out.
    """
    try:
        positions = cast("dict[KeyT, int | KeyT]", dict(after))
        found = client.xread(positions, count=count, block=max(1, block_ms))
    except redis.TimeoutError:
        return {}
    # RESP2 answers a list of pairs, RESP3 a map whose entries are in one more list.
    pairs = cast(
        "Iterable[tuple[bytes, list[object]]]",
        found.items() if isinstance(found, dict) else found or (),
    )
    entries: dict[str, Entries] = {}
    for key, batch in pairs:
        nested = batch and isinstance(batch[0], list)
        entries[key.decode()] = cast("Entries", batch[0] if nested else batch)
    return entries


class EventWatch:
    """Says which of many sessions have news; one thread waits, any other may interrupt it.

    Args:
        client: Lends the connection.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._own: redis.Redis | None = None
        self._connection_id: int | None = None

    def wait(self, positions: Mapping[str, str], *, block_ms: int) -> dict[str, str]:
        """Wait until a session has an event after its position.

        Args:
            positions: The position of each session, by session id.
            block_ms: Milliseconds to wait, at most 5,000.

        Returns:
            The sessions that have news, each with a position further on. Empty after the wait, or
            when it was interrupted.

        Raises:
            StoreUnavailable: The store does not answer.
        """
        by_key = {SessionKeys.of(session_id).events: session_id for session_id in positions}
        after = {key: positions[session_id] for key, session_id in by_key.items()}
        try:
            with store_errors():
                own = self._connected()
                # Asked each time: the client may have connected anew without a word.
                self._connection_id = int(own.client_id())
                found = wait_for_entries(own, after, block_ms=min(block_ms, 5_000), count=200)
        except BaseException:
            self.close()
            raise
        return {by_key[key]: entries[-1][0].decode() for key, entries in found.items() if entries}

    def interrupt(self) -> None:
        """Let a wait that is going on end now.

        Best effort: one that is just about to begin, or that cannot be reached, lasts as long as it was told to.
        """
        number = self._connection_id
        if number is not None:
            with suppress(StoreUnavailable), store_errors():
                self._client.client_unblock(number)

    def close(self) -> None:
        """Give the connection back; the next wait takes another."""
        own, self._own, self._connection_id = self._own, None, None
        if own is not None:
            own.close()

    def _connected(self) -> redis.Redis:
        if self._own is None:
            self._own = self._client.client()  # type: ignore[no-untyped-call]
        return self._own
