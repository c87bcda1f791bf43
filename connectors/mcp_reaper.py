"""A program beside each worker process that starts MCP servers: it ends them when the worker is gone.

A server that a killed worker leaves behind sees the end of its input and should exit; this makes sure of it,
and of whatever it has started itself. It reads lines ``+<process group>`` and ``-<process group>`` from the
worker until their end, which comes with the worker's, however that died. It imports nothing of Celeriac, so
that it is small.
"""

from __future__ import annotations

import os
import select
import signal
import sys

GRACE_SECONDS = 2.0


def main() -> None:
    """Read until the worker is gone, then end every group that is left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        group = int(line[1:])
        if line.startswith(b"+"):
            groups.add(group)
        else:
            groups.discard(group)
    # By itself, by request, by force.
    for request in (None, signal.SIGTERM, signal.SIGKILL):
        groups = {group for group in groups if _send(group, request)}
        _await_end(groups)


def _send(group: int, number: signal.Signals | None) -> bool:
    try:
        os.killpg(group, number or 0)
    except OSError:
        return False
    return True


def _await_end(groups: set[int]) -> None:
    for _ in range(int(GRACE_SECONDS / 0.05)):
        if not any(_send(group, None) for group in groups):
            return
        select.select([], [], [], 0.05)


if __name__ == "__main__":
    main()
