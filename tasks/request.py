"""What Celery knows of a step that a worker has taken, without what steps do not use.

Celery's own request and tracer serve results, chains, time limits, events and more; together with its promises
they cost as much as the whole durable step. A step needs to be seen (``celery inspect active``), run once, and
acknowledged.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from typing import cast

from celery import signals
from celery.app.task import Task
from celery.worker import state
from celery.worker.request import Request
from kombu import Message

from celeriac.tasks.transport import Channel

__all__ = ["StepRequest", "is_plain"]

_log = logging.getLogger(__name__)

_NO_LIMIT = [None, None]


def is_plain(message: Message) -> bool:
    """Say whether a message asks for nothing that a `StepRequest` cannot do.

    Revoked tasks, and signals that a monitoring library listens to, are Celery's own code's matter too.
    """
    headers = cast("Mapping[str, object]", message.headers)
    return (
        message.content_type == "application/json"
        and headers.get("eta") is None
        and headers.get("expires") is None
        and headers.get("timelimit", _NO_LIMIT) == _NO_LIMIT
        and not state.revoked
        and not state.revoked_stamps
        and not (
            signals.task_received.receivers
            or signals.task_prerun.receivers
            or signals.task_postrun.receivers
            or signals.task_success.receivers
            or signals.task_failure.receivers
        )
    )


class StepRequest(Request):
    """One message of a step.

    Args:
        message: The message; one of a plain step (see `is_plain`).
        task: The step's task.
        hostname: Name of this worker.
    """

    _root_id = _parent_id = _eta = _expires = _eventer = None
    _content_type = _content_encoding = None
    _kwargsrepr = "{}"
    _ignore_result = _utc = _decoded = True
    _connection_errors: tuple[type[Exception], ...] = ()
    # The stubs name neither rightly.
    name: str
    worker_pid: int  # type: ignore[assignment]

    def __init__(self, message: Message, task: Task[..., object], hostname: str) -> None:
        # Not Celery's own: it sets fifty attributes, and copies and extends the headers.
        headers = cast("dict[str, object]", message.headers)
        self._message = message
        self._request_dict = headers
        self._task = task
        self._app = task.app
        self._hostname = hostname
        self._argsrepr = headers.get("argsrepr", "")
        self._delivery_info = message.delivery_info
        body = cast("bytes", message.body).decode()
        self._body = self._args, self._kwargs, _ = json.loads(body)
        self.id = str(headers["id"])
        self.name = self._type = task.name

    def run(self) -> None:
        """Run the step and acknowledge its message, whatever comes of it."""
        self.worker_pid = os.getpid()
        self.time_start = time.time()
        state.active_requests.add(self)
        try:
            self._task.run(*self._args)
        except BaseException:  # noqa: BLE001 - the wake loop finds a step that nobody finished
            _log.exception("Task %s[%s] broke", self.name, self.id)
        finally:
            state.requests.pop(self.id, None)
            state.active_requests.discard(self)
            state.reserved_requests.discard(self)
            self.acknowledge()

    def acknowledge(self) -> None:
        """Give the credit for the next message back; the transport lets any thread do that."""
        if not self.acknowledged:
            self.acknowledged = True
            channel = cast("Channel", self._message.channel)
            channel.basic_ack(str(self._message.delivery_tag))
