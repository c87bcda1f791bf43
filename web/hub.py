"""The hub of a web process: one thread and one connection to the store notice the news of all streams.

It only rings. What is new each stream reads for itself, from its own position: so a slow reader holds
nobody, nothing is kept for it here, and what it cannot resume is found where it reads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from celeriac.sessions.errors import StoreUnavailable

__all__ = ["EventHub", "Watch", "WatchSource"]

# Each wait names all watched sessions. This much pause for each keeps the work of both sides in bounds
# when there are thousands, and one alone is told at once.
_PAUSE_PER_SESSION = 20e-6
_PAUSE_WITHOUT_STORE = 0.5


class Watch(Protocol):
    """What waits in the store; `EventWatch` is the real one."""

    def wait(self, positions: Mapping[str, str], *, block_ms: int) -> dict[str, str]:
        """Wait for news of sessions; see `EventWatch.wait`."""

    def interrupt(self) -> None:
        """End a wait that is going on."""

    def close(self) -> None:
        """Free what the wait holds."""


class WatchSource(Protocol):
    """Where a watch comes from: the session client."""

    def event_watch(self) -> Watch:
        """Make a watch."""


@dataclass(slots=True)
class _Watched:
    position: str
    bells: set[threading.Event] = field(default_factory=set)


class EventHub:
    """Rings the streams of a process when their sessions have news.

    Its thread lives while there is a stream.

    Args:
        block: Longest wait inside the store, in seconds; also how long `close` takes to be noticed.
    """

    def __init__(self, block: float) -> None:
        self.block = block
        self._lock = threading.Condition()
        self._watched: dict[str, _Watched] = {}
        self._running: Watch | None = None
        self._closing = False

    def close(self) -> None:
        """Ring everybody soon. Takes no lock: it is called where a signal interrupted something."""
        self._closing = True

    @contextmanager
    def watch(
        self, source: WatchSource, session_id: str, position: str
    ) -> Iterator[threading.Event]:
        """Have a bell rung for a session within a ``with`` block.

        Args:
            source: Makes the watch, for the first stream.
            session_id: The session.
            position: Where its stream is.

        Yields:
            The bell. It is rung already, for what happened before; whoever hears it clears it, and then reads.
        """
        bell = threading.Event()
        bell.set()
        self._add(source, session_id, position, bell)
        try:
            yield bell
        finally:
            self._remove(session_id, bell)

    def _add(
        self, source: WatchSource, session_id: str, position: str, bell: threading.Event
    ) -> None:
        with self._lock:
            known = session_id in self._watched
            self._watched.setdefault(session_id, _Watched(position)).bells.add(bell)
            running = self._running
            if running is None:
                self._running = source.event_watch()
                threading.Thread(
                    target=self._run, args=(self._running,), name="celeriac-hub", daemon=True
                ).start()
        if running is not None and not known:
            running.interrupt()

    def _remove(self, session_id: str, bell: threading.Event) -> None:
        with self._lock:
            watched = self._watched[session_id]
            watched.bells.discard(bell)
            if not watched.bells:
                del self._watched[session_id]
                self._lock.notify_all()

    def _run(self, watch: Watch) -> None:
        try:
            while positions := self._positions():
                try:
                    news = watch.wait(positions, block_ms=int(self.block * 1000))
                except StoreUnavailable:
                    # Each stream tries for itself and ends; its reader is told why when it comes back.
                    self._ring(positions)
                    self._pause(_PAUSE_WITHOUT_STORE)
                    continue
                self._moved(news)
                self._pause(len(positions) * _PAUSE_PER_SESSION)
        finally:
            with self._lock:
                if self._running is watch:
                    self._running = None
            watch.close()

    def _pause(self, seconds: float) -> None:
        """Pause, unless there is nobody left to do it for."""
        with self._lock:
            self._lock.wait_for(lambda: not self._watched, seconds)

    def _positions(self) -> dict[str, str]:
        """Return what to wait for; nothing ends the thread, and the next stream starts another."""
        with self._lock:
            if self._watched and not self._closing:
                return {sid: watched.position for sid, watched in self._watched.items()}
            self._running = None
        self._ring(list(self._watched))
        return {}

    def _moved(self, news: Mapping[str, str]) -> None:
        with self._lock:
            for session_id, position in news.items():
                if session_id in self._watched:
                    self._watched[session_id].position = position
        self._ring(news)

    def _ring(self, session_ids: Iterable[str]) -> None:
        with self._lock:
            for session_id in session_ids:
                watched = self._watched.get(session_id)
                for bell in watched.bells if watched is not None else ():
                    bell.set()
