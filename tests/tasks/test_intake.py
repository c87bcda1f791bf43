"""How a worker takes a step: the pool's threads, the consumer's credit, and what Celery still sees of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
from celery import signals
from celery.worker import state as worker_state
from kombu.asynchronous import Hub, set_event_loop
from kombu.transport.virtual import Channel as VirtualChannel

from celeriac.sessions.settings import Settings
from celeriac.tasks.celery import make_app
from celeriac.tasks.envelope import _capture
from celeriac.tasks.names import CALL_TOOL, RUN_MODEL
from celeriac.tasks.pool import TaskPool
from celeriac.tasks.request import is_plain
from celeriac.tasks.transport import Channel, Message, QoS
from tests.tasks.cluster import Cluster, last_answer
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("intake")]


def test_the_pool_runs_all_it_is_given_on_no_more_threads_than_its_limit() -> None:
    pool = TaskPool(3)
    gate = threading.Event()
    seen: list[str] = []

    def work() -> None:
        gate.wait(10)
        seen.append(threading.current_thread().name)

    for _ in range(10):
        pool.submit(work)
    gate.set()
    wait_until(lambda: len(seen) == 10, "all ran")
    assert len(set(seen)) == 3
    pool.stop()


def test_a_thread_that_was_idle_is_used_before_a_new_one_and_survives_what_breaks() -> None:
    pool = TaskPool(4)
    names: list[str] = []

    def broken() -> None:
        names.append(threading.current_thread().name)
        raise SystemExit(3)

    for _ in range(3):
        pool.submit(broken)
        wait_until(lambda: len(pool._idle) == 1, "it ran")
    assert len(names) == 3
    assert len(set(names)) == 1
    pool.stop()


def test_a_pool_that_stops_drops_what_waits_and_waits_for_what_runs() -> None:
    pool = TaskPool(1)
    begun, gate, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        gate.wait(10)
        ended.set()

    pool.submit(work)
    begun.wait(10)
    pool.submit(lambda: pytest.fail("it was dropped"))
    stopper = threading.Thread(target=pool.stop)
    stopper.start()
    wait_until(lambda: pool._stopping, "it stops")
    assert not ended.is_set()
    gate.set()
    stopper.join(10)
    assert ended.is_set()
    assert not stopper.is_alive()


def test_celerys_own_tasks_run_on_the_pool_too() -> None:
    pool = TaskPool(1)
    said: list[object] = []
    pool.apply_async(
        lambda value: value + 1, (1,), callback=said.append, accept_callback=lambda *_: None
    )
    wait_until(lambda: said == [2], "the callback was called")
    pool.stop()


class _Hub:
    woken = 0

    def call_soon(self, _: Callable[[], None]) -> None:
        self.woken += 1


def test_an_acknowledgement_wakes_a_consumer_that_waits_for_credit_and_no_other() -> None:
    hub = _Hub()
    set_event_loop(cast("Hub", hub))
    try:
        qos = QoS(cast("VirtualChannel", SimpleNamespace(do_restore=False)), prefetch_count=2)
        for tag in ("a", "b"):
            assert qos.can_consume()
            qos.append(cast("Message", object()), tag)
        qos.ack("a")
        assert hub.woken == 0  # nobody has asked in vain
        qos.append(cast("Message", object()), "c")
        assert not qos.can_consume()
        qos.ack("b")
        assert hub.woken == 1
        assert qos.can_consume()
        qos.ack("c")
        assert hub.woken == 1
    finally:
        set_event_loop(None)


@pytest.fixture
def message() -> Message:
    app = make_app(Settings(redis_url="redis://localhost:1/0"))
    return Message(_capture(app, RUN_MODEL, "queue"), channel=cast("Channel", object()))


def test_a_message_of_a_step_is_plain_and_reads_as_kombu_reads_it(message: Message) -> None:
    assert is_plain(message)
    assert message.payload[0] == ["@session@", "@step@", "@call@"]
    assert message.headers["task"] == RUN_MODEL


@pytest.mark.parametrize("name", ["eta", "expires", "timelimit"])
def test_what_asks_for_more_than_running_is_left_to_celery(message: Message, name: str) -> None:
    message.headers[name] = "2026-01-01T00:00:00"
    assert not is_plain(message)


def test_revoked_tasks_and_listeners_are_left_to_celery(message: Message) -> None:
    def listen(**_: object) -> None:
        pass

    signals.task_prerun.connect(listen)
    assert not is_plain(message)
    signals.task_prerun.disconnect(listen)
    assert is_plain(message)
    worker_state.revoked.add("an-id")
    assert not is_plain(message)
    worker_state.revoked.discard("an-id")
    assert is_plain(message)


def test_nothing_in_a_worker_keeps_steps_from_their_short_way(cluster: Cluster) -> None:
    cluster.restore(1)
    [worker] = cluster.workers
    cluster.idle(cluster.say("/tool look {}"))
    assert "RunModel" in worker.output()
    # What Celery's own way logs at this level.
    assert "received" not in worker.output()


def test_celery_sees_the_steps_that_a_worker_runs(cluster: Cluster) -> None:
    cluster.restore(1)
    session_id = cluster.say('/tool look {"gate": "inspected"}')
    cluster.running_call(session_id, "look")
    app = make_app(Settings(redis_url=cluster.env["CELERIAC_REDIS_URL"]))
    [active] = (app.control.inspect().active() or {}).values()
    assert [task["name"] for task in active] == [CALL_TOOL]
    assert active[0]["args"][0] == session_id
    cluster.open_gate("inspected")
    assert last_answer(cluster.idle(session_id)) == "look returned: seen inspected"
    [stats] = (app.control.inspect().stats() or {}).values()
    assert stats["total"][CALL_TOOL] >= 1
    assert stats["pool"]["implementation"] == "celeriac.tasks.pool:TaskPool"
    left = app.control.inspect().active() or {}
    assert list(left.values()) == [[]]
    app.close()
