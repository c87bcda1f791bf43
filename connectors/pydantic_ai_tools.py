"""Tools of a Pydantic AI agent: stopped in its runs, and run in our steps, with its validation and hooks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import JsonValue
from pydantic_ai import Agent, DeferredToolResults, RunContext, ToolApproved, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

from celeriac.sessions.errors import ToolFailed
from celeriac.sessions.jsonsafe import to_json_value
from celeriac.sessions.tools import ToolContext, ToolResult

__all__ = ["Stopping", "call_tool"]


class _Anything:
    """Takes whatever a model wrote as arguments.

    What is wrong with them is found and recorded by our step; the run would ask the model once more at once.
    """

    def validate_json(self, input: str | bytes | bytearray, **_: Any) -> Any:  # noqa: A002 - the framework's
        try:
            return json.loads(input)
        except ValueError:
            return {}

    def validate_python(self, input: Any, **_: Any) -> Any:  # noqa: A002 - the framework's
        return input


@dataclass
class _OfKind(WrapperToolset[Any]):
    """The tools of a toolset, all of one kind."""

    kind: Literal["external", "unapproved"] = "external"

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        tools = await super().get_tools(ctx)
        return {name: self._changed(tool) for name, tool in tools.items()}

    def _changed(self, tool: ToolsetTool[Any]) -> ToolsetTool[Any]:
        definition: ToolDefinition = replace(tool.tool_def, kind=self.kind)
        if self.kind == "unapproved":
            return replace(tool, tool_def=definition)
        return replace(
            tool, tool_def=definition, args_validator=_Anything(), args_validator_func=None
        )


class Stopping(AbstractCapability[Any]):
    """A run ends where the model wants tools."""

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Make every tool one that somebody else runs."""
        return _OfKind(toolset, kind="external")


class _Approved(AbstractCapability[Any]):
    """Nothing runs but the call that is approved."""

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Make every tool one that asks."""
        return _OfKind(toolset, kind="unapproved")


async def call_tool(
    agent: Agent[Any, Any],
    make_deps: Callable[[], object],
    name: str,
    arguments: Mapping[str, JsonValue],
    context: ToolContext,
) -> ToolResult:
    """Run one attempt through the agent, as far as the tool's result and no further: no model is asked.

    Args:
        agent: Whose tool it is.
        make_deps: Makes the deps of a run.
        name: The tool.
        arguments: Its arguments.
        context: The call; the tool reads our Call ID as `tool_call_id`.

    Raises:
        ToolFailed: The tool said that it failed, or the arguments do not fit.
        Exception: The tool broke.
    """
    call_id = context.call_id
    history: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(f"Run {name}.")]),
        ModelResponse(parts=[ToolCallPart(name, dict(arguments), tool_call_id=call_id)]),
    ]
    async with agent.iter(
        None,
        message_history=history,
        deps=make_deps(),
        capabilities=[_Approved()],
        deferred_tool_results=DeferredToolResults(approvals={call_id: ToolApproved()}),
    ) as run:
        node = run.next_node
        while not Agent.is_end_node(node):
            if Agent.is_model_request_node(node) and _result_in(node.request, call_id) is not None:
                return _outcome(node.request, call_id)
            node = await run.next(node)
    raise AssertionError(f"the run of {name} ended without its result")


def _result_in(request: ModelRequest, call_id: str) -> ToolReturnPart | None:
    results = (part for part in request.parts if isinstance(part, ToolReturnPart))
    return next((part for part in results if part.tool_call_id == call_id), None)


def _outcome(request: ModelRequest, call_id: str) -> ToolResult:
    result = _result_in(request, call_id)
    if result is None:
        raise AssertionError(f"no result of {call_id}")
    if result.outcome != "success":
        raise ToolFailed(result.model_response_str(wrap_if_error=False))
    value = to_json_value(result.content)
    more = [
        to_json_value(part.content) for part in request.parts if isinstance(part, UserPromptPart)
    ]
    # A rich return tells the model something beside the result; the record has room for one value.
    return ToolResult({"result": value, "content": more} if more else value)
