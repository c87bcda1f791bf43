"""Connections: which account of a provider a connector uses, from trusted configuration of the worker.

A connection is found in the file that ``CELERIAC_CONNECTOR_CONFIG_FILE`` names (`connection_file`), or in variables of
the environment (`connection_variables`). Its configuration is read once, at the start of the worker; its credentials are
read again before each call, so a rotated one is used without a restart.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import JsonValue

from celeriac.connectors.schemas import validator_of
from celeriac.connectors.sdk.connection_file import ConnectionFile
from celeriac.connectors.sdk.connection_variables import variables_of
from celeriac.connectors.sdk.connector import Connector
from celeriac.connectors.sdk.manifest import Manifest
from celeriac.connectors.sdk.raw_connection import ConnectionReader, RawConnection
from celeriac.connectors.sdk.registry import connector_named
from celeriac.connectors.sdk.secrets import Secret
from celeriac.sessions.errors import ConfigurationError, DefinitionError

__all__ = ["SETTING", "Connection", "Connections", "checked_connections"]

SETTING = "CELERIAC_CONNECTOR_CONFIG_FILE"


@dataclass(frozen=True, slots=True)
class Connection:
    """A checked connection. It holds no credential: those are read for each call."""

    name: str
    connector: type[Connector]
    configuration: Mapping[str, JsonValue]
    hosts: frozenset[str]
    place: str
    reader: ConnectionReader

    def credentials(self) -> Mapping[str, Secret]:
        """Read the credentials.

        Raises:
            ConfigurationError: They cannot be read, or are not what the manifest asks for.
        """
        raw = self.reader.read(self.name)
        if raw is None:
            raise ConfigurationError(f"connection {self.name!r} is no longer in {self.place}")
        _require_credentials(self.connector.manifest, self.name, raw)
        return raw.credentials


class Connections:
    """All connections that are written down, each checked when it is asked for.

    Args:
        file: The configuration file; None when there is none.
        environment: Variables of the environment; None for those of this process.

    Raises:
        ConfigurationError: The file cannot be used.
    """

    def __init__(self, file: Path | None, environment: Mapping[str, str] | None = None) -> None:
        self._file = None if file is None else ConnectionFile(file)
        self._variables = variables_of(os.environ if environment is None else environment)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all connections that are written down."""
        in_file = self._file.names if self._file else ()
        return tuple(sorted({*in_file, *self._variables.names}))

    @property
    def has_file(self) -> bool:
        """Whether a file was named."""
        return self._file is not None

    def get(self, name: str, *, connector: str | None = None) -> Connection | None:
        """Return a connection, checked.

        Args:
            name: Its name.
            connector: The connector that it must be of; None for whichever it names.

        Returns:
            The connection; None when nothing is written down of it.

        Raises:
            ConfigurationError: It stands in both places, is incomplete or wrong; the message names the field.
        """
        readers: list[ConnectionReader] = [self._variables, *([self._file] if self._file else [])]
        found = [(reader, raw) for reader in readers if (raw := reader.read(name)) is not None]
        if not found:
            return None
        if len(found) > 1:
            places = " and in ".join(raw.place for _, raw in found)
            raise ConfigurationError(f"connection {name!r} stands in {places}; keep one of them")
        reader, raw = found[0]
        if connector is not None and raw.connector != connector:
            raise ConfigurationError(
                f"{raw.place}: connection {name!r} is of the connector {raw.connector!r}; the agent uses it "
                f"for {connector!r}"
            )
        return _checked(name, raw, reader)


def _checked(name: str, raw: RawConnection, reader: ConnectionReader) -> Connection:
    try:
        connector = connector_named(raw.connector)
    except DefinitionError as error:
        raise ConfigurationError(f"{raw.place}: connection {name!r}: {error}") from error
    manifest = connector.manifest
    configuration = _with_defaults(manifest.configuration, raw.configuration)
    _require(
        manifest.configuration, configuration, f"{raw.place}: connection {name!r}: configuration"
    )
    _require_credentials(manifest, name, raw)
    try:
        hosts = _hosts(manifest, configuration)
        connector(configuration)
    except ConfigurationError as error:
        raise ConfigurationError(f"{raw.place}: connection {name!r}: {error}") from error
    return Connection(name, connector, configuration, hosts, raw.place, reader)


