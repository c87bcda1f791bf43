"""A server's list of tools: all its pages, as definitions that an agent can use."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import jsonschema
from jsonschema.protocols import Validator
from mcp_types import Tool, ToolAnnotations
from pydantic import JsonValue

from celeriac.connectors.mcp_config import McpServer
from celeriac.connectors.mcp_names import suffixed_name, tool_name
from celeriac.connectors.mcp_session import McpSession
from celeriac.connectors.schemas import validator_of
from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.jsonsafe import clean_text, dump_json, to_json_value, truncate_text
from celeriac.sessions.tools import ToolDefinition

__all__ = ["Catalogue", "list_all_tools"]

_log = logging.getLogger(__name__)

_MOST_PAGES = 100
_MOST_TOOLS = 1000
_DESCRIPTION_BYTES = 16 * 1024
_SCHEMA_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What a server offered at one moment.

    Args:
        tools: Its tools.
        outputs: Checks of the results of those that declare a schema of them, by original name.
        seconds: How long the list may be used, as far as the server says so.
    """

    tools: tuple[ToolDefinition, ...]
    outputs: Mapping[str, Validator]
    seconds: float | None

    def tool(self, original_name: str | None) -> ToolDefinition | None:
        """Return the tool that the server calls so."""
        return next((one for one in self.tools if one.original_name == original_name), None)


async def list_all_tools(session: McpSession) -> Catalogue:
    """Ask for every page of the list.

    Args:
        session: An open session.

    Returns:
        The tools that can be used; each that cannot is left out with a warning that names it.

    Raises:
        MCPError: The server refused, or the connection ended.
        ValidationError: The answer is no list of tools.
    """
    if session.capabilities.tools is None:
        return Catalogue((), {}, None)
    tools: dict[str, Tool] = {}
    cursor: str | None = None
    seen: set[str] = set()
    ttl_ms = 0
    for _ in range(_MOST_PAGES):
        page = await session.client.list_tools(cursor=cursor)
        ttl_ms = page.ttl_ms
        for tool in page.tools:
            if tools.setdefault(tool.name, tool) is not tool:
                _warn(session.name, tool.name, "it is listed twice; the first one counts")
        cursor = page.next_cursor
        if cursor is None or cursor in seen:
            break
        seen.add(cursor)
    if cursor is not None or len(tools) > _MOST_TOOLS:
        _log.warning(
            "MCP server %s: its list of tools has no end; the first %d count",
            session.name,
            min(len(tools), _MOST_TOOLS),
        )
    listed = list(tools.values())[:_MOST_TOOLS]
    return _catalogue(session.name, session.server, listed, ttl_ms / 1000 if ttl_ms else None)


def _catalogue(name: str, server: McpServer, tools: list[Tool], seconds: float | None) -> Catalogue:
    kept: dict[str, ToolDefinition] = {}
    outputs: dict[str, Validator] = {}
    # In the order of their names: a server may list them in another at each start.
    for tool in sorted(tools, key=lambda tool: tool.name):
        if not server.tools.allows(tool.name):
            continue
        if clean_text(tool.name) != tool.name:
            _warn(
                name, tool.name, "its name holds characters that cannot be stored; it is left out"
            )
            continue
        fault = _schema_fault(tool.input_schema)
        if fault is not None:
            _warn(name, tool.name, f"its input schema cannot be used, so it is left out: {fault}")
            continue
        definition = _definition(name, server, tool)
        if kept.setdefault(definition.name, definition) is not definition:
            other = kept[definition.name].original_name
            _warn(name, tool.name, f"it has the same name for models as {other!r}; it is left out")
        elif tool.output_schema is not None:
            fault = _schema_fault(tool.output_schema)
            if fault is None:
                outputs[tool.name] = validator_of(tool.output_schema)
            else:
                _warn(name, tool.name, f"its output schema cannot be used and is ignored: {fault}")
    return Catalogue(tuple(kept.values()), outputs, seconds)


def _definition(server_name: str, server: McpServer, tool: Tool) -> ToolDefinition:
    hints = tool.annotations or ToolAnnotations()
    effect = _effect(hints) if server.trust_annotations else ToolEffect.NON_IDEMPOTENT_WRITE
    asks = effect is ToolEffect.NON_IDEMPOTENT_WRITE
    description = clean_text(tool.description or tool.title or hints.title or "")
    schema = cast("dict[str, JsonValue]", to_json_value(tool.input_schema))
    return ToolDefinition(
        name=tool_name(server_name, tool.name),
        alternative_name=suffixed_name(server_name, tool.name),
        description=truncate_text(description, _DESCRIPTION_BYTES),
        input_schema={"properties": {}, **schema},
        effect=effect,
        approval=server.tools.approval_of(tool.name, otherwise=asks),
        source=server_name,
        original_name=tool.name,
        claims={
            "title": clean_text(tool.title or ""),
            "annotations": hints.model_dump_json(exclude_none=True),
        },
    )


def _effect(hints: ToolAnnotations) -> ToolEffect:
    if hints.read_only_hint is True:
        return ToolEffect.READ
    if hints.idempotent_hint is True:
        return ToolEffect.IDEMPOTENT_WRITE
    return ToolEffect.NON_IDEMPOTENT_WRITE


def _schema_fault(schema: Mapping[str, JsonValue]) -> str | None:
    """Say why arguments could not be checked with a schema, if so."""
    try:
        size = len(dump_json(dict(schema)).encode())
        if size > _SCHEMA_BYTES:
            return f"it has {size:,} bytes; {_SCHEMA_BYTES:,} are the most"
        outside = _outside_reference(schema)
        if outside is not None:
            return f"it refers to {outside[:200]!r}, which is outside of it"
        validator = validator_of(schema)
        validator.check_schema(dict(schema))
        # A reference to nothing, or to itself, is only met when it is used.
        for example in ({}, _example(schema)):
            list(validator.iter_errors(example))
    except jsonschema.SchemaError as error:
        return error.message[:200]
    except Exception as error:  # noqa: BLE001 - a stranger's schema: whatever breaks the check
        return f"{type(error).__name__}: {error}"[:200]
    return None


def _outside_reference(value: JsonValue | Mapping[str, JsonValue]) -> str | None:
    if isinstance(value, Mapping):
        for key in ("$ref", "$dynamicRef"):
            reference = value.get(key)
            if isinstance(reference, str) and not reference.startswith("#"):
                return reference
        parts = list(value.values())
    elif isinstance(value, list):
        parts = value
    else:
        return None
    return next(filter(None, map(_outside_reference, parts)), None)


def _example(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return arguments that make the check look at every property."""
    properties = schema.get("properties")
    return dict.fromkeys(properties, "x") if isinstance(properties, dict) else {}


def _warn(server: str, tool: str, what: str) -> None:
    _log.warning("MCP server %s, tool %r: %s", server, tool[:100], what)
