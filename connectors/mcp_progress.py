"""A running call's progress: shown now and then, and a sign of life each time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

__all__ = ["Progress"]

_CLOSE_SECONDS = 2.0


class Progress:
    """Shows the latest progress, one at a time, in a thread: it goes to the store.

    Args:
        show: Shows a text; it may block and fail.
        alive: Called at each report.
    """

    def __init__(self, show: Callable[[str], None], alive: Callable[[], None]) -> None:
        self._show = show
        self._alive = alive
        self._latest: str | None = None
        self._showing: asyncio.Task[None] | None = None

    async def came(self, progress: float, total: float | None, message: str | None) -> None:
        """The server reported progress."""
        self._alive()
        self._latest = _words(progress, total, message)
        if self._showing is None or self._showing.done():
            self._showing = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._latest is not None:
            text, self._latest = self._latest, None
            with contextlib.suppress(Exception):  # best effort
                await asyncio.to_thread(self._show, text)

    async def close(self) -> None:
        """Wait a moment until the latest is shown."""
        if self._showing is not None:
            await asyncio.wait([self._showing], timeout=_CLOSE_SECONDS)


def _words(progress: float, total: float | None, message: str | None) -> str:
    share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
    return f"{share}: {message}" if message else share
