"""Celeriac: durable AI-agent sessions rooted in Celery.

What an agent's author imports is here. The names are loaded when they are first used, so ``import celeriac``
stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from celeriac.connectors.google_adk import google_adk_session
    from celeriac.connectors.langgraph import (
        DurableToolCalls,
        durable_tool_node,
        langgraph_session,
        session_tools,
    )
    from celeriac.connectors.mcp_source import McpToolSource
    from celeriac.connectors.openai_agents import openai_agents_session
    from celeriac.connectors.pydantic_ai import pydantic_ai_session
    from celeriac.connectors.sdk.source import ConnectorToolSource
    from celeriac.connectors.sdk.tools import connector_tool
    from celeriac.sessions.built_in import BuiltInTool
    from celeriac.sessions.calls import CallRecord, DecisionVerb, ToolEffect
    from celeriac.sessions.client import SessionClient
    from celeriac.sessions.definition import AgentDefinition, CompactionPolicy
    from celeriac.sessions.errors import (
        CeleriacError,
        ConfigurationError,
        Conflict,
        DefinitionError,
        InvalidRequest,
        NotFound,
        Refused,
        StoreUnavailable,
        ToolFailed,
        ToolNotRun,
        ToolOutcomeUnknown,
    )
    from celeriac.sessions.failures import FailureKind
    from celeriac.sessions.messages import Usage
    from celeriac.sessions.model import (
        ModelCall,
        ModelClient,
        ModelError,
        ModelReply,
        ModelRequest,
        ReasoningDelta,
        TextDelta,
    )
    from celeriac.sessions.model_settings import ModelSettings
    from celeriac.sessions.tools import (
        ToolContext,
        ToolDefinition,
        ToolPolicy,
        ToolResult,
        ToolSource,
        tool,
    )
    from celeriac.tasks.dispatch import open_client
    from celeriac.web.http_client import HttpSessionClient

__all__ = [
    "AgentDefinition",
    "BuiltInTool",
    "CallRecord",
    "CeleriacError",
    "CompactionPolicy",
    "ConfigurationError",
    "Conflict",
    "ConnectorToolSource",
    "DecisionVerb",
    "DefinitionError",
    "DurableToolCalls",
    "FailureKind",
    "HttpSessionClient",
    "InvalidRequest",
    "McpToolSource",
    "ModelCall",
    "ModelClient",
    "ModelError",
    "ModelReply",
    "ModelRequest",
    "ModelSettings",
    "NotFound",
    "ReasoningDelta",
    "Refused",
    "SessionClient",
    "StoreUnavailable",
    "TextDelta",
    "ToolContext",
    "ToolDefinition",
    "ToolEffect",
    "ToolFailed",
    "ToolNotRun",
    "ToolOutcomeUnknown",
    "ToolPolicy",
    "ToolResult",
    "ToolSource",
    "Usage",
    "connector_tool",
    "durable_tool_node",
    "google_adk_session",
    "langgraph_session",
    "open_client",
    "openai_agents_session",
    "pydantic_ai_session",
    "session_tools",
    "tool",
]

_HOMES = {
    "celeriac.connectors.google_adk": ("google_adk_session",),
    "celeriac.connectors.langgraph": (
        "DurableToolCalls",
        "durable_tool_node",
        "langgraph_session",
        "session_tools",
    ),
    "celeriac.connectors.mcp_source": ("McpToolSource",),
    "celeriac.connectors.openai_agents": ("openai_agents_session",),
    "celeriac.connectors.pydantic_ai": ("pydantic_ai_session",),
    "celeriac.connectors.sdk.source": ("ConnectorToolSource",),
    "celeriac.connectors.sdk.tools": ("connector_tool",),
    "celeriac.sessions.calls": ("CallRecord", "DecisionVerb", "ToolEffect"),
    "celeriac.sessions.client": ("SessionClient",),
    "celeriac.sessions.built_in": ("BuiltInTool",),
    "celeriac.sessions.definition": ("AgentDefinition", "CompactionPolicy"),
    "celeriac.sessions.errors": (
        "CeleriacError",
        "ConfigurationError",
        "Conflict",
        "DefinitionError",
        "InvalidRequest",
        "NotFound",
        "Refused",
        "StoreUnavailable",
        "ToolFailed",
        "ToolNotRun",
        "ToolOutcomeUnknown",
    ),
    "celeriac.sessions.failures": ("FailureKind",),
    "celeriac.sessions.messages": ("Usage",),
    "celeriac.sessions.model": (
        "ModelCall",
        "ModelClient",
        "ModelError",
        "ModelReply",
        "ModelRequest",
        "ReasoningDelta",
        "TextDelta",
    ),
    "celeriac.sessions.model_settings": ("ModelSettings",),
    "celeriac.sessions.tools": (
        "ToolContext",
        "ToolDefinition",
        "ToolPolicy",
        "ToolResult",
        "ToolSource",
        "tool",
    ),
    "celeriac.tasks.dispatch": ("open_client",),
    "celeriac.web.http_client": ("HttpSessionClient",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_EXTRAS = {
    "HttpSessionClient": "client",
    "DurableToolCalls": "langgraph",
    "durable_tool_node": "langgraph",
    "google_adk_session": "google-adk",
    "langgraph_session": "langgraph",
    "openai_agents_session": "openai-agents",
    "pydantic_ai_session": "pydantic-ai",
    "session_tools": "langgraph",
}
"""What loads a package that not everybody has, by name: the extra that brings it."""


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if name not in _EXTRAS:
            raise
        raise ImportError(
            f"{name} needs {error.name}, which is not installed: run `pip install 'celeriac[{_EXTRAS[name]}]'`"
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
