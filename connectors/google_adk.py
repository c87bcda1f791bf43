"""Agents of Google's Agent Development Kit on durable sessions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from inspect import isasyncgenfunction, isgeneratorfunction

from google.adk.agents import BaseAgent, LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.code_executors import BuiltInCodeExecutor
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool

from celeriac.connectors.framework_tools import (
    FrameworkTools,
    Invoke,
    framework_tool,
    other_policies,
)
from celeriac.connectors.google_adk_harness import GoogleAdkHarness
from celeriac.connectors.google_adk_tools import CONTROL, input_schema, is_control, run_tool
from celeriac.sessions.definition import AgentDefinition, CompactionPolicy
from celeriac.sessions.errors import DefinitionError
from celeriac.sessions.tools import ToolDefinition, ToolPolicy, ToolSource

__all__ = ["google_adk_session"]

_AGENTS = {LlmAgent, LoopAgent, ParallelAgent, SequentialAgent}
_TOOLS = {FunctionTool, AgentTool}
_TOOL_CALLBACKS = ("before_tool_callback", "after_tool_callback", "on_tool_error_callback")


def google_adk_session(
    *,
    name: str,
    agent: BaseAgent,
    tool_policies: Mapping[str, ToolPolicy] | None = None,
    tool_sources: Sequence[ToolSource] = (),
    compaction: CompactionPolicy | None = None,
    max_model_calls_per_turn: int = 100,
    description: str = "",
) -> AgentDefinition:
    """Define an agent whose model steps are made by ADK.

    Args:
        name: How sessions refer to it; keep it stable.
        agent: The root agent, with its sub-agents.
        tool_policies: Effect and approval of the tools of all of them by name. One without a policy is a write that
            never runs twice, and asks.
        tool_sources: Connectors and MCP servers beside their own tools; every agent has them.
        compaction: When older messages are summarised; None never.
        max_model_calls_per_turn: Bound of one turn, in model steps.
        description: A line for people choosing an agent.

    Returns:
        The definition.

    Raises:
        DefinitionError: Something of the agents cannot run durably, or a name is used twice.
    """
    if not isinstance(agent, BaseAgent):
        raise DefinitionError(
            f"agent {name}: {type(agent).__name__} is no agent of ADK: give an LlmAgent, or one of its workflow "
            "agents"
        )
    agents = list(_all_agents(agent))
    for one in agents:
        _require_durable(one, name)
    policies = dict(tool_policies or {})
    own = FrameworkTools(list(_tools(agents, name, policies)))
    names = [definition.name for definition in own.definitions]
    speaker = next((one for one in agents if isinstance(one, LlmAgent)), None)
    if speaker is None:
        raise DefinitionError(
            f"agent {name}: no LlmAgent is among its agents, so there is no model to ask"
        )
    return AgentDefinition(
        name=name,
        instructions="",
        models=[_model_of(speaker, name)],
        tool_sources=[own, *tool_sources],
        tool_policies=other_policies(policies, own),
        compaction=compaction,
        max_model_calls_per_turn=max_model_calls_per_turn,
        description=description,
        harness=GoogleAdkHarness(agent, speaker, names),
    )


def _all_agents(root: BaseAgent) -> Iterator[BaseAgent]:
    yield root
    for one in root.sub_agents:
        if isinstance(one, BaseAgent):
            yield from _all_agents(one)


def _model_of(agent: LlmAgent, name: str) -> str:
    try:
        return agent.canonical_model.model
    except ValueError as error:
        raise DefinitionError(
            f"agent {name}: give the ADK agent {agent.name!r} its model: LlmAgent(model=…)"
        ) from error


def _require_durable(agent: BaseAgent, name: str) -> None:
    kind = type(agent)
    if kind not in _AGENTS and kind.__module__.startswith("google.adk."):
        raise DefinitionError(
            f"agent {name}: {kind.__name__} {agent.name!r} runs elsewhere, where nothing is recorded: use LlmAgent, "
            "SequentialAgent, LoopAgent, ParallelAgent, or a BaseAgent of your own"
        )
    if not isinstance(agent, LlmAgent):
        return
    executor = agent.code_executor
    if executor is not None and not isinstance(executor, BuiltInCodeExecutor):
        raise DefinitionError(
            f"agent {name}: the {type(executor).__name__} of {agent.name!r} would run code inside the model's step, "
            "where a crash repeats it: give it a tool that runs code"
        )
    given = [one for one in _TOOL_CALLBACKS if getattr(agent, one)]
    if given:
        raise DefinitionError(
            f"agent {name}: {agent.name!r} has {', '.join(given)}, which no step would call: put checks into the tool "
            "itself, and say in tool_policies what asks"
        )
    if agent.mode not in {None, "chat"}:
        raise DefinitionError(
            f"agent {name}: {agent.name!r} has the mode {agent.mode!r}; in a session an agent has none, or 'chat'"
        )


def _tools(
    agents: Sequence[BaseAgent], name: str, policies: Mapping[str, ToolPolicy]
) -> Iterator[tuple[ToolDefinition, Invoke]]:
    found: dict[str, BaseTool] = {}
    for agent in agents:
        if isinstance(agent, LlmAgent):
            for given in agent.tools:
                tool = given if isinstance(given, BaseTool) else None
                if tool is None and callable(given):
                    tool = FunctionTool(given)
                _require_tool(given if tool is None else tool, agent, name)
                if tool is None or is_control(tool):
                    continue
                if not _is_same(found.setdefault(tool.name, tool), tool):
                    raise DefinitionError(
                        f"agent {name}: two tools are named {tool.name!r}; rename one"
                    )
    for tool in found.values():
        definition = framework_tool(
            tool.name,
            tool.description or "",
            input_schema(tool),
            policies.get(tool.name),
            asks=bool(getattr(tool, "_require_confirmation", False)),
        )
        yield definition, partial(run_tool, tool, agents[0])


def _is_same(one: BaseTool, other: BaseTool) -> bool:
    if isinstance(one, FunctionTool) and isinstance(other, FunctionTool):
        return one.func is other.func
    return one is other


def _require_tool(tool: object, agent: BaseAgent, name: str) -> None:
    kind = type(tool)
    where = (
        f"agent {name}: the tool {getattr(tool, 'name', None) or kind.__name__!r} of {agent.name!r}"
    )
    if not isinstance(tool, BaseTool):
        raise DefinitionError(
            f"{where} is a toolset, whose calls would run unrecorded: give functions as tools, and MCP servers to "
            "tool_sources=[McpToolSource(...)]"
        )
    if tool.is_long_running:
        raise DefinitionError(
            f"{where} is long running; a session waits for any tool as long as it takes, so make it a function that "
            "returns its result"
        )
    if kind not in _TOOLS and kind.__module__.startswith("google.adk.") and not is_control(tool):
        raise DefinitionError(
            f"{where} is a {kind.__name__}, which runs at the provider or by ADK itself, inside the model's step: use "
            "a function, or a tool source"
        )
    if tool.name in CONTROL and not is_control(tool):
        raise DefinitionError(
            f"{where} has the name of a tool by which ADK steers itself; rename it"
        )
    if tool._get_declaration() is None:  # noqa: SLF001 - the method that a tool of ADK overrides
        raise DefinitionError(
            f"{where} is not declared to the model, so what it does happens inside the model's step: use a function, "
            "or let its _get_declaration() say what it is called with"
        )
    if isinstance(tool, FunctionTool) and (
        isgeneratorfunction(tool.func) or isasyncgenfunction(tool.func)
    ):
        raise DefinitionError(f"{where} yields its results, and a step has one: let it return it")
