"""Messages pushed without Celery's publisher are what Celery would have published."""

from __future__ import annotations

import base64
import json
import sys
import threading
from collections.abc import Iterator
from typing import cast

import pytest
from celery import Celery
from kombu import Connection
from kombu.message import Message
from kombu.transport import memory as memory_transport

from celeriac.sessions.settings import Settings
from celeriac.tasks.celery import make_app
from celeriac.tasks.envelope import Envelope, shape_of
from celeriac.tasks.names import CALL_TOOL, MODEL_QUEUE, RUN_MODEL, TOOL_QUEUE

SESSION = "ses_0123456789abcdefghjkmnpq"


@pytest.fixture(scope="module")
def app() -> Celery:
    return make_app(Settings(redis_url="redis://127.0.0.1:1/0"))


@pytest.fixture
def broker() -> Iterator[Connection]:
    with Connection("memory://elsewhere/") as connection:
        yield connection


def received(connection: Connection, queue: str, raw: bytes) -> Message:
    """Put a message on a queue as it is, and take it as a Celery worker would."""
    channel = memory_channel(connection)
    channel.queue_declare(queue)
    channel._put(queue, json.loads(raw))
    message: Message | None = channel.basic_get(queue, no_ack=True)
    assert message is not None
    return message


def memory_channel(connection: Connection) -> memory_transport.Channel:
    return cast("memory_transport.Channel", connection.channel())


@pytest.mark.parametrize("call_id", ["call_0123456789abcdefghjkmnpq", None])
@pytest.mark.parametrize(("task", "queue"), [(RUN_MODEL, MODEL_QUEUE), (CALL_TOOL, TOOL_QUEUE)])
def test_a_filled_envelope_decodes_to_its_task_and_arguments(
    app: Celery, broker: Connection, task: str, queue: str, call_id: str | None
) -> None:
    message = received(broker, queue, Envelope(app, task, queue).fill(SESSION, "s17", call_id))
    nothing = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    body: object = message.payload
    assert body == [[SESSION, "s17", call_id], {}, nothing]
    headers: dict[str, object] = dict(message.headers)
    assert (headers["task"], headers["eta"], headers["expires"]) == (task, None, None)
    assert message.content_type == "application/json"
    assert message.delivery_info["routing_key"] == queue


def test_each_message_has_an_id_of_its_own_and_no_gap_is_left(app: Celery) -> None:
    envelope = Envelope(app, CALL_TOOL, TOOL_QUEUE)
    ids = set()
    for call_id in ("call_a", None):
        raw = envelope.fill(SESSION, "s1", call_id)
        message = json.loads(raw)
        ids |= {message["headers"]["id"], message["properties"]["delivery_tag"]}
        assert message["headers"]["id"] == message["properties"]["correlation_id"]
        assert message["headers"]["root_id"] == message["headers"]["id"]
        body = base64.b64decode(message["body"])
        assert b"@" not in body
        assert b"@session@" not in raw
        assert b"@step@" not in raw
        assert b"@call@" not in raw
        assert b"@body@" not in raw
    assert len(ids) == 2


@pytest.mark.parametrize("queue", [MODEL_QUEUE, TOOL_QUEUE, "a-tools-own.queue"])
def test_its_shape_is_what_celery_publishes(app: Celery, broker: Connection, queue: str) -> None:
    app.send_task(RUN_MODEL, args=[SESSION, "s1", "call_a"], queue=queue, connection=broker)
    published = memory_channel(broker)._get(queue)
    pushed = Envelope(app, RUN_MODEL, queue).fill(SESSION, "s1", "call_a")
    assert shape_of(pushed) == shape_of(json.dumps(published).encode())
    assert (
        json.loads(pushed)["properties"]["delivery_info"]
        == (published["properties"]["delivery_info"])
    )


def test_a_message_carries_ids_only_and_stays_small(app: Celery) -> None:
    raw = Envelope(app, CALL_TOOL, TOOL_QUEUE).fill(SESSION, "s1", "call_a")
    assert len(raw) < 1_500


def test_shapes_differ_where_messages_do(app: Celery) -> None:
    raw = Envelope(app, RUN_MODEL, MODEL_QUEUE).fill(SESSION, "s1", "call_a")
    message = json.loads(raw)
    del message["headers"]["root_id"]
    assert shape_of(json.dumps(message).encode()) != shape_of(raw)


def test_threads_of_a_worker_may_make_their_first_envelopes_at_once(app: Celery) -> None:
    start = threading.Barrier(8)
    made: list[bytes] = []

    def make() -> None:
        start.wait(10)
        envelopes = [Envelope(app, RUN_MODEL, MODEL_QUEUE) for _ in range(5)]
        made.extend(envelope.fill(SESSION, "s1", None) for envelope in envelopes)

    threads = [threading.Thread(target=make) for _ in range(8)]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(usual)
    assert len(made) == 40
    assert len({str(shape_of(raw)) for raw in made}) == 1
