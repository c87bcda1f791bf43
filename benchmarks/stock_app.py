"""A stock Celery app with a task that enqueues itself, as anybody would write it. All settings are defaults."""

from __future__ import annotations

import os

from celery import Celery
from celery.signals import worker_ready

from benchmarks.marks import mark, ring

__all__ = ["app", "hop"]

app = Celery("stock", broker=os.environ["CELERIAC_BENCH_BROKER"])
# Without a result backend there is nothing to store; this only says so.
app.conf.task_ignore_result = True


@app.task
def hop(chain: str, left: int) -> None:
    """Do nothing, and go on."""
    mark(chain, "hop")
    if left:
        hop.delay(chain, left - 1)
    else:
        ring(chain)


@worker_ready.connect
def _ready(**_: object) -> None:
    ring("ready")
