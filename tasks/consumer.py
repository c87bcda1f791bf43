"""Celery's consumer with one change: after an outage of the broker it looks for it every few seconds.

kombu's pauses between attempts grow to 30 s, and Celery has no setting for them: after an outage of a minute a
worker would take half a minute more before it took work again.
"""

from __future__ import annotations

from functools import partial

from celery.worker.consumer import Consumer as CeleryConsumer
from kombu import Connection

__all__ = ["Consumer"]


class Consumer(CeleryConsumer):
    """A consumer that is back soon after its broker."""

    def ensure_connected(self, conn: Connection) -> Connection:
        """Connect, trying again at most two seconds after each failure."""
        patient = partial(conn.ensure_connection, interval_start=1, interval_step=1, interval_max=2)
        conn.ensure_connection = patient  # type: ignore[method-assign]
        connected: Connection = super().ensure_connected(conn)
        return connected
