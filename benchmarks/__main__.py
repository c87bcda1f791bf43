"""``python -m benchmarks``: measure everything and print a table per fsync policy."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys

from benchmarks import durable, harnesses, kills, mcp_calls, model_calls, soak, stock, streams
from benchmarks.machinery import bench, print_table


def main() -> None:
    """Run the benchmarks that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the work; rougher numbers")
    parser.add_argument(
        "--fsync", choices=("everysec", "always"), help="only this policy; default both"
    )
    parser.add_argument(
        "--only",
        choices=("stock", "durable", "harnesses", "kills", "mcp", "models", "streams", "soak"),
        help="only this part; default all but soak",
    )
    options = parser.parse_args()
    # Ended from outside, it still stops its store and workers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    scale = 0.2 if options.quick else 1.0
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.platform()}")
    if options.only == "soak":
        for pool in ("threads", "prefork"):
            with bench("everysec") as place:
                rows = soak.measure(place, pool, scale=scale)
            print_table(f"A thousand turns through one worker, pool {pool}", rows)
        return
    policy_free = {
        "harnesses": ("Adapters of other frameworks", harnesses.measure),
        "mcp": ("Calls of MCP tools over open sessions", mcp_calls.measure),
        "models": ("Model calls through litellm", model_calls.measure),
        "streams": ("Event streams of one web process, gthread", streams.measure),
    }
    for part, (title, measure) in policy_free.items():
        if options.only in {None, part}:
            print_table(title, measure(scale=scale))
    if options.only in policy_free:
        return
    for fsync in [options.fsync] if options.fsync else ("everysec", "always"):
        if options.only in {None, "stock"}:
            with bench(fsync) as place:
                results = stock.measure(place, hops=int(2000 * scale))
            print_table(f"Stock Celery no-op chain, appendfsync {fsync}", stock.rows(results))
        if options.only in {None, "durable"}:
            with bench(fsync) as place:
                rows = durable.measure(place, scale=scale)
            print_table(f"Durable steps, appendfsync {fsync}", rows)
        if options.only in {None, "kills"}:
            with bench(fsync) as place:
                rows = kills.measure(place, rounds=max(3, round(7 * scale)))
            print_table(f"Kills, appendfsync {fsync}", rows)


if __name__ == "__main__":
    main()
