"""Agents of OpenAI's Agents SDK on durable sessions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from agents import Agent, FunctionTool, ModelBehaviorError, RunConfig, ToolOutputText
from agents.models import get_default_model
from agents.tool_context import ToolContext as SdkToolContext
from pydantic import JsonValue

from celeriac.connectors.framework_tools import FrameworkTools, framework_tool, other_policies
from celeriac.connectors.openai_agents_graph import all_agents, function_tools
from celeriac.connectors.openai_agents_harness import OpenAiAgentsHarness
from celeriac.sessions.definition import AgentDefinition, CompactionPolicy
from celeriac.sessions.errors import ToolFailed
from celeriac.sessions.jsonsafe import dump_json, to_json_value
from celeriac.sessions.tools import ToolContext, ToolPolicy, ToolResult, ToolSource

__all__ = ["openai_agents_session"]

Context = TypeVar("Context")


def openai_agents_session(
    *,
    name: str,
    agent: Agent[Context],
    tool_policies: Mapping[str, ToolPolicy] | None = None,
    tool_sources: Sequence[ToolSource] = (),
    context: Callable[[], Context] | None = None,
    run_config: RunConfig | None = None,
    compaction: CompactionPolicy | None = None,
    max_model_calls_per_turn: int = 100,
    description: str = "",
) -> AgentDefinition:
    """Define an agent whose model steps are made by OpenAI's Agents SDK.

    Args:
        name: How sessions refer to it; keep it stable.
        agent: The agent that a session begins with; handoffs may lead to others.
        tool_policies: Effect and approval of its function tools by name. One without a policy is a write that never
            runs twice, and asks.
        tool_sources: Connectors and MCP servers; all agents have their tools.
        context: Makes the SDK's context object, once for each model step and each call of a tool; it is not kept.
        run_config: Settings of the SDK's runs. Tracing is off in any case.
        compaction: When older messages are summarised; None never.
        max_model_calls_per_turn: Bound of one turn, in model steps.
        description: A line for people choosing an agent.

    Returns:
        The definition.

    Raises:
        DefinitionError: Something of the agent cannot run durably, or a name is used twice.
    """
    agents = all_agents(agent)
    policies = dict(tool_policies or {})
    tools = function_tools(agents)
    make_context = context or _no_context
    config = dataclasses.replace(run_config or RunConfig(), tracing_disabled=True)
    own = FrameworkTools(
        [
            (
                framework_tool(
                    tool.name,
                    tool.description,
                    _checked_schema(tool.params_json_schema),
                    policies.get(tool.name),
                    asks=tool.needs_approval is not False,
                    timeout_seconds=tool.timeout_seconds,
                ),
                partial(_call, _raising(tool), make_context, config),
            )
            for tool in tools.values()
        ]
    )
    return AgentDefinition(
        name=name,
        instructions="",
        models=[_model_of(agent)],
        tool_sources=[own, *tool_sources],
        tool_policies=other_policies(policies, own),
        compaction=compaction,
        max_model_calls_per_turn=max_model_calls_per_turn,
        description=description,
        harness=OpenAiAgentsHarness(agent, list(tools), make_context, config),
    )


def _no_context() -> None:
    return None


def _checked_schema(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return what our step checks arguments by: the SDK's strict schemas require what has a default, too.

    A model that does not know that mode leaves it out, and the SDK takes it.
    """
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return dict(schema)
    needed = [name for name in required if not _may_be_left_out(properties.get(str(name)))]
    return {**schema, "required": needed}


def _may_be_left_out(entry: JsonValue) -> bool:
    if not isinstance(entry, dict):
        return False
    options = entry.get("anyOf")
    # Of a default of None nothing is left in a strict schema but that the value may be null.
    return "default" in entry or (isinstance(options, list) and {"type": "null"} in options)


def _model_of(agent: Agent[Any]) -> str:
    if agent.model is None:
        return get_default_model()
    if isinstance(agent.model, str):
        return agent.model
    return str(getattr(agent.model, "model", type(agent.model).__name__))


def _raising(tool: FunctionTool) -> FunctionTool:
    """Return the tool without its words for errors: they would make a failure look like a result."""
    copied = dataclasses.replace(tool)
    copied._failure_error_function = None  # noqa: SLF001 - it can only be given where the tool is made
    copied._use_default_failure_error_function = False  # noqa: SLF001
    return copied


async def _call(
    tool: FunctionTool,
    make_context: Callable[[], object],
    config: RunConfig,
    arguments: Mapping[str, JsonValue],
    context: ToolContext,
) -> ToolResult:
    """Run one attempt; the id of the call, which the tool can read, is our Call ID."""
    raw = dump_json(dict(arguments))
    own = SdkToolContext(
        context=make_context(),
        tool_name=tool.name,
        tool_call_id=context.call_id,
        tool_arguments=raw,
        run_config=config,
    )
    try:
        value = await tool.on_invoke_tool(own, raw)
    except ModelBehaviorError as error:
        raise ToolFailed(str(error)) from error
    if isinstance(value, ToolOutputText):
        value = value.text
    return ToolResult(to_json_value(value))
