"""A copy of a graph of OpenAI agents whose tools stop the run, or hand back what our steps recorded."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agents import Agent, FunctionTool, Handoff, ToolGuardrailFunctionOutput, ToolInputGuardrail
from agents.sandbox import SandboxAgent
from agents.tool_context import ToolContext
from agents.tool_guardrails import ToolInputGuardrailData

from celeriac.sessions.errors import DefinitionError
from celeriac.sessions.harness import CallResult
from celeriac.sessions.tools import ToolDefinition

__all__ = ["DurableGraph", "all_agents", "function_tools"]


def all_agents(root: Agent[Any]) -> list[Agent[Any]]:
    """Return an agent and all that it can hand off to, each once.

    Raises:
        DefinitionError: Something of it cannot run durably; the message says what to do instead.
    """
    found: dict[int, Agent[Any]] = {}
    waiting = [root]
    while waiting:
        agent = waiting.pop(0)
        if id(agent) in found:
            continue
        _require_durable(agent)
        found[id(agent)] = agent
        waiting += [_target(one) for one in agent.handoffs]
    names = [agent.name for agent in found.values()]
    for name in names:
        if names.count(name) > 1:
            raise DefinitionError(
                f"two agents are named {name!r}; a session could not tell which one goes on: rename one"
            )
    return list(found.values())


def _require_durable(agent: Agent[Any]) -> None:
    if isinstance(agent, SandboxAgent):
        raise DefinitionError(
            f"agent {agent.name!r} works in a sandbox, inside the model's step, where nothing is recorded: use a "
            "plain Agent with function tools"
        )
    if agent.mcp_servers:
        raise DefinitionError(
            f"agent {agent.name!r} has mcp_servers of its own, whose calls would run unrecorded: give their "
            "servers to tool_sources=[McpToolSource(...)] instead"
        )
    for tool in agent.tools:
        if not isinstance(tool, FunctionTool) or getattr(tool, "_is_codex_tool", False):
            raise DefinitionError(
                f"agent {agent.name!r}: the tool {getattr(tool, 'name', tool)!r} ({type(tool).__name__}) runs "
                "inside the model's step, where a crash would repeat it: use a function tool, or a tool source"
            )


def _target(entry: Agent[Any] | Handoff[Any, Any]) -> Agent[Any]:
    if isinstance(entry, Agent):
        return entry
    reference = entry._agent_ref  # noqa: SLF001 - there is no other way from a handoff to its agent
    target = reference() if reference is not None else None
    if not isinstance(target, Agent):
        raise DefinitionError(
            f"the handoff {entry.tool_name!r} does not say which agent it leads to: make it with handoff(agent)"
        )
    return target


def function_tools(agents: Sequence[Agent[Any]]) -> dict[str, FunctionTool]:
    """Return all function tools by name.

    Raises:
        DefinitionError: Two of them have one name.
    """
    found: dict[str, FunctionTool] = {}
    for agent in agents:
        for tool in agent.tools:
            if isinstance(tool, FunctionTool) and found.setdefault(tool.name, tool) is not tool:
                raise DefinitionError(f"two tools are named {tool.name!r}; rename one")
    return found


class DurableGraph:
    """A copy of the graph for one model step.

    Args:
        root: The agent as its author made it.
        external: Tools that are not the framework's; every agent of the graph has them.
        recorded: Results of calls that our steps have run, by the framework's call id.
    """

    def __init__(
        self,
        root: Agent[Any],
        external: Sequence[ToolDefinition],
        recorded: Mapping[str, CallResult],
    ) -> None:
        self._recorded = recorded
        self._external = [self._of_source(definition) for definition in external]
        self._copies: dict[int, Agent[Any]] = {}
        self.root = self._copy(root)
        self.agents = {agent.name: agent for agent in self._copies.values()}

    def _copy(self, agent: Agent[Any]) -> Agent[Any]:
        known = self._copies.get(id(agent))
        if known is not None:
            return known
        copied = self._copies[id(agent)] = agent.clone(tools=[*self._tools(agent)], handoffs=[])
        # Afterwards, for handoffs may lead in a circle.
        copied.handoffs = [self._handoff(entry) for entry in agent.handoffs]
        return copied

    def _handoff(self, entry: Agent[Any] | Handoff[Any, Any]) -> Agent[Any] | Handoff[Any, Any]:
        target = self._copy(_target(entry))
        if isinstance(entry, Agent):
            return target
        invoke = entry.on_invoke_handoff

        async def to_the_copy(context: Any, arguments: str) -> Agent[Any]:
            await invoke(context, arguments)
            return target

        copied = dataclasses.replace(entry, on_invoke_handoff=to_the_copy)
        copied._agent_ref = weakref.ref(target)  # noqa: SLF001 - `replace` leaves it out
        return copied

    def _tools(self, agent: Agent[Any]) -> Iterator[FunctionTool]:
        for tool in agent.tools:
            if isinstance(tool, FunctionTool):
                yield dataclasses.replace(
                    tool,
                    needs_approval=True,
                    on_invoke_tool=self._replay,
                    tool_input_guardrails=[*self._guardrails(tool)] or None,
                    timeout_seconds=None,
                )
        yield from self._external

    def _guardrails(self, tool: FunctionTool) -> Iterator[ToolInputGuardrail[Any]]:
        """Guard what is about to be asked for, not what has run: its result must reach the model."""
        for guardrail in tool.tool_input_guardrails or ():

            async def guarded(
                data: ToolInputGuardrailData, guardrail: ToolInputGuardrail[Any] = guardrail
            ) -> ToolGuardrailFunctionOutput:
                if data.context.tool_call_id in self._recorded:
                    return ToolGuardrailFunctionOutput.allow()
                return await guardrail.run(data)

            yield ToolInputGuardrail(guarded, guardrail.get_name())

    async def _replay(self, context: ToolContext[Any], _arguments: str) -> str:
        return self._recorded[context.tool_call_id].text

    def _of_source(self, definition: ToolDefinition) -> FunctionTool:
        return FunctionTool(
            name=definition.name,
            description=definition.description,
            params_json_schema=dict(definition.input_schema),
            on_invoke_tool=self._replay,
            strict_json_schema=False,
            needs_approval=True,
        )
