"""Find the agents that users defined: by module, by file, or by entry point."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from celeriac.sessions.definition import AgentDefinition
from celeriac.sessions.errors import ConfigurationError

__all__ = ["ENTRY_POINT_GROUP", "load_agents"]

ENTRY_POINT_GROUP = "celeriac.agents"


def load_agents(places: str | None) -> Mapping[str, AgentDefinition]:
    """Load agent definitions.

    Args:
        places: Modules (``acme.agents``, or ``acme.agents:support`` for one name) or paths of Python
            files, separated by commas; None for the installed entry points of group ``celeriac.agents``.

    Returns:
        Agents by name, in the order found.

    Raises:
        ConfigurationError: A place cannot be loaded, holds no agent, or two agents share a name.
    """
    agents: dict[str, AgentDefinition] = {}
    for place, agent in _found(places):
        if agents.setdefault(agent.name, agent) is not agent:
            raise ConfigurationError(f"{place}: another agent is named {agent.name!r} already.")
    if not agents:
        raise ConfigurationError(
            "No agent is defined: set CELERIAC_AGENTS to a module or file with an AgentDefinition."
        )
    return agents


def _found(places: str | None) -> Iterator[tuple[str, AgentDefinition]]:
    if places is None:
        for entry in entry_points(group=ENTRY_POINT_GROUP):
            yield from _agents_in(entry.value, entry.load())
        return
    for place in filter(None, (part.strip() for part in places.split(","))):
        yield from _agents_in(place, _load(place))


def _load(place: str) -> object:
    if place.endswith(".py") or "/" in place:
        return _load_file(Path(place))
    name, _, attribute = place.partition(":")
    sys.path[:0] = [path for path in [str(Path.cwd())] if path not in sys.path]
    try:
        module = importlib.import_module(name)
    except Exception as error:
        raise _unusable(place, error) from error
    if not attribute:
        return module
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise ConfigurationError(
            f"CELERIAC_AGENTS: module {name!r} has no {attribute!r}."
        ) from None


def _load_file(path: Path) -> ModuleType:
    if path.is_dir():
        path /= "agent.py"
    if not path.is_file():
        raise ConfigurationError(f"CELERIAC_AGENTS: there is no file {str(path)!r}.")
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    name = f"celeriac_agents_{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"CELERIAC_AGENTS: {str(path)!r} is no Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _unusable(str(path), error) from error
    return module


def _unusable(place: str, error: Exception) -> ConfigurationError:
    """Whatever the author's code raises, the setting that led there is named."""
    told = str(error) if isinstance(error, ConfigurationError | ImportError) else repr(error)
    return ConfigurationError(f"CELERIAC_AGENTS: {place!r} cannot be imported: {told}")


def _agents_in(place: str, found: object) -> Iterator[tuple[str, AgentDefinition]]:
    values = vars(found).values() if isinstance(found, ModuleType) else [found]
    agents = {id(value): value for value in values if isinstance(value, AgentDefinition)}
    if not agents:
        raise ConfigurationError(f"CELERIAC_AGENTS: {place!r} holds no AgentDefinition.")
    for agent in agents.values():
        yield place, agent
