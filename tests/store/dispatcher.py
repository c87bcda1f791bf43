"""A dispatcher that sends nothing and remembers everything."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from celeriac.sessions.state import Step, StepName


@dataclass(frozen=True)
class Sent:
    session_id: str
    step_id: str
    name: StepName
    call_id: str | None


class RecordingDispatcher:
    """Remembers the steps that were sent, in `sent`.

    Args:
        push_to: A list that gets ``<session> <step>`` within the commit, as where broker and store are
            one server; None sends after the commit, as with any other broker.
    """

    def __init__(self, push_to: str | None = None) -> None:
        self._push_to = push_to
        self._lock = threading.Lock()
        self.sent: list[Sent] = []

    def writes(self, session_id: str, steps: Sequence[Step]) -> Sequence[tuple[str, bytes]]:
        if self._push_to is None:
            return ()
        return [(self._push_to, f"{session_id} {step.id}".encode()) for step in steps]

    def after_commit(self, session_id: str, steps: Sequence[Step]) -> None:
        with self._lock:
            self.sent += [Sent(session_id, step.id, step.name, step.call_id) for step in steps]
