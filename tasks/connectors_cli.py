"""What ``celeriac connectors …`` does."""

from __future__ import annotations

import asyncio
import json
import textwrap
from collections.abc import Sequence
from pathlib import Path

import click
from pydantic import JsonValue

from celeriac.connectors.sdk.check import check_connection
from celeriac.connectors.sdk.connections import SETTING, Connections
from celeriac.connectors.sdk.manifest import Manifest, Operation
from celeriac.connectors.sdk.registry import connector_named, connector_names
from celeriac.connectors.sdk.scaffold import write_scaffold
from celeriac.sessions.errors import ConfigurationError, DefinitionError
from celeriac.sessions.settings import Settings
from celeriac.tasks.cli_common import plain

__all__ = ["check_connections", "lint_manifests", "list_connectors", "write_connector"]

_WIDTH = 96


def list_connectors(settings: Settings, *, as_json: bool) -> int:
    """Write the installed connectors and the connections.

    Args:
        settings: The settings.
        as_json: Print JSON instead of text.

    Returns:
        The exit code: 1 when a connector cannot be used.

    Raises:
        ConfigurationError: The connections cannot be read.
    """
    connections = Connections(settings.connector_config_file)
    manifests: dict[str, Manifest] = {}
    broken: dict[str, str] = {}
    for name in connector_names():
        try:
            manifests[name] = connector_named(name).manifest
        except DefinitionError as error:
            broken[name] = str(error)
    if as_json:
        value: JsonValue = {
            "connectors": {name: _as_json(manifest) for name, manifest in manifests.items()},
            "broken": dict(broken),
            "connections": list(connections.names),
        }
        click.echo(json.dumps(value, indent=2, ensure_ascii=False))
        return 1 if broken else 0
    for manifest in manifests.values():
        _show(manifest)
    for name, why in broken.items():
        click.echo(f"{click.style('✗', fg='red')} {name}: {why}\n")
    named = ", ".join(connections.names)
    click.echo(
        f"Connections: {named or f'none ({SETTING} is not set, and no CELERIAC_CONNECTION_… variable)'}"
    )
    return 1 if broken else 0


def _exposed(manifest: Manifest) -> list[Operation]:
    return [operation for operation in manifest.operations if operation.agent.exposed]


def _show(manifest: Manifest) -> None:
    title = click.style(manifest.display_name, bold=True)
    click.echo(f"{title} {manifest.version}  {manifest.description}")
    for operation in _exposed(manifest):
        effect = click.style(operation.effect.value, bold=True)
        asks = "asks first" if operation.agent.approval else "runs at once"
        click.echo(f"  {manifest.name}.{operation.id}  {effect}, {asks}")
        click.echo(
            textwrap.fill(
                operation.description, _WIDTH, initial_indent="    ", subsequent_indent="    "
            )
        )
    click.echo()


def _as_json(manifest: Manifest) -> JsonValue:
    return {
        "name": manifest.display_name,
        "version": manifest.version,
        "description": manifest.description,
        "operations": {
            operation.id: {
                "description": operation.description,
                "effect": operation.effect.value,
                "approval_recommended": operation.agent.approval is not None,
            }
            for operation in _exposed(manifest)
        },
    }


def check_connections(settings: Settings, names: Sequence[str]) -> int:
    """Check connections one after the other, and write what was found of each.

    Args:
        settings: The settings.
        names: Names of connections; none means all.

    Returns:
        The exit code: 1 when one cannot be used, or there is none.

    Raises:
        ConfigurationError: The connections cannot be read.
    """
    connections = Connections(settings.connector_config_file)
    wanted = names or connections.names
    if not wanted:
        click.echo(
            f"There is no connection: set {SETTING} to a file, or CELERIAC_CONNECTION_<NAME>_CONNECTOR.",
            err=True,
        )
        return 1
    return max(_check(connections, name) for name in wanted)


def _check(connections: Connections, name: str) -> int:
    try:
        well, said = _checked(connections, name)
    except ConfigurationError as error:
        well, said = False, str(error)
    mark = click.style("✓", fg="green") if well else click.style("✗", fg="red")
    click.echo(f"{mark} {click.style(name, bold=True)}: {plain(said)}")
    return 0 if well else 1


def _checked(connections: Connections, name: str) -> tuple[bool, str]:
    connection = connections.get(name)
    if connection is None:
        known = ", ".join(connections.names) or "none"
        return False, f"there is no connection of this name; there are: {known}"
    return asyncio.run(check_connection(connection))


def lint_manifests(files: Sequence[Path]) -> int:
    """Check manifest files and write what is wrong with each.

    Args:
        files: The files.

    Returns:
        The exit code: 1 when one has a fault.
    """
    code = 0
    for file in files:
        try:
            manifest = Manifest.of_file(file)
        except DefinitionError as error:
            click.echo(f"{click.style('✗', fg='red')} {error}")
            code = 1
        else:
            count = len(manifest.operations)
            click.echo(
                f"{click.style('✓', fg='green')} {file}: {manifest.name}, {count} operations"
            )
    return code


def write_connector(name: str, folder: Path | None) -> int:
    """Write a connector to start from, and say what to do next.

    Args:
        name: Its name.
        folder: Where to write it; None is ``celeriac_<name>`` here.

    Returns:
        The exit code.

    Raises:
        DefinitionError: The name is malformed, or the folder exists.
    """
    made = write_scaffold(name, folder or Path(f"celeriac_{name}"))
    click.echo(f"{made} holds a connector {name!r} with a query, a mutation and their tests. Next:")
    click.echo(f"  pip install -e {made}\n  pytest {made}\n  celeriac connectors list")
    return 0
