"""Tell everybody that a worker is there, and which agents it knows.

On a thread of its own: it lists tools, and a source of them may take its time.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version

from celery.worker import state as celery_state

from celeriac.connectors.model_facts import facts_of
from celeriac.connectors.toolset import Toolset
from celeriac.sessions.definition import AgentDefinition
from celeriac.sessions.errors import StoreUnavailable
from celeriac.sessions.snapshot import AgentInfo, ModelInfo, ToolInfo, WorkerInfo
from celeriac.sessions.store.connection import store_errors
from celeriac.sessions.store.lists import SessionLists
from celeriac.sessions.store.reader import SessionReader
from celeriac.tasks.runtime import Runtime

__all__ = ["Announcer"]

_log = logging.getLogger(__name__)

_INTERVAL_SECONDS = 5.0


class Announcer:
    """Announces this worker every few seconds until it is stopped.

    Args:
        here: This process's parts.
        queues: Says which queues this worker consumes just now.
        worker: This worker's name.
        concurrency: Steps that it runs at a time.
    """

    def __init__(
        self, here: Runtime, queues: Callable[[], Sequence[str]], worker: str, concurrency: int
    ) -> None:
        self._here = here
        self._queues = queues
        self._worker = worker
        self._concurrency = concurrency
        self._lists = SessionLists(
            here.store, SessionReader(here.store, here.settings), here.settings
        )
        self._models: tuple[ModelInfo, ...] = ()
        self._stop = threading.Event()
        self.stuck = False
        """Whether this worker takes nothing although work is queued; it is told to everybody."""

    def run(self) -> None:
        """Announce at every interval; an outage of the store is waited out."""
        while True:
            began = time.monotonic()
            try:
                self._announce()
            except StoreUnavailable as error:
                _log.warning("This worker cannot be announced now: %s", error)
            except Exception:  # noqa: BLE001 - without it nobody would know of this worker any more
                _log.exception("This worker could not be announced")
            if self._stop.wait(max(0.0, began + _INTERVAL_SECONDS - time.monotonic())):
                return

    def stop(self) -> None:
        """End `run` soon."""
        self._stop.set()

    def _announce(self) -> None:
        agents = self._here.agents
        self._models = self._models or _model_infos(self._here)
        # First, for it may take its time.
        tools = {name: self._here.toolset(one) for name, one in agents.items()}
        with store_errors():
            seconds, micros = self._here.store.client.time()
        at = seconds * 1000 + micros // 1000
        worker = WorkerInfo(
            name=self._worker,
            seen_at=at,
            pid=os.getpid(),
            host=socket.gethostname(),
            queues=tuple(self._queues()),
            concurrency=self._concurrency,
            version=version("celeriac"),
            running=len(celery_state.active_requests),
            stuck=self.stuck,
            models=self._models,
        )
        self._lists.announce(
            worker, [_agent_info(self._here, one, tools[name], at) for name, one in agents.items()]
        )


def _agent_info(here: Runtime, agent: AgentDefinition, toolset: Toolset, at: int) -> AgentInfo:
    models = here.models_of(agent)
    return AgentInfo(
        name=agent.name,
        description=agent.description,
        models=models,
        default_model=models[0],
        tools=_tool_infos(toolset),
        missing_tools=toolset.unlisted,
        plan_mode_enabled=agent.plan_mode_enabled,
        announced_at=at,
    )


def _model_infos(here: Runtime) -> tuple[ModelInfo, ...]:
    agents = here.agents.values()
    names = [model for agent in agents for model in here.models_of(agent)]
    own = {
        model
        for agent in agents
        for model in here.models_of(agent)
        if agent.harness is not None or model in agent.model_clients
    }
    return facts_of(names, own)


def _tool_infos(toolset: Toolset) -> tuple[ToolInfo, ...]:
    words = {True: "always", False: "never"}
    return tuple(
        ToolInfo(
            name=tool.name,
            description=tool.description,
            effect=tool.effect.value,
            approval=(
                words[tool.approval]
                if isinstance(tool.approval, bool)
                else "depends on the arguments"
            ),
            source=tool.source,
            original_name=tool.original_name,
        )
        for tool in toolset.definitions
    )
