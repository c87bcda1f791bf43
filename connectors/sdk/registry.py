"""Find connectors by name: installed packages name theirs in the entry point group ``celeriac.connectors``."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from celeriac.connectors.sdk.connector import Connector
from celeriac.sessions.errors import DefinitionError

__all__ = ["ENTRY_POINT_GROUP", "connector_named", "connector_names"]

ENTRY_POINT_GROUP = "celeriac.connectors"


def connector_names() -> tuple[str, ...]:
    """Return the names of all installed connectors."""
    return tuple(sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)}))


@cache
def connector_named(name: str) -> type[Connector]:
    """Return the connector of a name.

    Raises:
        DefinitionError: None is installed, two are, or its manifest cannot be used.
    """
    found = list(entry_points(group=ENTRY_POINT_GROUP, name=name))
    if not found:
        known = ", ".join(connector_names()) or "none"
        raise DefinitionError(f"there is no connector {name!r}; installed are: {known}")
    if len({entry.value for entry in found}) > 1:
        values = ", ".join(sorted(entry.value for entry in found))
        raise DefinitionError(f"several packages bring a connector {name!r}: {values}")
    try:
        connector = found[0].load()
    except ImportError as error:
        raise DefinitionError(f"the connector {name!r} cannot be imported: {error}") from error
    if not (isinstance(connector, type) and issubclass(connector, Connector)):
        raise DefinitionError(f"{found[0].value} is no subclass of Connector")
    if connector.manifest.name != name:
        raise DefinitionError(
            f"{found[0].value} is registered as {name!r}, but its manifest says {connector.manifest.name!r}"
        )
    return connector
