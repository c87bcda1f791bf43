"""Send the messages of ready steps, and open stores and clients that do. Imports no step."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from typing import cast

from celery import Celery

from celeriac.sessions.client import SessionClient
from celeriac.sessions.errors import CeleriacError
from celeriac.sessions.settings import Settings, load_settings
from celeriac.sessions.state import Step
from celeriac.sessions.store.connection import connect
from celeriac.sessions.store.sessions import SessionStore
from celeriac.tasks.celery import make_app
from celeriac.tasks.envelope import Envelope, shape_of
from celeriac.tasks.names import RUN_MODEL, queue_of, task_of
from celeriac.tasks.transport import Channel
from celeriac.tasks.urls import broker_is_store, store_url

__all__ = ["CeleryDispatcher", "open_client", "open_store"]

_log = logging.getLogger(__name__)

_SELF_TEST_QUEUE = "celeriac.self-test"
_SELF_TESTS_AT_ONCE = 1_000


class CeleryDispatcher:
    """Sends steps to Celery: within the commit where the broker is the store, else after it.

    Args:
        app: The Celery app.
        settings: Tell whether the broker is the store.
    """

    def __init__(self, app: Celery, settings: Settings) -> None:
        self._app = app
        self._in_commit = broker_is_store(settings)
        self._envelopes: dict[tuple[str, str], Envelope] = {}

    def writes(self, session_id: str, steps: Sequence[Step]) -> Sequence[tuple[str, bytes]]:
        """Return (queue, message) pairs to push within the commit; see `Dispatcher`."""
        if not self._in_commit:
            return ()
        return [
            (queue, self._envelope(task_of(step), queue).fill(session_id, step.id, step.call_id))
            for step in steps
            for queue in (queue_of(step),)
        ]

    def after_commit(self, session_id: str, steps: Sequence[Step]) -> None:
        """Send the messages through Celery. One that cannot be sent is found by the wake index."""
        for step in steps:
            try:
                self._app.send_task(
                    task_of(step),
                    args=[session_id, step.id, step.call_id],
                    queue=queue_of(step),
                    ignore_result=True,
                )
            except Exception as error:  # noqa: BLE001 - it is stored; whatever the broker says changes nothing
                _log.warning(
                    "The broker did not take step %s of %s; it will be sent again: %s",
                    step.id,
                    session_id,
                    error,
                )

    def _envelope(self, task: str, queue: str) -> Envelope:
        envelope = self._envelopes.get((task, queue))
        if envelope is None:
            envelope = self._envelopes[task, queue] = Envelope(self._app, task, queue)
        return envelope

    def self_test(self) -> None:
        """Compare a message that we push with one that Celery really published.

        Raises:
            CeleriacError: They differ, so this version of Celery needs another envelope.
        """
        if not self._in_commit:
            return
        published = self._published()
        pushed = Envelope(self._app, RUN_MODEL, _SELF_TEST_QUEUE).fill("session", "step", "call")
        if published is None or shape_of(published) != shape_of(pushed):
            raise CeleriacError(
                "The message that Celeriac pushes differs from what this Celery publishes. Install the "
                "celery and kombu versions of requirements/core.txt, or set CELERIAC_BROKER_URL to "
                "another broker."
            )

    def _published(self) -> bytes | None:
        """Publish a message and take it back.

        All workers use one queue: one of their own would leave its bindings in the broker, for good where the
        worker is killed in the middle.
        """
        task_id = secrets.token_hex(16)
        with self._app.connection_for_write() as connection, connection.channel() as channel:
            self._app.send_task(
                RUN_MODEL,
                args=["session", "step", "call"],
                task_id=task_id,
                queue=_SELF_TEST_QUEUE,
                connection=connection,
            )
            with cast("Channel", channel).conn_or_acquire() as client:
                found = client.lrange(_SELF_TEST_QUEUE, 0, -1)
                mine = next((message for message in found if task_id.encode() in message), None)
                if mine is not None:
                    client.lrem(_SELF_TEST_QUEUE, 0, mine)
                # What workers left that were killed in the middle.
                client.ltrim(_SELF_TEST_QUEUE, 0, _SELF_TESTS_AT_ONCE - 1)
        return mine


def open_store(settings: Settings, app: Celery | None = None) -> SessionStore:
    """Open the session store of this process; call it after any fork.

    Args:
        settings: Where the store is. Without a URL the embedded store is started or joined.
        app: The Celery app that steps are sent with; default one of these settings.

    Returns:
        The store; it connects at first use.
    """
    dispatcher = CeleryDispatcher(app or make_app(settings), settings)
    return SessionStore(connect(store_url(settings)), dispatcher, settings)


def open_client(settings: Settings | None = None) -> SessionClient:
    """Open a client of the sessions; call it after any fork.

    Args:
        settings: Default those of the environment.

    Returns:
        The client; it connects at first use.
    """
    settings = settings or load_settings()
    return SessionClient(open_store(settings), settings)
