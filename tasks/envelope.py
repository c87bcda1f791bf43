"""Celery messages as bytes, made by Celery's and kombu's own code once and filled in for each step."""

from __future__ import annotations

import base64
import json
import secrets
import threading
from functools import lru_cache
from typing import Final, cast

from celery import Celery
from kombu import Connection
from kombu.transport import memory as memory_transport

__all__ = ["Envelope", "shape_of"]

_ID: Final = "00000000-1111-2222-3333-444444444444"
_SESSION: Final = "@session@"
_STEP: Final = "@step@"
_CALL: Final = "@call@"


class Envelope:
    """The message of one task, with gaps for its arguments.

    Args:
        app: The Celery app.
        task: The task's name.
        queue: The queue's name.
    """

    def __init__(self, app: Celery, task: str, queue: str) -> None:
        message = _capture(app, task, queue)
        self._body = base64.b64decode(str(message["body"])).decode()
        # The delivery tag is the only other thing that differs from message to message.
        properties = {**cast("dict[str, object]", message["properties"]), "delivery_tag": _ID}
        self._text = json.dumps({**message, "body": "@body@", "properties": properties})

    def fill(self, session_id: str, step_id: str, call_id: str | None) -> bytes:
        """Return the message for one step.

        Args:
            session_id: The session.
            step_id: The step.
            call_id: Its call, if it has one.
        """
        body = self._body.replace(_SESSION, session_id).replace(_STEP, step_id)
        body = body.replace(f'"{_CALL}"', json.dumps(call_id))
        encoded = base64.b64encode(body.encode()).decode("ascii")
        text = self._text.replace(_ID, secrets.token_hex(16)).replace("@body@", encoded)
        text = text.replace(_SESSION, session_id).replace(_STEP, step_id)
        return text.replace(_CALL, call_id or "-").encode()


# A broker in memory is one for the whole process: threads that send their first step at the same moment
# would take each other's message.
_one_at_a_time = threading.Lock()


@lru_cache(maxsize=1)
def _memory_broker() -> Connection:
    return Connection("memory://localhost/")


def _capture(app: Celery, task: str, queue: str) -> dict[str, object]:
    """Send the task to a broker in memory and take the message from its queue."""
    with _one_at_a_time, _memory_broker().clone() as connection:
        channel = connection.channel()
        app.send_task(
            task,
            args=[_SESSION, _STEP, _CALL],
            task_id=_ID,
            queue=queue,
            connection=connection,
            root_id=_ID,
        )
        # The undecoded message is what we are after; the stubs know only the common channel.
        memory = cast("memory_transport.Channel", channel)
        message: dict[str, object] = memory._get(queue)  # noqa: SLF001
        memory.queue_delete(queue)
    return message


def shape_of(raw: bytes) -> object:
    """Return the keys of a message, nested, without its values: what two messages must share."""
    message = json.loads(raw)
    body = json.loads(base64.b64decode(message["body"]))
    return [_keys(message), _keys(body)]


def _keys(value: object) -> object:
    if isinstance(value, dict):
        return {key: _keys(item) for key, item in sorted(value.items())}
    if isinstance(value, list):
        return [_keys(item) for item in value]
    return type(value).__name__ if isinstance(value, bool | int | float) else "text"
