"""Tools of a LangGraph graph: its runs stop where they are wanted, and our steps run them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Annotated, Any, NotRequired

from langchain.agents import AgentState
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.middleware.types import PrivateStateAttr
from langchain.tools.tool_node import ToolCallRequest
from langchain_core.messages import AIMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool, ToolException, tool as as_tool
from langgraph.errors import GraphInterrupt
from langgraph.types import Command, interrupt
from pydantic import JsonValue, ValidationError

from celeriac.sessions.errors import ToolFailed
from celeriac.sessions.jsonsafe import to_json_value
from celeriac.sessions.tools import ToolContext, ToolDefinition, ToolResult

__all__ = [
    "MARK",
    "DurableToolCalls",
    "DurableToolNode",
    "durable_tool_node",
    "extra_tools",
    "inside_the_run",
    "run_tool",
    "session_tools",
    "stopped_calls",
    "wanted_calls",
]

MARK = "celeriac_tool_calls"
"""A channel by which a graph is known that has `DurableToolCalls`."""

extra_tools: ContextVar[Sequence[ToolDefinition]] = ContextVar("extra_tools", default=())
"""What the step's session has beside the graph's own tools."""

stopped_calls: ContextVar[list[str] | None] = ContextVar("stopped_calls", default=None)
"""Ids of the calls that a run has stopped for; whoever catches the stop cannot make them unheard."""


class _State(AgentState[Any]):
    celeriac_tool_calls: NotRequired[Annotated[bool, PrivateStateAttr]]


class DurableToolCalls(AgentMiddleware[_State, Any, Any]):
    """Makes the tool calls of a `create_agent` agent steps of the session; the first in its list of middleware."""

    state_schema = _State

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Tell the model of the tools of connectors and MCP servers, too."""
        return await handler(request.override(tools=[*request.tools, *session_tools()]))

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """Stop the run; when it goes on, the result is there."""
        if request.tool is not None and inside_the_run(request.tool):
            return await handler(request)
        call = request.tool_call
        return _message(call, _results([call]))


class DurableToolNode(RunnableLambda[Any, Any]):
    """See `durable_tool_node`."""

    def __init__(self, tools: Sequence[BaseTool | Callable[..., Any]]) -> None:
        self.tools = [one if isinstance(one, BaseTool) else as_tool(one) for one in tools]
        super().__init__(_all_results, name="tools")


def durable_tool_node(tools: Sequence[BaseTool | Callable[..., Any]]) -> DurableToolNode:
    """Return the node of a graph that has its tools run by the session.

    It takes the place of `ToolNode`: it needs ``messages`` in the state, the last of them an `AIMessage` with
    tool calls, and adds a `ToolMessage` for each of them. Let it be a node of its own.

    Args:
        tools: The tools of the graph. The model must be told of them: ``model.bind_tools([*tools, *session_tools()])``.
    """
    return DurableToolNode(tools)


def session_tools() -> list[dict[str, Any]]:
    """Return the tools that the session adds by connectors and MCP servers, for ``bind_tools`` in a node.

    Returns:
        Declarations in the form of OpenAI, which `bind_tools` of every model takes; none outside of a session.
    """
    return [
        {
            "type": "function",
            "function": {
                "name": one.name,
                "description": one.description,
                "parameters": dict(one.input_schema),
            },
        }
        for one in extra_tools.get()
    ]


def _all_results(state: Any) -> dict[str, list[ToolMessage]]:
    messages = state["messages"] if isinstance(state, Mapping) else state.messages
    last = messages[-1]
    calls = last.tool_calls if isinstance(last, AIMessage) else []
    results = _results(calls)
    return {"messages": [_message(call, results) for call in calls]}


def _results(calls: Sequence[ToolCall]) -> Mapping[str, Mapping[str, str]]:
    """Stop, or go on with what is recorded: text and status by the id of the call."""
    wanted = [{"id": call["id"], "name": call["name"], "args": call["args"]} for call in calls]
    try:
        results: Mapping[str, Mapping[str, str]] = interrupt({MARK: wanted})
    except GraphInterrupt:
        stopped = stopped_calls.get()
        if stopped is not None:
            stopped += [str(call["id"]) for call in calls]
        raise
    return results


def _message(call: ToolCall, results: Mapping[str, Mapping[str, str]]) -> ToolMessage:
    result = results[call["id"] or ""]
    status = "success" if result["status"] == "success" else "error"
    return ToolMessage(
        result["text"], tool_call_id=call["id"] or "", name=call["name"], status=status
    )


def wanted_calls(value: object) -> list[dict[str, Any]] | None:
    """Return the calls that an interrupt is about; None for one that is not ours."""
    found = value.get(MARK) if isinstance(value, dict) else None
    return found if isinstance(found, list) else None


def inside_the_run(tool: BaseTool) -> bool:
    """Whether a tool does nothing but change the graph's state: LangChain's own list of things to do."""
    made_by = getattr(tool, "func", None) or getattr(tool, "coroutine", None) or type(tool)
    return str(getattr(made_by, "__module__", "")) == "langchain.agents.middleware.todo"


async def run_tool(
    tool: BaseTool, arguments: Mapping[str, JsonValue], context: ToolContext
) -> ToolResult:
    """Run one attempt of a tool, outside of any run of the graph.

    Args:
        tool: The tool.
        arguments: Its arguments.
        context: The call; the tool reads our Call ID as `InjectedToolCallId`.

    Raises:
        ToolFailed: The tool said that it failed, or the arguments do not fit.
        Exception: The tool broke.
    """
    call = {
        "type": "tool_call",
        "name": tool.name,
        "args": dict(arguments),
        "id": context.call_id,
    }
    try:
        returned = await tool.ainvoke(call)
    except ToolException as error:
        raise ToolFailed(str(error)) from error
    except ValidationError as error:
        if error.title == getattr(tool.args_schema, "__name__", None):
            raise ToolFailed(f"invalid arguments: {error}") from error
        raise
    if any(isinstance(one, Command) for one in _each(returned)):
        # Whatever it did is done, and no result says what; so it is no failure that is sure.
        raise TypeError(
            f"the tool {tool.name!r} returned a Command, which changes a graph: in a session let it return a value"
        )
    if isinstance(returned, ToolMessage):
        if returned.status == "error":
            raise ToolFailed(str(returned.text))
        return ToolResult(_value(returned.content))
    return ToolResult(to_json_value(str(returned)))


def _each(returned: object) -> Sequence[object]:
    return returned if isinstance(returned, list | tuple) else [returned]


def _value(content: object) -> JsonValue:
    """Return what a tool gave: LangChain writes what is no text down as JSON."""
    if isinstance(content, str) and content.lstrip()[:1] in {"{", "["}:
        try:
            return to_json_value(json.loads(content))
        except ValueError:
            return content
    return to_json_value(content)
