"""The agents of `fault_agents` in a worker that can be made to take nothing any more.

Once the gate ``deaf`` is open its consumer asks the broker for nothing more; ``deaf-for-good`` outlasts the
connection.
"""

from __future__ import annotations

import threading

from celery.signals import worker_ready
from kombu.transport.virtual import QoS

from tests.tasks import fault_agents
from tests.tasks.fault_agents import faults

__all__ = ["faults"]

_PAUSE = threading.Event()


def _never(*_: object) -> bool:
    return False


def _silence(qos: object, method: str = "can_consume") -> None:
    setattr(qos, method, _never)


def _go_deaf(consumer: object) -> None:
    while not fault_agents.is_open("deaf"):
        _PAUSE.wait(0.02)
    if fault_agents.is_open("deaf-for-good"):
        _silence(QoS)
    channel = consumer.task_consumer.channel  # type: ignore[attr-defined]
    _silence(channel.qos)
    (fault_agents.ROOT / "is-deaf").touch()


@worker_ready.connect(weak=False)
def _ready(sender: object, **_: object) -> None:
    threading.Thread(target=_go_deaf, args=(sender,), daemon=True).start()
