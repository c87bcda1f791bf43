"""The function tools of another framework's agent, as tools of ours: they run in our steps, by our rules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from pydantic import JsonValue

from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.tools import (
    ApprovalRule,
    ToolContext,
    ToolDefinition,
    ToolPolicy,
    ToolResult,
)

__all__ = ["FrameworkTools", "framework_tool", "other_policies"]

Invoke = Callable[[Mapping[str, JsonValue], ToolContext], Awaitable[ToolResult]]


class FrameworkTools:
    """A source of the tools that a framework's agent brings.

    Args:
        tools: What is declared about each tool, with what runs one attempt of it.
    """

    def __init__(self, tools: Sequence[tuple[ToolDefinition, Invoke]]) -> None:
        self._definitions = tuple(definition for definition, _ in tools)
        self._invoke = {definition.name: invoke for definition, invoke in tools}

    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        """What is declared about its tools."""
        return self._definitions

    def start(self) -> None:
        """Nothing of it is configured by the worker."""

    async def list_tools(self) -> Sequence[ToolDefinition]:
        """Return the tools; they never change within a process."""
        return self._definitions

    async def call(
        self, tool: ToolDefinition, arguments: Mapping[str, JsonValue], context: ToolContext
    ) -> ToolResult:
        """Run one attempt of a call, outside of any run of the framework."""
        return await self._invoke[tool.name](arguments, context)


def framework_tool(
    name: str,
    description: str,
    input_schema: Mapping[str, JsonValue],
    policy: ToolPolicy | None,
    *,
    asks: bool = False,
    timeout_seconds: float | None = None,
) -> ToolDefinition:
    """Declare a tool of a framework, which knows nothing of effects.

    Args:
        name: Its name.
        description: Its description for the model.
        input_schema: JSON Schema of its arguments.
        policy: The author's word on it. Without one it is a write that never runs twice, and a person is asked; a
            policy without a word on approval asks for everything but reads.
        asks: Whether the framework itself would ask, in some case.
        timeout_seconds: Longest time of one attempt.

    Raises:
        DefinitionError: The name is none that a model can be given.
    """
    effect = policy.effect if policy is not None else None
    effect = effect or ToolEffect.NON_IDEMPOTENT_WRITE
    said = policy.requires_approval if policy is not None else None
    approval: ApprovalRule = asks or effect is not ToolEffect.READ if said is None else said
    return ToolDefinition(
        name=name,
        description=description,
        input_schema=input_schema,
        effect=effect,
        approval=approval,
        timeout_seconds=timeout_seconds,
    )


def other_policies(
    policies: Mapping[str, ToolPolicy], source: FrameworkTools
) -> dict[str, ToolPolicy]:
    """Return the policies of tools that are not the framework's: `AgentDefinition` applies and checks them."""
    own = {definition.name for definition in source.definitions}
    return {name: policy for name, policy in policies.items() if name not in own}
