"""What a worker process needs to run steps: one of each, made lazily after any fork."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Mapping

from celeriac.connectors.models import ModelClients
from celeriac.connectors.toolset import Toolset, build_toolset
from celeriac.sessions.definition import AgentDefinition
from celeriac.sessions.errors import DefinitionError
from celeriac.sessions.model_choice import allowed_models
from celeriac.sessions.registry import load_agents
from celeriac.sessions.settings import Settings, load_settings
from celeriac.sessions.store.lives import Lives
from celeriac.sessions.store.sessions import SessionStore
from celeriac.sessions.tools import CachingToolSource, DefinedToolSource
from celeriac.tasks.celery import app
from celeriac.tasks.dispatch import open_store
from celeriac.tasks.janitor import Janitor
from celeriac.tasks.leases import LeaseKeeper
from celeriac.tasks.life import Life, record_of_this_process
from celeriac.tasks.loop import LoopThread
from celeriac.tasks.tracing import open_tracing

__all__ = [
    "Runtime",
    "load_worker_agents",
    "name_worker",
    "require_allowed_models",
    "runtime",
]


class Runtime:
    """The parts of one process.

    Args:
        settings: The settings.
        agents: The agents of this worker.
        worker: Name of this worker.
    """

    def __init__(
        self, settings: Settings, agents: Mapping[str, AgentDefinition], worker: str
    ) -> None:
        self.settings = settings
        self.agents = agents
        self.store: SessionStore = open_store(settings, app)
        self.loop = LoopThread()
        self.janitor = Janitor()
        self.models = ModelClients()
        self.tracing = open_tracing(settings)
        self.leases = LeaseKeeper(self.store, settings.lease_seconds)
        self.worker = worker
        # A process id comes again; nobody else will ever be this owner.
        self.owner = f"{worker}/{os.getpid()}/{secrets.token_hex(4)}"
        self.lives = Lives(self.store.client, self.store.direct)
        record = record_of_this_process(worker, settings.lease_seconds)
        self.life = Life(self.lives, self.owner, record)
        self.life.start()
        self.stopping = threading.Event()
        """Set once this worker was asked to stop; known to its main process only."""
        self._toolsets: dict[str, Toolset] = {}

    def toolset(self, agent: AgentDefinition, *, anew: str | None = None) -> Toolset:
        """Return the agent's tools as they are now; plain ones never change within a process.

        Args:
            agent: The agent.
            anew: The source of a tool that a person decided about: what it remembers is not enough.
        """
        known = self._toolsets.get(agent.name)
        if known is None or agent.tool_sources:
            known = self.loop.run(build_toolset(agent, anew=anew, previous=known))
            self._toolsets[agent.name] = known
        return known

    def close_sources(self) -> None:
        """Close what tool sources hold open; for the end of the process."""
        for agent in self.agents.values():
            for source in agent.tool_sources:
                if isinstance(source, CachingToolSource):
                    self.loop.run(source.aclose())

    def models_of(self, agent: AgentDefinition) -> tuple[str, ...]:
        """Return the models an agent may use, the default first."""
        default = self.settings.model if agent.harness is None else None
        return allowed_models(agent.models, default)


class _Process:
    """State of this process; a forked child makes its own runtime."""

    agents: Mapping[str, AgentDefinition] | None = None
    worker = f"worker@{socket.gethostname()}"
    runtimes: dict[int, Runtime] = {}  # noqa: RUF012 - by process id
    lock = threading.Lock()


def load_worker_agents(settings: Settings) -> Mapping[str, AgentDefinition]:
    """Load the agents once, before any fork.

    Raises:
        ConfigurationError: There is none, or a definition is wrong.
    """
    if _Process.agents is None:
        agents = load_agents(settings.agents)
        for agent in agents.values():
            if agent.harness is None:
                require_allowed_models(agent, settings.model)
            for source in agent.tool_sources:
                if isinstance(source, DefinedToolSource):
                    source.start()
        _Process.agents = agents
    return _Process.agents


def require_allowed_models(agent: AgentDefinition, default: str | None) -> None:
    """Refuse settings and clients for models that the agent does not have: most likely a name is misspelt.

    Args:
        agent: The agent.
        default: The default of this worker, if any.

    Raises:
        DefinitionError: There are some; the message names one, and the models that there are.
    """
    allowed = allowed_models(agent.models, default)
    by_model = agent.model_settings if isinstance(agent.model_settings, Mapping) else {}
    for what, names in (("model_settings", by_model), ("model_clients", agent.model_clients)):
        for name in names:
            if name not in allowed:
                raise DefinitionError(
                    f"agent {agent.name}: `{what}` names the model {name!r}, which is none of its models "
                    f"({', '.join(allowed)})"
                )


def name_worker(name: str) -> None:
    """Set this worker's name, as claims and pages show it."""
    _Process.worker = name.replace(" ", "_").replace("#", "_")


def runtime() -> Runtime:
    """Return the runtime of this process."""
    pid = os.getpid()
    found = _Process.runtimes.get(pid)
    if found is not None:
        return found
    with _Process.lock:
        found = _Process.runtimes.get(pid)
        if found is None:
            settings = load_settings()
            found = Runtime(settings, load_worker_agents(settings), _Process.worker)
            _Process.runtimes[pid] = found
    return found
