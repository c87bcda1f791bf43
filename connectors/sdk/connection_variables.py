"""Connections in variables of the environment, as deployments set them.

``CELERIAC_CONNECTION_SHOP_CONNECTOR=stripe`` makes a connection ``shop``; its fields follow, in capitals:
``CELERIAC_CONNECTION_SHOP_SECRET_KEY``. A field that is no text holds JSON. ``…_SECRET_KEY_FILE`` names a file that holds
the value instead; that is read again before each call, a variable cannot change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from celeriac.connectors.sdk.connector import Connector
from celeriac.connectors.sdk.manifest import snake_case
from celeriac.connectors.sdk.raw_connection import RawConnection
from celeriac.connectors.sdk.registry import connector_named
from celeriac.connectors.sdk.secrets import Secret
from celeriac.sessions.errors import ConfigurationError, DefinitionError

__all__ = ["ConnectionVariables", "variables_of"]

_PREFIX = "CELERIAC_CONNECTION_"
_CONNECTOR = "_CONNECTOR"
_FILE = "_FILE"
_LARGEST_BYTES = 64 * 1024


class ConnectionVariables:
    """The connections of the environment.

    Args:
        connections: By name of a connection: its variables by what follows the connection's name.
    """

    def __init__(self, connections: Mapping[str, Mapping[str, str]]) -> None:
        self._connections = connections

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the connections."""
        return tuple(self._connections)

    def read(self, name: str) -> RawConnection | None:
        """Return a connection.

        Raises:
            ConfigurationError: A variable is unknown or holds something wrong; the message names it.
        """
        variables = self._connections.get(name)
        if variables is None:
            return None
        prefix = f"{_PREFIX}{name.upper()}_"
        try:
            connector = connector_named(variables["CONNECTOR"])
        except DefinitionError as error:
            raise ConfigurationError(f"{prefix}CONNECTOR: {error}") from error
        configuration: dict[str, JsonValue] = {}
        credentials: dict[str, Secret] = {}
        settings, secrets = _fields(connector, "configuration"), _fields(connector, "credentials")
        for variable, value in variables.items():
            plain = variable.removesuffix(_FILE)
            if variable == "CONNECTOR":
                continue
            if variable in settings:
                field, schema = settings[variable]
                configuration[field] = _value(prefix + variable, value, schema)
            elif variable in secrets:
                credentials[secrets[variable][0]] = Secret(value)
            elif plain in secrets:
                credentials[secrets[plain][0]] = Secret(_read_file(prefix + variable, value))
            else:
                known = ", ".join(prefix + field for field in (*settings, *secrets))
                raise ConfigurationError(f"{prefix}{variable} is unknown; known are: {known}")
        return RawConnection(f"{prefix}*", variables["CONNECTOR"], configuration, credentials)


def variables_of(environment: Mapping[str, str]) -> ConnectionVariables:
    """Collect the connections of an environment.

    Raises:
        ConfigurationError: A variable belongs to no connection.
    """
    found = {name: value for name, value in environment.items() if name.startswith(_PREFIX)}
    pattern = re.compile(rf"{_PREFIX}([A-Z][A-Z0-9_]{{0,39}}){_CONNECTOR}")
    names = [match[1] for name in found if (match := pattern.fullmatch(name))]
    connections: dict[str, dict[str, str]] = {name.lower(): {} for name in names}
    for variable, value in found.items():
        rest = variable.removeprefix(_PREFIX)
        # SHOP_EU_… is of the connection SHOP_EU when there is one.
        owner = max((name for name in names if rest.startswith(f"{name}_")), key=len, default=None)
        if owner is None:
            raise ConfigurationError(
                f"{variable} belongs to no connection; set {_PREFIX}<NAME>{_CONNECTOR} to its connector"
            )
        connections[owner.lower()][rest.removeprefix(f"{owner}_")] = value
    return ConnectionVariables(connections)


def _fields(
    connector: type[Connector], which: str
) -> dict[str, tuple[str, Mapping[str, JsonValue]]]:
    schema: Mapping[str, JsonValue] = getattr(connector.manifest, which)
    properties = schema.get("properties")
    return {
        snake_case(field).upper(): (field, inner)
        for field, inner in (properties.items() if isinstance(properties, dict) else ())
        if isinstance(inner, dict)
    }


def _value(variable: str, value: str, schema: Mapping[str, JsonValue]) -> JsonValue:
    if schema.get("type") == "string":
        return value
    try:
        parsed: JsonValue = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{variable} must hold JSON: {error}") from None
    return parsed


def _read_file(variable: str, name: str) -> str:
    try:
        with Path(name).open("rb") as file:
            text = file.read(_LARGEST_BYTES + 1)
        if len(text) > _LARGEST_BYTES:
            raise ConfigurationError(f"{variable}: {name} is larger than 64 kB")
        return text.decode().removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{variable}: {name} cannot be read: {error}") from error
