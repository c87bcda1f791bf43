"""Queues as Celery keeps them: how steps are sent, how many messages wait, and which step the oldest is of.

Loads neither Celery nor a task, so that the web can ask too.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import cast

import redis

from celeriac.sessions.settings import Settings
from celeriac.sessions.state import Step
from celeriac.sessions.store.connection import store_errors
from celeriac.sessions.store.operations import QueueLook
from celeriac.tasks.names import MODEL_QUEUE, TOOL_QUEUE, queue_of
from celeriac.tasks.urls import broker_is_store

__all__ = ["CeleryQueues", "queue_depths"]


class CeleryQueues:
    """What is known of queues; see `Queues`.

    Args:
        settings: Tell whether the broker is the session store, so that its queues can be looked into.
    """

    defaults = (MODEL_QUEUE, TOOL_QUEUE)

    def __init__(self, settings: Settings) -> None:
        self._in_store = broker_is_store(settings)

    def of(self, step: Step) -> str:
        """Return the queue that a step is sent to."""
        return queue_of(step)

    def look(self, client: redis.Redis, names: Sequence[str]) -> Sequence[QueueLook | None]:
        """Look into queues; None for each where the broker is another one."""
        if not self._in_store:
            return [None] * len(names)
        depths = queue_depths(client, names)
        with store_errors():
            pipe = client.pipeline(transaction=False)
            for name in names:
                # kombu pushes on the left and takes from the right.
                pipe.lindex(name, -1)
            oldest = cast("list[bytes | None]", pipe.execute())
        return [
            QueueLook(depth, None if raw is None else _step_of(raw))
            for depth, raw in zip(depths, oldest, strict=True)
        ]


def queue_depths(client: redis.Redis, names: Sequence[str]) -> list[int]:
    """Return how many messages wait in each queue; only where the broker is the session store.

    Raises:
        StoreUnavailable: The store did not answer.
    """
    with store_errors():
        pipe = client.pipeline(transaction=False)
        for name in names:
            pipe.llen(name)
        return cast("list[int]", pipe.execute())


def _step_of(message: bytes) -> tuple[str, str] | None:
    """Return session and step that a message is about; None when it is none of ours."""
    try:
        arguments = json.loads(base64.b64decode(json.loads(message)["body"]))[0]
        return str(arguments[0]), str(arguments[1])
    except (ValueError, KeyError, IndexError, TypeError):
        return None
