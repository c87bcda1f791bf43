"""Sessions whose steps run in this process, one after the other, with a real store in between.

Before each step nothing is left of the process that ran the one before: the kit is loaded anew, so that an agent,
its model and its tools are other objects each time, as on another machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from celeriac.sessions.calls import CallRecord, CallStatus, DecisionVerb
from celeriac.sessions.client import SessionClient
from celeriac.sessions.events import EventType, LiveEvent
from celeriac.sessions.inputs import WokenUp
from celeriac.sessions.messages import Role
from celeriac.sessions.registry import load_agents
from celeriac.sessions.settings import Settings
from celeriac.sessions.snapshot import Snapshot
from celeriac.sessions.state import Step, StepName
from celeriac.sessions.store.keys import SessionKeys
from celeriac.sessions.store.lists import SessionLists
from celeriac.sessions.store.reader import SessionReader
from celeriac.tasks import runtime as runtimes, step as steps
from celeriac.tasks.announce import _agent_info
from celeriac.tasks.call_single_attempt_tool import call_single_attempt_tool
from celeriac.tasks.call_tool import call_tool
from celeriac.tasks.compact_context import compact_context
from celeriac.tasks.run_model import run_model
from celeriac.tasks.runtime import Runtime
from tests.harness.kits import Kit
from tests.store.announced import SEEN_AT, WORKER

__all__ = ["Driver"]

_TASKS: dict[StepName, Callable[[str, str, str | None], None]] = {
    StepName.RUN_MODEL: run_model,
    StepName.COMPACT_CONTEXT: compact_context,
    StepName.CALL_TOOL: call_tool,
    StepName.CALL_SINGLE_ATTEMPT_TOOL: call_single_attempt_tool,
}


class Driver:
    """Sessions of one kit's agents.

    Args:
        kit: The kit.
        settings: Where the store is.
        root: Where the script and the tools leave their notes.
    """

    def __init__(self, kit: Kit, settings: Settings, root: Path) -> None:
        self.kit = kit
        self._root = root
        self.runtime = Runtime(settings, load_agents(str(kit.path)), "here@test")
        runtimes._Process.runtimes[os.getpid()] = self.runtime
        self.client = SessionClient(self.runtime.store, settings)
        infos = [
            _agent_info(self.runtime, one, self.runtime.toolset(one), SEEN_AT)
            for one in self.runtime.agents.values()
        ]
        store = self.runtime.store
        SessionLists(store, SessionReader(store, settings), settings).announce(WORKER, infos)

    def restart(self) -> None:
        """Begin as a new process does: nothing is remembered."""
        self.runtime.agents = load_agents(str(self.kit.path))
        self.runtime._toolsets.clear()

    def close(self) -> None:
        self.runtime.life.end()
        runtimes._Process.runtimes.pop(os.getpid(), None)

    # --- sessions

    def start(self, text: str, agent: str | None = None) -> str:
        session_id = self.client.create_session(
            agent=agent or self.kit.name, message=text, model=None
        ).session_id
        self.run(session_id)
        return session_id

    def say(self, session_id: str, text: str) -> None:
        self.client.send_message(session_id, text)
        self.run(session_id)

    def ready(self, session_id: str) -> list[Step]:
        state = self.runtime.store.load(session_id).state
        return [step for step in state.steps if not step.name.waits and not step.timing.claimed]

    def run(self, session_id: str, *, most: int = 100) -> None:
        """Run steps until none is ready, each in a process of its own."""
        for _ in range(most):
            steps = self.ready(session_id)
            if not steps:
                return
            self.restart()
            _TASKS[steps[0].name](session_id, steps[0].id, steps[0].call_id)

    def decide(self, session_id: str, call: CallRecord, verb: DecisionVerb) -> None:
        self.client.decide(session_id, call.id, verb, by="ana", digest=call.digest)
        self.run(session_id)

    # --- looking

    def snapshot(self, session_id: str) -> Snapshot:
        return self.client.snapshot(session_id)

    def awaiting(self, session_id: str) -> list[CallRecord]:
        calls = self.snapshot(session_id).calls
        return [call for call in calls if call.status is CallStatus.AWAITING_APPROVAL]

    def answer(self, session_id: str) -> str:
        said = [one for one in self.snapshot(session_id).messages if one.role is Role.ASSISTANT]
        return said[-1].text

    def steps(self, session_id: str) -> list[str]:
        return [step.name.value for step in self.client.steps(session_id)]

    def notes(self, *what: str) -> list[tuple[str, object]]:
        """What tools and models left, of these kinds."""
        path = self._root / "notes"
        lines = path.read_text().splitlines() if path.exists() else []
        found: Sequence[tuple[str, int, object]] = [json.loads(line) for line in lines]
        return [(one[0], one[2]) for one in found if one[0] in what]

    def requests(self) -> list[list[str]]:
        """What the model was asked, a list of messages each time."""
        return [
            list(map(str, value)) for _, value in self.notes("model") if isinstance(value, list)
        ]

    def live_events(self, session_id: str) -> list[LiveEvent]:
        raw = cast(
            "list[tuple[bytes, dict[bytes, bytes]]]",
            self.runtime.store.client.xrange(self.keys(session_id).events),
        )
        found = [json.loads(fields[b"e"]) for _, fields in raw]
        return [LiveEvent(EventType(one["type"]), one["data"]) for one in found]

    # --- harm

    def keys(self, session_id: str) -> SessionKeys:
        return SessionKeys.of(session_id)

    @contextmanager
    def lost_commit(self) -> Iterator[None]:
        """The process ends when it would commit its step."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(steps, "commit_until_answered", lambda *_: None)
            yield

    def lease_is_over(self, session_id: str) -> None:
        """Its worker was lost: another one takes the step up."""
        state = self.runtime.store.load(session_id).state
        owners = {step.timing.owner for step in state.steps if step.timing.claimed}
        self.runtime.store.apply(session_id, WokenUp(dead_owners=dict.fromkeys(owners, "it died")))
