"""Rate limits in the store: counted for everybody, gone after a minute."""

from __future__ import annotations

import pytest
import redis

from celeriac.sessions.errors import RateLimited
from celeriac.sessions.settings import Settings
from celeriac.sessions.store.limits import Limited, RateLimits


def limits(client: redis.Redis, settings: Settings, most: int) -> RateLimits:
    return RateLimits(client, settings.model_copy(update={"limit_messages_per_minute": most}))


def test_what_is_too_much_says_when_there_is_room_again(
    redis_client: redis.Redis, settings: Settings
) -> None:
    """Counted over all processes, each client for itself."""
    one, other = limits(redis_client, settings, 3), limits(redis_client, settings, 3)
    for counter in (one, other, one):
        counter.check(Limited.MESSAGES, "Ana")
    with pytest.raises(
        RateLimited, match="Too many messages within a minute; the limit is 3"
    ) as caught:
        other.check(Limited.MESSAGES, "Ana")
    assert 1 <= caught.value.retry_after_seconds <= 60
    other.check(Limited.MESSAGES, "Bo")
    other.check(Limited.LOGINS, "Ana")


def test_a_minute_begins_with_the_first_and_ends_by_itself(
    redis_client: redis.Redis, settings: Settings
) -> None:
    counter = limits(redis_client, settings, 1)
    counter.check(Limited.MESSAGES, "Ana")
    (key,) = redis_client.keys()
    assert b"Ana" not in key
    redis_client.expire(key, 20)
    with pytest.raises(RateLimited) as caught:
        counter.check(Limited.MESSAGES, "Ana")
    assert caught.value.retry_after_seconds <= 20, "further ones do not lengthen it"
    redis_client.delete(key)
    counter.check(Limited.MESSAGES, "Ana")


def test_no_limit_counts_nothing(redis_client: redis.Redis, settings: Settings) -> None:
    counter = limits(redis_client, settings, 0)
    for _ in range(5):
        counter.check(Limited.MESSAGES, "Ana")
    assert redis_client.keys() == []
