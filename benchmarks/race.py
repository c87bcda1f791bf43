"""Durable steps against stock hops, in turns: a shared machine changes its speed from minute to minute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median

from celery import Celery

from benchmarks.machinery import Bench, Row, ms, workers
from benchmarks.stock import StockResult, run_chains
from celeriac.tasks.urls import broker_url_for

__all__ = ["race"]

_CHAINS = 64
_HOPS = 15
_TARGET = {"everysec": 1.5, "always": 1.2}


def race(place: Bench, durable: Callable[[], float], *, rounds: int) -> list[Row]:
    """Let durable steps and stock chains take turns.

    Args:
        place: Where.
        durable: Runs 64 sessions and returns steps per second; its workers are running.
        rounds: How often each has its turn.

    Returns:
        The medians, and the median of each round's ratio to the better stock.
    """
    with ExitStack() as stack:
        runs = [_stock(place, count, stack) for count in (1, 2)]
        stocks = [partial(_rate, run) for run in runs]
        for one in (*stocks, durable):
            one()  # warm up
        results = [(durable(), *(one() for one in stocks)) for _ in range(rounds)]
        hop = runs[0](chains=1, hops=_CHAINS * _HOPS)
    ratio = median(ours / max(others) for ours, *others in results)
    target = _TARGET[place.fsync]
    rates = [median(column) for column in zip(*results, strict=True)]
    return [
        *_stock_rows(rates[1:]),
        Row("stock hop, 1 chain, p50", ms(hop.p50), note=f"p99 {ms(hop.p99)}"),
        Row(
            f"durable steps, {_CHAINS} sessions",
            f"{rates[0]:,.0f} steps/s",
            f"≥ {target} x the better stock",
            ratio >= target,
            f"{ratio:.2f} x, median of {rounds} rounds in turns",
        ),
    ]


def _stock_rows(rates: Sequence[float]) -> list[Row]:
    return [
        Row(
            f"stock hops, {_CHAINS} chains, {count} worker{'s' * (count > 1)}",
            f"{rate:,.0f} hops/s",
        )
        for count, rate in enumerate(rates, start=1)
    ]


def _rate(run: Callable[..., StockResult]) -> float:
    return run(chains=_CHAINS, hops=_HOPS).hops_per_second


def _stock(place: Bench, count: int, stack: ExitStack) -> Callable[..., StockResult]:
    """Start stock workers on a database of their own."""
    broker = broker_url_for(place.url).replace("virtual_host=0", f"virtual_host={count}")
    app = Celery(f"stock{count}", broker=broker, set_as_current=False)
    stack.callback(app.close)
    environment = {"CELERIAC_BENCH_BROKER": broker}
    stack.enter_context(
        workers(place, "benchmarks.stock_app", count, "-c", "1", environment=environment)
    )
    return partial(run_chains, place, app, "prefork c1", count)
