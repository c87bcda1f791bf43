"""Queues as Celery knows them, for whoever looks at what goes on. Loads no task."""

from __future__ import annotations

from celeriac.sessions.settings import Settings
from celeriac.sessions.store.operations import QueueNames
from celeriac.tasks.names import MODEL_QUEUE, TOOL_QUEUE, queue_of
from celeriac.tasks.urls import broker_is_store

__all__ = ["queue_names"]


def queue_names(settings: Settings) -> QueueNames:
    """Return what is known of queues: how steps are sent, and whether the store holds the messages."""
    return QueueNames(queue_of, (MODEL_QUEUE, TOOL_QUEUE), in_store=broker_is_store(settings))
