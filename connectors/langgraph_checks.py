"""What of a graph cannot run durably, as far as its definition shows it."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from langchain.tools import InjectedState, InjectedStore, ToolRuntime
from langchain_core.runnables import Runnable, RunnableBinding, RunnableParallel
from langchain_core.tools import BaseTool
from langgraph.types import Command, interrupt

__all__ = ["hosted_tools", "interrupts_itself", "parts_of", "why_not_durable"]


def parts_of(node: Runnable[Any, Any]) -> list[Runnable[Any, Any]]:
    """Return a node, what it is put together from, and the runnables that its function names."""
    found: list[Runnable[Any, Any]] = []
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if any(part is one for one in found):
            continue
        found.append(part)
        waiting += _within(part)
    return found


def _within(part: Runnable[Any, Any]) -> Iterator[Runnable[Any, Any]]:
    if isinstance(part, BaseTool):
        return
    if isinstance(part, RunnableBinding):
        yield part.bound
    elif isinstance(part, RunnableParallel):
        yield from part.steps__.values()
    for one in [*(getattr(part, "steps", None) or ()), *_named_by(part).values()]:
        if isinstance(one, Runnable):
            yield one
        elif isinstance(owner := getattr(one, "__self__", None), Runnable):
            yield owner


def interrupts_itself(part: object) -> bool:
    """Whether a function of it names LangGraph's ``interrupt``."""
    return any(one is interrupt for one in _named_by(part).values())


def hosted_tools(part: Runnable[Any, Any]) -> list[str]:
    """Return the tools that the provider of the model would run, where the model is told of them."""
    if isinstance(part, RunnableBinding):
        told = part.kwargs.get("tools")
    else:
        # The node of create_agent that asks the model.
        told = _named_by(part).get("default_tools")
    tools = told if isinstance(told, list) else []
    return [_name(one) for one in tools if isinstance(one, dict) and not _is_declared(one)]


def _is_declared(tool: Mapping[str, Any]) -> bool:
    """Whether it is a function's declaration, in the form of any provider."""
    if "type" in tool:
        return tool["type"] in {"function", "custom"}
    return "name" in tool or "function" in tool or "title" in tool


def _name(tool: Mapping[str, Any]) -> str:
    return str(tool.get("type") or next(iter(tool), "?"))


def _named_by(part: object) -> dict[str, object]:
    """Return what the functions of a node, or of a tool, name of the world around them."""
    found: dict[str, object] = {}
    for name in ("func", "afunc", "coroutine", "_run", "_arun"):
        function = getattr(part, name, None)
        while isinstance(function, functools.partial):
            function = function.func
        if function is not None and not inspect.isroutine(function):
            function = function.__call__
        try:
            used = inspect.getclosurevars(inspect.unwrap(function)) if function else None
        except (TypeError, ValueError):
            used = None  # of no code in Python, or with a variable that is not set yet
        if used is not None:
            found |= {**used.globals, **used.nonlocals}
    return found


def why_not_durable(tool: BaseTool) -> str | None:
    """Say what of a tool cannot be had outside of a run of the graph; None when it can run in a step."""
    if interrupts_itself(tool):
        return "asks by interrupt(), which is in the run alone: leave it out, and say in tool_policies that it asks"
    for name, hint in _hints(tool):
        if name == "return":
            if _mentions(hint, Command):
                return "returns a Command, which changes the graph: return a value"
            continue
        for what in (ToolRuntime, InjectedState, InjectedStore):
            if _mentions(hint, what):
                return f"takes {what.__name__} as {name!r}, which is in the run alone: give the value as an argument"
    return None


def _hints(tool: BaseTool) -> Iterator[tuple[str, object]]:
    functions = [getattr(tool, name, None) for name in ("coroutine", "func")]
    if not any(functions):
        functions = [getattr(type(tool), name) for name in ("_run", "_arun")]
    if isinstance(tool.args_schema, type):
        functions.append(tool.args_schema)
    for function in functions:
        if function is not None:
            yield from _annotations(function).items()


def _annotations(function: Any) -> Mapping[str, object]:
    try:
        return typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    except (NameError, TypeError):
        return dict(getattr(function, "__annotations__", {}))


def _mentions(hint: object, what: type) -> bool:
    if isinstance(hint, str):
        return what.__name__ in hint
    if hint is what or isinstance(hint, what):
        return True
    return any(_mentions(part, what) for part in _parts(hint))


def _parts(hint: object) -> Iterator[object]:
    yield from typing.get_args(hint)
    yield from getattr(hint, "__metadata__", ())
    origin = typing.get_origin(hint)
    if origin is not None and origin is not Annotated:
        yield origin