def _require_credentials(manifest: Manifest, name: str, raw: RawConnection) -> None:
    """Check credentials by the manifest.

    Raises:
        ConfigurationError: One is missing, empty or unknown; the message names it and no value.
    """
    where = f"{raw.place}: connection {name!r}: credentials"
    schema = manifest.credentials
    properties = schema.get("properties")
    required = schema.get("required")
    known = properties if isinstance(properties, dict) else {}
    for field in required if isinstance(required, list) else ():
        if not raw.credentials.get(str(field)):
            raise ConfigurationError(f"{where}.{field} is missing: {_described(known, str(field))}")
    for field, secret in raw.credentials.items():
        if field not in known:
            raise ConfigurationError(
                f"{where}.{field} is unknown; known are: {', '.join(known) or 'none'}"
            )
        value = secret.reveal()
        if not value or value != value.strip() or not value.isprintable():
            raise ConfigurationError(
                f"{where}.{field} is empty, or has blanks or line ends around or within it"
            )
        # The message of a validator quotes the value.
        if any(True for _ in validator_of(_object(known[field])).iter_errors(value)):
            raise ConfigurationError(f"{where}.{field} is malformed: {_described(known, field)}")


def _object(schema: JsonValue) -> dict[str, JsonValue]:
    return schema if isinstance(schema, dict) else {}


def _described(properties: Mapping[str, JsonValue], field: str) -> str:
    return str(_object(properties.get(field)).get("description", "see the connector's README"))


def _require(schema: Mapping[str, JsonValue], value: Mapping[str, JsonValue], where: str) -> None:
    errors = sorted(
        validator_of(schema).iter_errors(dict(value)), key=lambda error: error.json_path
    )
    if errors:
        error = errors[0]
        path = error.json_path.removeprefix("$")
        raise ConfigurationError(f"{where}{path}: {error.message[:300]}")


def _with_defaults(
    schema: Mapping[str, JsonValue], value: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    filled = dict(value)
    for field, inner in _object(schema.get("properties")).items():
        if field not in filled and isinstance(inner, dict) and "default" in inner:
            filled[field] = inner["default"]
    return filled


def _hosts(manifest: Manifest, configuration: Mapping[str, JsonValue]) -> frozenset[str]:
    hosts = {host.lower() for host in manifest.egress.hosts}
    for field in manifest.egress.from_configuration:
        value = configuration.get(field)
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                hosts.add(_host_of(field, str(one)))
    return frozenset(hosts)


def _host_of(field: str, value: str) -> str:
    if "://" not in value:
        return value.lower()
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"configuration.{field}: no URL ({error})") from None
    host = (parts.hostname or "").lower()
    if not host:
        raise ConfigurationError(f"configuration.{field}: the URL has no host")
    shown = f"[{host}]" if ":" in host else host
    standard = {"http": 80, "https": 443}.get(parts.scheme)
    return shown if port in {None, standard} else f"{shown}:{port}"


def checked_connections(
    connections: Connections, wanted: Iterable[tuple[str, str]]
) -> Mapping[str, Connection]:
    """Return those of the wanted connections that are written down.

    Args:
        connections: All there are.
        wanted: Names, each with the name of its connector.

    Raises:
        ConfigurationError: One is incomplete or wrong, or is missing in the file that was named.
    """
    found: dict[str, Connection] = {}
    for name, connector in wanted:
        connection = connections.get(name, connector=connector)
        if connection is not None:
            found[name] = connection
        elif connections.has_file:
            raise ConfigurationError(
                f"{SETTING}: the file has no connection {name!r}, which an agent uses for {connector}; add it "
                f"there or as variables CELERIAC_CONNECTION_{name.upper()}_…"
            )
    return found
