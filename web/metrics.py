"""Prometheus metrics of what goes on, read from the store when they are asked for: gauges, and one counter.

None has a label for each session, so their number does not grow with use.
https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections.abc import Iterator

from celeriac.sessions.operations import Operations

__all__ = ["CONTENT_TYPE", "metrics_text"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_Sample = tuple[dict[str, str], float]


def metrics_text(operations: Operations) -> str:
    """Return the metrics in Prometheus' text format."""
    return "".join(_lines(operations))


def _lines(operations: Operations) -> Iterator[str]:
    workers, queues = operations.workers, operations.queues
    yield from _gauge(
        "sessions",
        "Sessions by what they are doing.",
        [({"status": status.value}, count) for status, count in operations.sessions.items()],
    )
    yield from _gauge(
        "approvals_waiting", "Calls that wait for a decision.", [({}, operations.approvals_waiting)]
    )
    yield from _gauge(
        "unknown_outcomes", "Calls whose outcome nobody knows.", [({}, operations.unknown_outcomes)]
    )
    yield from _gauge(
        "sessions_overdue", "Sessions that no worker looked at in time.", [({}, operations.overdue)]
    )
    yield from _gauge("workers", "Workers seen in the last 15 seconds.", [({}, len(workers))])
    yield from _gauge(
        "worker_running_steps",
        "Steps that a worker runs.",
        [({"worker": one.name}, one.running) for one in workers],
    )
    yield from _gauge(
        "worker_concurrency",
        "Steps that a worker can run at a time.",
        [({"worker": one.name}, one.concurrency) for one in workers],
    )
    yield from _gauge(
        "queue_depth",
        "Messages that wait in a queue.",
        [({"queue": one.name}, one.depth) for one in queues if one.depth is not None],
    )
    yield from _gauge(
        "queue_oldest_seconds",
        "For how long the oldest message of a queue waits.",
        [
            ({"queue": one.name}, max(0, operations.at - one.oldest_at) / 1000)
            for one in queues
            if one.oldest_at is not None
        ],
    )
    yield from _metric(
        "counter",
        "attempts_total",
        "Attempts of model and tool calls that ended; starts again from 0 at every full hour.",
        [
            ({"work": rate.work.value, "outcome": rate.outcome.value}, rate.since_hour)
            for rate in operations.rates
        ],
    )


def _gauge(name: str, about: str, samples: list[_Sample]) -> Iterator[str]:
    return _metric("gauge", name, about, samples)


def _metric(kind: str, name: str, about: str, samples: list[_Sample]) -> Iterator[str]:
    yield f"# HELP celeriac_{name} {about}\n# TYPE celeriac_{name} {kind}\n"
    for labels, value in samples:
        inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"celeriac_{name}{f'{{{inner}}}' if inner else ''} {value:.15g}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
