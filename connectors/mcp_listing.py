"""The tools of several servers as one list, and the way from a tool back to its server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from celeriac.connectors.mcp_calls import call_tool
from celeriac.connectors.mcp_pool import PooledServer
from celeriac.connectors.mcp_resources import RESOURCE_TOOLS, call_resource_tool, resource_tools
from celeriac.connectors.mcp_session import ServerUnavailable
from celeriac.sessions.errors import ToolNotRun
from celeriac.sessions.tools import ToolContext, ToolDefinition, ToolListing, ToolResult

__all__ = ["call_listed", "list_servers"]


async def list_servers(
    servers: Sequence[PooledServer], patience_seconds: float, *, resources: bool
) -> ToolListing:
    """Return the tools of all servers that can list theirs within some seconds.

    Args:
        servers: The servers.
        patience_seconds: How long to wait for one that is slow.
        resources: Whether the tools for resources and prompts are wanted.
    """
    tools: list[ToolDefinition] = []
    unlisted: list[str] = []
    listings = await asyncio.gather(*(_listed(server, patience_seconds) for server in servers))
    for server, listed in zip(servers, listings, strict=True):
        if isinstance(listed, str):
            unlisted.append(f"MCP server {server.name}: {listed}")
        else:
            tools += listed
    if resources:
        tools += resource_tools(servers)
    return ToolListing(tools, unlisted)


async def _listed(server: PooledServer, patience_seconds: float) -> Sequence[ToolDefinition] | str:
    try:
        return (await server.catalogue(patience_seconds)).tools
    except ServerUnavailable as error:
        return str(error)


async def call_listed(
    servers: Sequence[PooledServer],
    tool: ToolDefinition,
    arguments: Mapping[str, JsonValue],
    context: ToolContext,
) -> ToolResult:
    """Run one attempt of a call of a tool that `list_servers` returned.

    Raises:
        ToolFailed, ToolNotRun, LostCall: See `call_tool`.
    """
    if tool.source is None and tool.name in RESOURCE_TOOLS:
        return await call_resource_tool(servers, tool.name, arguments, context)
    for server in servers:
        if server.name == tool.source:
            return await call_tool(server, tool, arguments, context)
    raise ToolNotRun(f"there is no MCP server {tool.source!r} any more")
