"""``celeriac connectors list | check | lint | schema | new``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from celeriac.tasks.cli_common import json_option

__all__ = ["COMMANDS"]

_FILE = click.Path(dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.group()
def connectors() -> None:
    """Connectors: operations of providers that agents can have as tools."""


@connectors.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """List the installed connectors with their operations, effects and approvals, and the connections."""
    from celeriac.sessions.settings import load_settings  # noqa: PLC0415
    from celeriac.tasks.connectors_cli import list_connectors  # noqa: PLC0415

    sys.exit(list_connectors(load_settings(), as_json=as_json))


@connectors.command()
@click.argument("names", nargs=-1)
def check(names: tuple[str, ...]) -> None:
    """Check connections (all, or those named): their configuration, and whether the provider lets us in."""
    from celeriac.sessions.settings import load_settings  # noqa: PLC0415
    from celeriac.tasks.connectors_cli import check_connections  # noqa: PLC0415

    sys.exit(check_connections(load_settings(), names))


@connectors.command()
@click.argument("files", nargs=-1, required=True, type=_FILE)
def lint(files: tuple[Path, ...]) -> None:
    """Say what is wrong with manifests (connector.json)."""
    from celeriac.tasks.connectors_cli import lint_manifests  # noqa: PLC0415

    sys.exit(lint_manifests(files))


@connectors.command()
def schema() -> None:
    """Print the JSON Schema of manifests."""
    from celeriac.connectors.sdk.manifest import manifest_schema  # noqa: PLC0415

    click.echo(manifest_schema(), nl=False)


@connectors.command()
@click.argument("name")
@click.option("--folder", type=_FOLDER, default=None, help="Where to write it [./celeriac_NAME].")
def new(name: str, folder: Path | None) -> None:
    """Write a connector to start from: a package with a manifest, code and tests that pass."""
    from celeriac.tasks.connectors_cli import write_connector  # noqa: PLC0415

    sys.exit(write_connector(name, folder))


COMMANDS = (connectors,)
