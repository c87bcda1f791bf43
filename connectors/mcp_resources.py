"""Three tools for what MCP servers offer beside tools: list resources, read one, get a prompt. All are reads."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast

from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND, GetPromptResult, ReadResourceResult
from pydantic import JsonValue

from celeriac.connectors.mcp_calls import meta_of, request
from celeriac.connectors.mcp_pool import PooledServer
from celeriac.connectors.mcp_progress import Progress
from celeriac.connectors.mcp_results import prompt_value, resource_value
from celeriac.connectors.mcp_session import McpSession
from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.errors import ToolFailed, ToolNotRun
from celeriac.sessions.tools import ToolContext, ToolDefinition, ToolResult

__all__ = ["RESOURCE_TOOLS", "call_resource_tool", "resource_tools"]

_MOST_LISTED = 500
_MOST_PAGES = 20
_TEXT: JsonValue = {"type": "string"}


def _tool(
    tool_name: str, description: str, required: Sequence[str], /, **properties: JsonValue
) -> ToolDefinition:
    return ToolDefinition(
        name=tool_name,
        description=description,
        input_schema={
            "type": "object",
            "properties": properties,
            "required": list(required),
            "additionalProperties": False,
        },
        effect=ToolEffect.READ,
    )


RESOURCE_TOOLS: Mapping[str, ToolDefinition] = {
    tool.name: tool
    for tool in (
        _tool(
            "mcp_list_resources",
            "List what MCP servers offer beside tools: resources, templates of resource addresses, and prompts.",
            [],
            server={"type": "string", "description": "Only of this server."},
        ),
        _tool(
            "mcp_read_resource",
            "Read a resource of an MCP server.",
            ["server", "uri"],
            server=_TEXT,
            uri={"type": "string", "description": "Its address, as mcp_list_resources shows it."},
        ),
        _tool(
            "mcp_get_prompt",
            "Get a prompt of an MCP server, filled with arguments.",
            ["server", "name"],
            server=_TEXT,
            name=_TEXT,
            arguments={"type": "object", "additionalProperties": {"type": "string"}},
        ),
    )
}


def resource_tools(servers: Sequence[PooledServer]) -> Sequence[ToolDefinition]:
    """Return the tools if some server, of those that are connected, has a use for them."""
    return tuple(RESOURCE_TOOLS.values()) if any(one.has_resources for one in servers) else ()


async def call_resource_tool(
    servers: Sequence[PooledServer],
    tool: str,
    arguments: Mapping[str, JsonValue],
    context: ToolContext,
) -> ToolResult:
    """Run one attempt of a call of one of the tools.

    Raises:
        ToolFailed, ToolNotRun, LostCall: See `call_tool`.
    """
    name = arguments.get("server")
    chosen = [server for server in servers if name is None or server.name == name]
    if not chosen:
        known = ", ".join(server.name for server in servers)
        raise ToolFailed(f"there is no MCP server {name!r}; there are {known}")
    if tool == "mcp_read_resource":
        return await _read(chosen[0], str(arguments["uri"]), context)
    if tool == "mcp_get_prompt":
        given = cast("Mapping[str, str]", arguments.get("arguments") or {})
        return await _prompt(chosen[0], str(arguments["name"]), given, context)
    # One by one where the model named one: its failure is then the call's.
    if name is not None:
        return ToolResult(await _offers(chosen[0], context))
    offers = await asyncio.gather(*(_offers_or_fault(one, context) for one in chosen))
    return ToolResult({one.name: offer for one, offer in zip(chosen, offers, strict=True)})


async def _read(server: PooledServer, uri: str, context: ToolContext) -> ToolResult:
    async def send(session: McpSession, _progress: Progress) -> ReadResourceResult:
        return await session.client.session.read_resource(uri, meta=meta_of(context))

    return ToolResult(resource_value(await request(server, send, context)))


async def _prompt(
    server: PooledServer, name: str, arguments: Mapping[str, str], context: ToolContext
) -> ToolResult:
    async def send(session: McpSession, _progress: Progress) -> GetPromptResult:
        return await session.client.session.get_prompt(name, dict(arguments), meta=meta_of(context))

    return ToolResult(prompt_value(await request(server, send, context)))


async def _offers_or_fault(server: PooledServer, context: ToolContext) -> JsonValue:
    try:
        return await _offers(server, context)
    except (ToolFailed, ToolNotRun) as error:
        return f"cannot be listed: {error}"


async def _offers(server: PooledServer, context: ToolContext) -> JsonValue:
    async def send(session: McpSession, _progress: Progress) -> JsonValue:
        return {
            "resources": await _all(session, "resources"),
            "resource_templates": await _all(session, "resource_templates"),
            "prompts": await _all(session, "prompts"),
        }

    return await request(server, send, context)


async def _all(session: McpSession, what: str) -> list[JsonValue]:
    """List one kind of thing, all pages of it."""
    client, capabilities = session.client, session.capabilities
    if (capabilities.prompts if what == "prompts" else capabilities.resources) is None:
        return []
    found: list[JsonValue] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        try:
            page = await getattr(client, f"list_{what}")(cursor=cursor)
        except MCPError as error:
            if error.code == METHOD_NOT_FOUND:
                return found
            raise
        for one in getattr(page, what):
            shown = {
                "name",
                "uri",
                "uri_template",
                "title",
                "description",
                "mime_type",
                "arguments",
            }
            found.append(
                one.model_dump(include=shown, exclude_none=True, by_alias=True, mode="json")
            )
        cursor = page.next_cursor
        if cursor is None or len(found) >= _MOST_LISTED:
            break
    return found[:_MOST_LISTED]
