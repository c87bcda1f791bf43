"""Rate limits, counted in the store so that they hold over all web processes."""

from __future__ import annotations

import hashlib
from enum import StrEnum

import redis

from celeriac.sessions.errors import RateLimited
from celeriac.sessions.settings import Settings
from celeriac.sessions.store.connection import store_errors
from celeriac.sessions.store.keys import limit_key

__all__ = ["Limited", "RateLimits"]

_WINDOW_SECONDS = 60
_REFUSALS_LOGGED = 30


class Limited(StrEnum):
    """What is counted."""

    SESSIONS = "sessions"
    """Sessions that a client starts."""
    MESSAGES = "messages"
    """Messages that are sent to a session."""
    LOGINS = "logins"
    """Attempts to log in from an address."""
    REFUSALS = "refusals"
    """Refused tokens of an address that the audit log takes."""


class RateLimits:
    """Counts what clients do in each minute, beginning with the first.

    Args:
        client: The store.
        settings: Say how many there may be; 0 is no limit.
    """

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client = client
        self._most = {
            Limited.SESSIONS: settings.limit_sessions_per_minute,
            Limited.MESSAGES: settings.limit_messages_per_minute,
            Limited.LOGINS: settings.limit_logins_per_minute,
            Limited.REFUSALS: _REFUSALS_LOGGED,
        }

    def check(self, what: Limited, who: str) -> None:
        """Count one, unless it is too many.

        Args:
            what: What is counted.
            who: The client, by any name; only a digest of it is stored.

        Raises:
            RateLimited: It is too many; the error says how long to wait.
            StoreUnavailable: The store did not answer.
        """
        most = self._most[what]
        if most == 0:
            return
        key = limit_key(what.value, hashlib.sha256(who.encode()).hexdigest()[:24])
        with store_errors(), self._client.pipeline(transaction=True) as pipe:
            pipe.incr(key)
            pipe.expire(key, _WINDOW_SECONDS, nx=True)
            pipe.ttl(key)
            count, _, left = pipe.execute()
        if count > most:
            raise RateLimited(
                f"Too many {what.value} within a minute; the limit is {most}. Try again in {max(left, 1)} s.",
                retry_after_seconds=max(left, 1),
            )
