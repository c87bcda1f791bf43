"""Part 1: how fast a stock Celery no-op chain is here and now; what a durable step is compared with."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from celery import Celery

from benchmarks.machinery import Bench, Row, ms, percentile, workers
from benchmarks.marks import read_marks
from celeriac.tasks.urls import broker_url_for

__all__ = ["StockResult", "measure", "rows", "run_chains"]


@dataclass(frozen=True, slots=True)
class StockResult:
    """One measurement.

    Args:
        pool: Celery's pool options, in words.
        workers: How many worker processes.
        chains: How many chains at once.
        hops_per_second: Over all chains.
        p50: Seconds of one hop.
        p99: The same.
    """

    pool: str
    workers: int
    chains: int
    hops_per_second: float
    p50: float
    p99: float


_runs = itertools.count()  # each run's marks have names of their own

_POOLS = {"prefork c1": ("-c", "1"), "prefork": ()}


def measure(place: Bench, *, hops: int) -> list[StockResult]:
    """Run one chain and 64 chains, on one and on two workers.

    Args:
        place: Where.
        hops: Hops of the single chain; 64 chains make about four times as many together.
    """
    broker = broker_url_for(place.url)
    app = Celery("bench", broker=broker, set_as_current=False)
    environment = {"CELERIAC_BENCH_BROKER": broker}
    results = []
    for pool, arguments in _POOLS.items():
        for count in (1, 2):
            with workers(place, "benchmarks.stock_app", count, *arguments, environment=environment):
                run = partial(run_chains, place, app, pool, count)
                run(chains=4, hops=50)  # warm up
                results += [run(chains=1, hops=hops), run(chains=64, hops=max(1, hops // 16))]
    app.close()
    return results


def run_chains(
    place: Bench, app: Celery, pool: str, worker_count: int, *, chains: int, hops: int
) -> StockResult:
    """Run so many chains at once on the workers that are there.

    Args:
        place: Where.
        app: Sends the first message of each chain.
        pool: What the workers are, in words.
        worker_count: How many there are.
        chains: How many chains.
        hops: Hops of each.
    """
    run = next(_runs)
    names = [f"{pool}-{worker_count}-{run}-{number}".replace(" ", "") for number in range(chains)]
    started = time.monotonic()
    for name in names:
        app.send_task("benchmarks.stock_app.hop", (name, hops))
    seconds = place.bell.wait(chains) - started
    marks = read_marks(place.directory)
    gaps = [later.at - earlier.at for name in names for earlier, later in pairwise(marks[name])]
    return StockResult(
        pool,
        worker_count,
        chains,
        len(gaps) / seconds,
        percentile(gaps, 0.5),
        percentile(gaps, 0.99),
    )


def rows(results: Sequence[StockResult]) -> list[Row]:
    """Return the results as lines of the table."""
    return [
        Row(
            f"{one.workers} x {one.pool}, {one.chains} chain{'s' if one.chains > 1 else ''}",
            f"{one.hops_per_second:,.0f} hops/s",
            # Over 64 chains a hop mostly waits for its turn, which says nothing.
            note=f"p50 {ms(one.p50)}, p99 {ms(one.p99)}" if one.chains == 1 else "",
        )
        for one in results
    ]
