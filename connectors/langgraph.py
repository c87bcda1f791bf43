"""Graphs of LangGraph, and agents of LangChain, on durable sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode

from celeriac.connectors.framework_tools import (
    FrameworkTools,
    Invoke,
    framework_tool,
    other_policies,
)
from celeriac.connectors.langgraph_checks import (
    hosted_tools,
    interrupts_itself,
    parts_of,
    why_not_durable,
)
from celeriac.connectors.langgraph_harness import Graph, LangGraphHarness
from celeriac.connectors.langgraph_tools import (
    MARK,
    DurableToolCalls,
    DurableToolNode,
    durable_tool_node,
    inside_the_run,
    run_tool,
    session_tools,
)
from celeriac.sessions.definition import AgentDefinition, CompactionPolicy
from celeriac.sessions.errors import DefinitionError
from celeriac.sessions.tools import ToolDefinition, ToolPolicy, ToolSource

__all__ = ["DurableToolCalls", "durable_tool_node", "langgraph_session", "session_tools"]


def langgraph_session(
    *,
    name: str,
    graph: CompiledStateGraph[Any, Any, Any, Any],
    model: BaseChatModel,
    tool_policies: Mapping[str, ToolPolicy] | None = None,
    tool_sources: Sequence[ToolSource] = (),
    context: Callable[[], object] | None = None,
    state_types: Sequence[type] = (),
    compaction: CompactionPolicy | None = None,
    max_model_calls_per_turn: int = 100,
    description: str = "",
) -> AgentDefinition:
    """Define an agent whose model steps are made by a graph.

    Args:
        name: How sessions refer to it; keep it stable.
        graph: An agent, ``create_agent(model, tools, middleware=[DurableToolCalls(), …])``, or a compiled graph of
            your own with `durable_tool_node`; ``messages`` must be in its state.
        model: The model that the graph asks; it writes the summaries, too. Let it not retry: steps do.
        tool_policies: Effect and approval of its tools by name. One without a policy is a write that never
            runs twice, and asks.
        tool_sources: Connectors and MCP servers beside its own tools.
        context: Makes the runtime context of a run, once for each model step; it is not kept.
        state_types: Classes of yours that the graph's state may hold while it waits for tools.
        compaction: When older messages are summarised; None never.
        max_model_calls_per_turn: Bound of one turn, in model steps.
        description: A line for people choosing an agent.

    Returns:
        The definition.

    Raises:
        DefinitionError: Something of the graph cannot run durably, or a name is used twice.
    """
    graphs = _require_durable(graph, name)
    for part in graphs:
        _require_stopping(part, name)
    policies = dict(tool_policies or {})
    own = FrameworkTools(list(_tools(graphs, name, policies)))
    names = [definition.name for definition in own.definitions]
    return AgentDefinition(
        name=name,
        instructions="",
        models=[_name_of(model, name)],
        tool_sources=[own, *tool_sources],
        tool_policies=other_policies(policies, own),
        compaction=compaction,
        max_model_calls_per_turn=max_model_calls_per_turn,
        description=description,
        harness=LangGraphHarness(graph, model, names, context or _no_context, state_types),
    )


def _no_context() -> None:
    return None


def _name_of(model: BaseChatModel, name: str) -> str:
    if not isinstance(model, BaseChatModel):
        raise DefinitionError(
            f"agent {name}: model must be the chat model that the graph asks, not {type(model).__name__}"
        )
    for attribute in ("model_name", "model"):
        found = getattr(model, attribute, None)
        if isinstance(found, str) and found:
            return found
    return type(model).__name__


def _require_durable(graph: Graph, name: str) -> list[Graph]:
    """Return the graph and the graphs within it."""
    if not isinstance(graph, CompiledStateGraph):
        raise DefinitionError(
            f"agent {name}: {type(graph).__name__} is no compiled graph of states: give what create_agent() or "
            "StateGraph.compile() returns"
        )
    if "messages" not in graph.channels:
        raise DefinitionError(
            f"agent {name}: the graph's state has no messages: the conversation of a session is put there, so let "
            "it extend MessagesState"
        )
    inner = [one for _, one in graph.get_subgraphs(recurse=True)]
    found = [graph, *(one for one in inner if isinstance(one, CompiledStateGraph))]
    for part in found:
        if part.checkpointer not in {None, False}:
            raise DefinitionError(
                f"agent {name}: the graph has a checkpointer of its own; the session keeps its state, so leave it out"
            )
        if part.interrupt_before_nodes or part.interrupt_after_nodes:
            raise DefinitionError(
                f"agent {name}: the graph is compiled to interrupt before or after nodes; a session asks people about "
                "calls of tools, so leave that out and set tool_policies"
            )
    return found


def _require_stopping(graph: Graph, name: str) -> None:
    for node, part in graph.nodes.items():
        if node.startswith("HumanInTheLoopMiddleware"):
            raise DefinitionError(
                f"agent {name}: HumanInTheLoopMiddleware would ask inside the model's step: leave it out, and say in "
                "tool_policies what asks"
            )
        stops = part.bound if MARK in graph.channels else None
        for one in parts_of(part.bound):
            if isinstance(one, ToolNode) and one is not stops:
                raise DefinitionError(
                    f"agent {name}: its node {node!r} would run tools inside the model's step, where a crash repeats "
                    "them: put DurableToolCalls() first in the middleware of create_agent, or "
                    "durable_tool_node(tools) in the place of ToolNode"
                )
            _require_no_step_of_its_own(one, f"agent {name}: its node {node!r}")


def _require_no_step_of_its_own(part: Runnable[Any, Any], where: str) -> None:
    if interrupts_itself(part) and not isinstance(part, BaseTool):
        raise DefinitionError(
            f"{where} interrupts itself: in a session a person approves calls of tools, so leave interrupt() out, "
            "and say in tool_policies what asks"
        )
    hosted = hosted_tools(part)
    if hosted:
        raise DefinitionError(
            f"{where} has tools that the model's provider runs inside the model's step, unrecorded: "
            f"{', '.join(hosted)}. Give functions as tools, and MCP servers to tool_sources=[McpToolSource(...)]"
        )


def _tools(
    graphs: Sequence[Graph], name: str, policies: Mapping[str, ToolPolicy]
) -> Iterator[tuple[ToolDefinition, Invoke]]:
    found: dict[str, BaseTool] = {}
    for tool in _all_tools(graphs):
        if inside_the_run(tool):
            continue
        if found.setdefault(tool.name, tool) is not tool:
            raise DefinitionError(f"agent {name}: two tools are named {tool.name!r}; rename one")
    for tool in found.values():
        why = why_not_durable(tool)
        if why is not None:
            raise DefinitionError(f"agent {name}: the tool {tool.name!r} {why}")
        declared = convert_to_openai_tool(tool)["function"]
        definition = framework_tool(
            tool.name,
            declared.get("description") or "",
            declared["parameters"],
            policies.get(tool.name),
        )
        yield definition, partial(run_tool, tool)


def _all_tools(graphs: Sequence[Graph]) -> Iterator[BaseTool]:
    for part in graphs:
        for node in part.nodes.values():
            for one in parts_of(node.bound):
                if isinstance(one, ToolNode):
                    yield from one.tools_by_name.values()
                elif isinstance(one, DurableToolNode):
                    yield from one.tools
