"""Celery's consumer with two changes.

After an outage of the broker it looks for it every few seconds. kombu's pauses between attempts grow to 30 s, and
Celery has no setting for them: after an outage of a minute a worker would take half a minute more before it took
work again.

And the message of a plain step goes to the pool on a shorter way than any task's; see `request`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from celery.app.task import Task
from celery.events import EventDispatcher
from celery.worker import state
from celery.worker.consumer import Consumer as CeleryConsumer
from kombu import Connection, Message

from celeriac.tasks.names import TASKS
from celeriac.tasks.pool import TaskPool
from celeriac.tasks.request import StepRequest, is_plain
from celeriac.tasks.transport import Channel

__all__ = ["Consumer"]

Handler = Callable[[Message], None]


class Consumer(CeleryConsumer):
    """A consumer that is back soon after its broker, and quick with steps."""

    def ensure_connected(self, conn: Connection) -> Connection:
        """Connect, trying again at most two seconds after each failure."""
        patient = partial(conn.ensure_connection, interval_start=1, interval_step=1, interval_max=2)
        conn.ensure_connection = patient  # type: ignore[method-assign]
        connected: Connection = super().ensure_connected(conn)
        return connected

    # What Celery's own class has besides, and its stubs do not tell.
    event_dispatcher: EventDispatcher | None
    on_task_message: set[Callable[..., object]]
    _maximum_prefetch_restored: bool

    def create_task_handler(self, **options: object) -> Handler:  # type: ignore[override]
        """Return what is called with each message."""
        usual: Handler = super().create_task_handler(**options)  # type: ignore[arg-type]
        pool = self.pool
        if not isinstance(pool, TaskPool):
            return usual
        steps: dict[object, Task[..., object]] = {name: self.app.tasks[name] for name in TASKS}

        def handle(message: Message) -> None:
            task = steps.get(message.headers.get("task"))
            if task is None or not self._is_quick(message) or not is_plain(message):
                usual(message)
                return
            try:
                request = StepRequest(message, task, self.hostname)
            except (KeyError, TypeError, ValueError):
                usual(message)  # knows what to say of a message that cannot be read
                return
            state.requests[request.id] = request
            state.reserved_requests.add(request)
            state.total_count[request.name] += 1
            state.all_total_count[0] += 1
            pool.submit(request.run)

        return handle

    def _is_quick(self, message: Message) -> bool:
        """Say whether nothing but the step itself is to be done with a message."""
        events = self.event_dispatcher
        return (
            isinstance(message.channel, Channel)
            # Else Celery counts up to the full prefetch after an outage.
            and self._maximum_prefetch_restored
            and not self.on_task_message
            and not (events and events.enabled and "task" in (events.groups or ("task",)))
        )
