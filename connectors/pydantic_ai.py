"""Agents of Pydantic AI on durable sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from pydantic import JsonValue
from pydantic_ai import Agent, Tool
from pydantic_ai.toolsets import FunctionToolset

from celeriac.connectors.framework_tools import (
    FrameworkTools,
    Invoke,
    framework_tool,
    other_policies,
)
from celeriac.connectors.pydantic_ai_harness import PydanticAiHarness
from celeriac.connectors.pydantic_ai_tools import call_tool
from celeriac.sessions.definition import AgentDefinition, CompactionPolicy
from celeriac.sessions.errors import DefinitionError
from celeriac.sessions.tools import ToolContext, ToolDefinition, ToolPolicy, ToolResult, ToolSource

__all__ = ["pydantic_ai_session"]

Deps = TypeVar("Deps")
Output = TypeVar("Output")


def pydantic_ai_session(
    *,
    name: str,
    agent: Agent[Deps, Output],
    tool_policies: Mapping[str, ToolPolicy] | None = None,
    tool_sources: Sequence[ToolSource] = (),
    deps: Callable[[], Deps] | None = None,
    compaction: CompactionPolicy | None = None,
    max_model_calls_per_turn: int = 100,
    description: str = "",
) -> AgentDefinition:
    """Define an agent whose model steps are made by Pydantic AI.

    Args:
        name: How sessions refer to it; keep it stable.
        agent: The agent, with its model.
        tool_policies: Effect and approval of its function tools by name. One without a policy is a write that never
            runs twice, and asks.
        tool_sources: Connectors and MCP servers beside its own tools.
        deps: Makes the agent's deps, once for each model step and each call of a tool; they are not kept.
        compaction: When older messages are summarised; None never.
        max_model_calls_per_turn: Bound of one turn, in model steps.
        description: A line for people choosing an agent.

    Returns:
        The definition.

    Raises:
        DefinitionError: Something of the agent cannot run durably, or a name is used twice.
    """
    _require_durable(agent, name)
    policies = dict(tool_policies or {})
    make_deps = deps or _no_deps
    own = FrameworkTools(list(_tools(agent, name, policies, make_deps)))
    names = [definition.name for definition in own.definitions]
    return AgentDefinition(
        name=name,
        instructions="",
        models=[_model_of(agent, name)],
        tool_sources=[own, *tool_sources],
        tool_policies=other_policies(policies, own),
        compaction=compaction,
        max_model_calls_per_turn=max_model_calls_per_turn,
        description=description,
        harness=PydanticAiHarness(agent, names, make_deps),
    )


def _no_deps() -> None:
    return None


def _model_of(agent: Agent[Any, Any], name: str) -> str:
    model = agent.model
    if model is None:
        raise DefinitionError(
            f"agent {name}: give the Pydantic AI agent its model: Agent(model, …)"
        )
    return model if isinstance(model, str) else model.model_name


def _require_durable(agent: Agent[Any, Any], name: str) -> None:
    if not isinstance(agent, Agent):
        raise DefinitionError(
            f"agent {name}: {type(agent).__name__} is no plain Agent; one that another durable engine wraps cannot "
            "run in a session, so give the agent itself"
        )
    native = [one for one in agent.root_capability.get_native_tools() if not _is_optional(one)]
    if native:
        what = ", ".join(str(getattr(one, "kind", one)) for one in native)
        raise DefinitionError(
            f"agent {name}: the native tools ({what}) run at the provider, inside the model's step, where a crash "
            "would repeat them: use a function tool, or a tool source"
        )
    for part in agent.root_capability.capabilities:
        if type(part).__module__.startswith("pydantic_ai.durable_exec"):
            raise DefinitionError(
                f"agent {name}: it has {type(part).__name__} already; a session is durable by itself, so leave it out"
            )


def _is_optional(native: object) -> bool:
    """Every agent has one that searches tools which are loaded late; it does nothing while there are none."""
    return bool(getattr(native, "optional", False))


def _tools(
    agent: Agent[Any, Any],
    name: str,
    policies: Mapping[str, ToolPolicy],
    make_deps: Callable[[], object],
) -> Iterator[tuple[ToolDefinition, Invoke]]:
    found: set[str] = set()
    for toolset in agent.toolsets:
        if not isinstance(toolset, FunctionToolset):
            raise DefinitionError(
                f"agent {name}: its toolset {type(toolset).__name__} is none of functions, so its calls would run "
                "unrecorded: give functions as tools, and MCP servers to tool_sources=[McpToolSource(...)]"
            )
        for tool in toolset.tools.values():
            if tool.name in found:
                raise DefinitionError(
                    f"agent {name}: two tools are named {tool.name!r}; rename one"
                )
            found.add(tool.name)
            yield _declared(tool, name, policies), _invoke(agent, make_deps, tool.name)


def _declared(tool: Tool[Any], name: str, policies: Mapping[str, ToolPolicy]) -> ToolDefinition:
    if tool.defer_loading:
        raise DefinitionError(
            f"agent {name}: the tool {tool.name!r} is loaded late, by a search inside the model's step: "
            "leave defer_loading out"
        )
    schema: dict[str, JsonValue] = tool.tool_def.parameters_json_schema
    return framework_tool(
        tool.name,
        tool.description or "",
        schema,
        policies.get(tool.name),
        asks=tool.requires_approval,
        timeout_seconds=tool.timeout,
    )


def _invoke(agent: Agent[Any, Any], make_deps: Callable[[], object], tool: str) -> Invoke:
    run = partial(call_tool, agent, make_deps, tool)

    async def invoke(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        return await run(arguments, context)

    return invoke
