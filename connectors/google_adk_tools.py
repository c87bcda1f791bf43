"""Tools of ADK agents: its runs stop where they are wanted, and our steps run them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Final
from uuid import uuid4

from google.adk.agents import BaseAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins import BasePlugin
from google.adk.sessions import InMemorySessionService
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.exit_loop_tool import exit_loop
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.set_model_response_tool import SetModelResponseTool
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.adk.tools.tool_context import ToolContext as FrameworkContext
from google.adk.tools.transfer_to_agent_tool import TransferToAgentTool
from google.genai import types
from pydantic import JsonValue

from celeriac.sessions.errors import ToolFailed
from celeriac.sessions.jsonsafe import to_json_value
from celeriac.sessions.tools import ToolContext, ToolDefinition, ToolResult

__all__ = [
    "CONTROL",
    "StepTools",
    "Stopping",
    "input_schema",
    "is_control",
    "run_tool",
    "step_tools",
]

CONTROL: Final = frozenset({"exit_loop", "set_model_response", "transfer_to_agent"})
"""Names of ADK's tools that do nothing but steer ADK itself; they run inside its run."""


_ENDS = frozenset({"exit_loop", "set_model_response"})


def is_control(tool: BaseTool) -> bool:
    """Say whether a tool is one of those. A name is not enough: a server may call a tool of its own so, too."""
    if isinstance(tool, SetModelResponseTool | TransferToAgentTool):
        return True
    return isinstance(tool, FunctionTool) and tool.func is exit_loop


class _Elsewhere(BaseTool):
    """A tool whose result comes later: ADK then ends its run, and goes on when the result is among the events."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, description="", is_long_running=True)

    async def run_async(self, **_: Any) -> None:
        """Do nothing."""


class _Declared(BaseTool):
    """A tool of the session, for the model to know of."""

    def __init__(self, tool: ToolDefinition) -> None:
        super().__init__(name=tool.name, description=tool.description)
        self._schema = dict(tool.input_schema)

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._schema
        )


class StepTools:
    """What a run of one step must know.

    Args:
        tools: Those of the session beside the agents' own.
        used_ids: Ids of earlier calls: providers use them again, and ADK takes such a call for one that is answered.
    """

    def __init__(self, tools: Sequence[ToolDefinition], used_ids: set[str]) -> None:
        self.declared: list[BaseTool] = [_Declared(tool) for tool in tools]
        self.used_ids = used_ids
        self.model_calls = 0
        self.tools_of: dict[str, dict[str, BaseTool]] = {}
        """What each agent's request has in the place of its tools."""


step_tools: ContextVar[StepTools] = ContextVar("step_tools")
"""Those of the run that goes on here."""


class Stopping(BasePlugin):
    """Ends a run where the model wants tools."""

    def __init__(self) -> None:
        super().__init__(name="celeriac")

    async def before_model_callback(
        self,
        *,
        callback_context: CallbackContext,
        llm_request: LlmRequest,
    ) -> None:
        """Tell the model of the session's tools, and take from ADK those that it could run."""
        step = step_tools.get()
        step.model_calls += 1
        llm_request.append_tools(step.declared)
        for name, tool in llm_request.tools_dict.items():
            if not is_control(tool):
                llm_request.tools_dict[name] = _Elsewhere(name)
        step.tools_of[callback_context.agent_name] = llm_request.tools_dict

    async def after_model_callback(
        self,
        *,
        callback_context: CallbackContext,
        llm_response: LlmResponse,
    ) -> None:
        """Give every call an id of its own, and let those of unknown names end the run, too.

        ADK would answer these itself and ask the model again, in the same step, without an end.
        """
        step = step_tools.get()
        used, tools = step.used_ids, step.tools_of[callback_context.agent_name]
        parts = llm_response.content.parts if llm_response.content else None
        calls = [part.function_call for part in parts or [] if part.function_call]
        if llm_response.partial:
            return
        if llm_response.content is not None and len(calls) > 1:
            llm_response.content.parts = _without_end(parts or [])
        # Two of one id in one response stay: which result is whose could not be told.
        taken = {call.id for call in calls if call.id in used}
        for call in calls:
            tools.setdefault(call.name or "", _Elsewhere(call.name or ""))
            if call.id in taken:
                call.id = f"call_{uuid4().hex}"
            if call.id:
                used.add(call.id)

    async def before_tool_callback(
        self,
        *,
        tool: BaseTool,
        tool_args: dict[str, Any],  # noqa: ARG002 - the framework's
        tool_context: FrameworkContext,  # noqa: ARG002 - the framework's
    ) -> None:
        """See that no tool but ADK's own ever runs here."""
        if not (isinstance(tool, _Elsewhere) or is_control(tool)):
            raise RuntimeError(f"{tool.name} would have run inside the model's step")


def _without_end(parts: Sequence[types.Part]) -> list[types.Part]:
    """Leave out what would end the agent's work while calls of it wait; with their results it can say so again."""
    calls = [part.function_call for part in parts if part.function_call]
    if all(call.name in CONTROL for call in calls):
        return list(parts)
    return [part for part in parts if not (part.function_call and part.function_call.name in _ENDS)]


def input_schema(tool: BaseTool) -> dict[str, JsonValue]:
    """Return the JSON Schema of a tool's arguments."""
    declared = tool._get_declaration()  # noqa: SLF001 - the method that a tool of ADK overrides
    if declared is not None and declared.parameters_json_schema is not None:
        schema = to_json_value(declared.parameters_json_schema)
    elif declared is not None and declared.parameters is not None:
        schema = to_json_value(declared.parameters.json_schema.model_dump(exclude_none=True))
    else:
        schema = None
    return schema if isinstance(schema, dict) else {"type": "object", "properties": {}}


async def run_tool(
    tool: BaseTool, root: BaseAgent, arguments: Mapping[str, JsonValue], context: ToolContext
) -> ToolResult:
    """Run one attempt of a tool, outside of any run of the agents.

    Args:
        tool: The tool.
        root: The root agent.
        arguments: Its arguments.
        context: The call; the tool reads our Call ID as ``tool_context.function_call_id``.

    Raises:
        ToolFailed: The tool said that it failed, or the arguments do not fit.
        Exception: The tool broke.
    """
    service = InMemorySessionService()
    session = await service.create_session(app_name="celeriac", user_id="user")
    invocation = InvocationContext(
        session_service=service, invocation_id=context.call_id, agent=root, session=session
    )
    given = FrameworkContext(
        invocation_context=invocation,
        function_call_id=context.call_id,
        # Whoever was to be asked has been asked before the step.
        tool_confirmation=ToolConfirmation(confirmed=True),
    )
    running = partial(tool.run_async, args=dict(arguments), tool_context=given)
    if isinstance(tool, FunctionTool):
        _require_fit(tool, dict(arguments))
        if not iscoroutinefunction(tool.func):
            # One that blocks would hold up all else that this process does.
            result = await asyncio.to_thread(lambda: asyncio.run(running()))
            return ToolResult(to_json_value(result))
    return ToolResult(to_json_value(await running()))


def _require_fit(tool: FunctionTool, arguments: dict[str, Any]) -> None:
    """Check arguments by the function's annotations; ADK would pass on what it cannot convert.

    Raises:
        ToolFailed: They do not fit.
    """
    given = tool._preprocess_args(arguments)  # noqa: SLF001 - run_async does it, and says nothing
    _, wrong = tool._validate_args(given, tool._spec.type_hints.items())  # noqa: SLF001
    if wrong:
        raise ToolFailed("\n".join(wrong))
