"""``celeriac mcp list``: which tools agents get from MCP servers, what they count as, and why.

This one command loads the MCP SDK, in the process of the command and only when it runs; the rest of the CLI,
`celeriac dev` included, and the web never do.
"""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import click
from pydantic import JsonValue

from celeriac.connectors.mcp_config import (
    HttpServer,
    McpConfig,
    McpServer,
    load_mcp_config,
    values_of,
)
from celeriac.connectors.mcp_source import McpToolSource
from celeriac.connectors.mcp_tokens import TokenRecord, token_file, token_folder
from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.errors import ConfigurationError
from celeriac.sessions.settings import Settings
from celeriac.sessions.tools import ToolDefinition, ToolListing
from celeriac.tasks.cli_common import plain, print_json

__all__ = ["NOT_LOGGED_IN", "list_mcp", "login_of"]

_WIDTH = 96
NOT_LOGGED_IN = "not logged in"


@dataclass(frozen=True, slots=True)
class _Listed:
    server: McpServer
    tools: Sequence[ToolDefinition]
    problem: str | None
    login: str | None
    """Whether somebody has logged in, where that is needed."""


def list_mcp(settings: Settings, *, as_json: bool) -> int:
    """Connect to every server, and print its tools.

    Args:
        settings: The settings.
        as_json: Print JSON instead of text.

    Returns:
        0, or 1 when a server could not list its tools.

    Raises:
        ConfigurationError: The configuration cannot be used.
    """
    config = load_mcp_config(settings.mcp_config)
    listed = asyncio.run(_list(config, settings))
    if as_json:
        entries = {name: _as_json(one) for name, one in listed.items()}
        print_json(entries)
    elif not listed:
        click.echo("There are no MCP servers: CELERIAC_MCP_CONFIG is not set, or names none.")
    else:
        for name, one in listed.items():
            _show(name, one)
    return 1 if any(one.problem for one in listed.values()) else 0


async def _list(config: McpConfig, settings: Settings) -> Mapping[str, _Listed]:
    try:
        listings = await asyncio.gather(*(_list_one(config, name) for name in config.servers))
    finally:
        await McpToolSource(config=config).aclose()
    return {
        name: _Listed(
            server,
            listing.tools,
            next(iter(listing.unlisted), None),
            login_of(settings, name, server),
        )
        for (name, server), listing in zip(config.servers.items(), listings, strict=True)
    }


async def _list_one(config: McpConfig, name: str) -> ToolListing:
    source = McpToolSource(
        [name],
        resource_and_prompt_tools_enabled=False,
        # Here somebody waits who wants to see all of them.
        patience_seconds=2 * config.servers[name].connect_seconds,
        config=config,
    )
    return await source.list_tools()


def login_of(settings: Settings, name: str, server: McpServer) -> str | None:
    """Say whether somebody has logged in to a server, on this machine.

    Args:
        settings: The settings.
        name: The server's name.
        server: The server.

    Returns:
        A few words; None if it needs no login.
    """
    if not isinstance(server, HttpServer) or server.oauth is None or not server.oauth.is_login:
        return None
    file = token_file(token_folder(settings), name, server, values_of(name, server))
    try:
        record = file.load()
    except ConfigurationError as error:
        return str(error)
    return _told_of(record)


def _told_of(record: TokenRecord | None) -> str:
    if record is None or record.access_token is None:
        return NOT_LOGGED_IN
    if record.refresh_token is not None:
        return "logged in"
    if record.expires_at is None:
        return "logged in, until the server says otherwise"
    until = datetime.fromtimestamp(record.expires_at, UTC).isoformat(" ", "minutes")
    return f"{'login expired' if record.is_expired() else 'logged in until'} {until}"


def _show(name: str, listed: _Listed) -> None:
    trust = "trusted" if listed.server.trust_annotations else "not trusted"
    mark = click.style("✗", fg="red") if listed.problem else click.style("✓", fg="green")
    title = click.style(name, bold=True)
    click.echo(f"{mark} {title}  {listed.server.printable()}  (annotations {trust})")
    if listed.login:
        click.echo(f"    {listed.login}")
    if listed.problem:
        click.echo(
            textwrap.fill(
                plain(listed.problem), _WIDTH, initial_indent="    ", subsequent_indent="    "
            )
        )
    for tool in listed.tools:
        approval = "asks first" if tool.approval else "runs at once"
        click.echo(f"  {tool.name}  {click.style(tool.effect.value, bold=True)}, {approval}")
        click.echo(f"    {_why(listed.server, tool)}")
    click.echo()


def _as_json(listed: _Listed) -> dict[str, JsonValue]:
    return {
        "server": listed.server.printable(),
        "annotations_trusted": listed.server.trust_annotations,
        "problem": listed.problem,
        "login": listed.login,
        "tools": [
            {
                "name": tool.name,
                "original_name": tool.original_name,
                "description": tool.description,
                "effect": tool.effect.value,
                "requires_approval": bool(tool.approval),
                "why": _why(listed.server, tool),
            }
            for tool in listed.tools
        ],
    }


def _why(server: McpServer, tool: ToolDefinition) -> str:
    words = {
        ToolEffect.READ: "its server says readOnlyHint, and is trusted",
        ToolEffect.IDEMPOTENT_WRITE: "its server says idempotentHint, and is trusted",
        ToolEffect.NON_IDEMPOTENT_WRITE: "its server claims neither readOnlyHint nor idempotentHint",
    }
    why = words[tool.effect]
    if not server.trust_annotations:
        why = "its server's annotations are not trusted, so it counts as a write that runs once"
    usual = tool.effect is ToolEffect.NON_IDEMPOTENT_WRITE
    ruled = bool(tool.approval) is not usual
    return f"{why}; the approval is this configuration's" if ruled else why
