"""A watch over the sessions of the fake client."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from celeriac.sessions.store.watch import EventWatch
from tests.web.fake_session import FakeSession


class FakeWatch(EventWatch):
    """Waits in memory as `EventWatch` does in the store."""

    def __init__(self, sessions: Mapping[str, FakeSession], changed: threading.Condition) -> None:
        self._sessions = sessions
        self._changed = changed
        self._interrupted = False

    def wait(self, positions: Mapping[str, str], *, block_ms: int) -> dict[str, str]:
        with self._changed:
            self._changed.wait_for(
                lambda: self._interrupted or self._news(positions), block_ms / 1000
            )
            self._interrupted = False
            return self._news(positions)

    def interrupt(self) -> None:
        with self._changed:
            self._interrupted = True
            self._changed.notify_all()

    def close(self) -> None:
        pass

    def _news(self, positions: Mapping[str, str]) -> dict[str, str]:
        lengths = {sid: len(self._sessions[sid].events) for sid in positions}
        return {
            sid: f"{lengths[sid]}-0"
            for sid, position in positions.items()
            if lengths[sid] > int(position.split("-", maxsplit=1)[0])
        }
