"""Reads how much was done: each partition has one hash for an hour, which every commit of an attempt's end adds to."""

from __future__ import annotations

from collections import Counter
from typing import cast

import redis

from celeriac.sessions.rates import HOUR_MINUTES, MINUTE_MS, Count, Outcome, Rate, Work, rates_of
from celeriac.sessions.store.connection import store_errors
from celeriac.sessions.store.keys import PARTITIONS, PartitionKeys, read_rate_place

__all__ = ["read_rates"]

_WORKS = frozenset(work.value for work in Work)
_OUTCOMES = frozenset(outcome.value for outcome in Outcome)


def read_rates(client: redis.Redis, now: int) -> tuple[Rate, ...]:
    """Read what ended in the last hour, in one round trip.

    Args:
        client: The store.
        now: Unix milliseconds, by the store's clock.

    Raises:
        StoreUnavailable: The store did not answer.
    """
    this_hour = now // MINUTE_MS // HOUR_MINUTES
    places = [
        (hour, PartitionKeys(number).rates(hour))
        for hour in (this_hour - 1, this_hour)
        for number in range(PARTITIONS)
    ]
    with store_errors():
        pipe = client.pipeline(transaction=False)
        for _, key in places:
            pipe.hgetall(key)
        replies = cast("list[dict[bytes, bytes]]", pipe.execute())
    counts: Counter[Count] = Counter()
    for (hour, _), reply in zip(places, replies, strict=True):
        for field, count in reply.items():
            minute, work, outcome = read_rate_place(hour, field.decode())
            # An older or newer version may count what this one does not know.
            if work in _WORKS and outcome in _OUTCOMES:
                counts[minute, Work(work), Outcome(outcome)] += int(count)
    return rates_of(counts, now)
