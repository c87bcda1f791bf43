"""Tools of ADK agents: which of them cannot run in a session, and how they run in our steps."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from inspect import isawaitable
from typing import Any

import pytest

pytest.importorskip("google.adk")

from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.code_executors import UnsafeLocalCodeExecutor
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.google_search_tool import google_search
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext as FrameworkContext
from pydantic import BaseModel, JsonValue

from celeriac import (
    DefinitionError,
    ToolContext,
    ToolEffect,
    ToolFailed,
    ToolPolicy,
    ToolResult,
    google_adk_session,
)
from celeriac.connectors.toolset import build_toolset
from tests.harness.adk_steps import call_tool, llm, look, says, session, text

# What is to replace them cannot be a sub-agent yet.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")


READ = ToolPolicy(effect=ToolEffect.READ)


# --- what cannot run durably


class Tools(BaseToolset):
    async def get_tools(self, readonly_context: Any = None) -> list[Any]:
        return []


def other(item: str) -> str:
    """Look another item up."""
    return item


other.__name__ = "look"


def lookalike() -> None:
    """Exit."""


lookalike.__name__ = "exit_loop"


def pieces() -> Iterator[str]:
    """Yield pieces."""
    yield "one"


class Undeclared(BaseTool):
    def __init__(self) -> None:
        super().__init__(name="quiet", description="Changes the request.")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: "an agent", "str is no agent of ADK"),
        (lambda: SequentialAgent(name="s"), "no LlmAgent"),
        (lambda: LlmAgent(name="x", model="nonsense"), "its model"),
        (
            lambda: llm("x", says(), code_executor=UnsafeLocalCodeExecutor()),
            "UnsafeLocalCodeExecutor",
        ),
        (lambda: llm("x", says(), before_tool_callback=lambda *_: None), "before_tool_callback"),
        (lambda: llm("x", says(), tools=[google_search]), "GoogleSearchTool"),
        (lambda: llm("x", says(), tools=[Tools()]), "toolset"),
        (lambda: llm("x", says(), tools=[LongRunningFunctionTool(look)]), "long running"),
        (
            lambda: llm("x", says(), sub_agents=[llm("y", says(), tools=[other])]),
            "two tools are named 'look'",
        ),
        (lambda: llm("x", says(), tools=[lookalike]), "by which ADK steers itself"),
        (lambda: llm("x", says(), tools=[Undeclared()]), "not declared"),
        (lambda: llm("x", says(), tools=[pieces]), "yields"),
    ],
    ids=[
        "no agent",
        "no model agent",
        "no model",
        "runs code",
        "tool callback",
        "hosted tool",
        "toolset",
        "long running",
        "equal names",
        "name of ADK's own",
        "no declaration",
        "generator",
    ],
)
def test_what_would_not_be_durable_is_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        google_adk_session(name="a", agent=make())


def test_a_confirmation_that_the_tool_asks_for_stays() -> None:
    agent = llm("x", says(), tools=[FunctionTool(look, require_confirmation=True)])
    definition = google_adk_session(name="a", agent=agent, tool_policies={"look": READ})
    [found] = asyncio.run(build_toolset(definition)).definitions
    assert (found.effect, found.approval) == (ToolEffect.READ, True)


# --- tools in our steps


def test_a_tool_that_asks_by_itself_runs_when_it_was_approved() -> None:
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = llm("x", says(), tools=[FunctionTool(pay, require_confirmation=True)])
    assert call_tool(session(agent), "pay") == "paid"


def test_arguments_that_do_not_fit_are_a_failure() -> None:
    def pay(bill: Bill) -> str:
        """Pay."""
        raise AssertionError("it is not to be entered")

    with pytest.raises(ToolFailed, match="total"):
        call_tool(session(llm("x", says(), tools=[pay])), "pay", bill={"total": "much"})


def test_a_tool_that_blocks_holds_nothing_up() -> None:
    loop_runs = threading.Event()

    def wait() -> bool:
        """Wait."""
        return loop_runs.wait(20)

    async def run() -> JsonValue:
        found = (await build_toolset(session(llm("x", says(), tools=[wait])))).get("wait")
        assert found is not None
        context = ToolContext(session_id="s", call_id="call_1", idempotency_key="call_1", attempt=1)
        value = found.invoke({}, context)
        assert isawaitable(value)
        running = asyncio.ensure_future(value)
        await asyncio.sleep(0)
        loop_runs.set()
        result = await running
        assert isinstance(result, ToolResult)
        return result.value

    assert asyncio.run(run()) is True


class Bill(BaseModel):
    total: int


def test_a_tool_knows_its_call_id() -> None:
    def who(times: int, tool_context: FrameworkContext) -> dict[str, str]:
        """Say who."""
        return {"said": (tool_context.function_call_id or "") * times}

    definition = session(llm("x", says(), tools=[who]))
    assert call_tool(definition, "who", times=2) == {"said": "call_1call_1"}
    [declared] = asyncio.run(build_toolset(definition)).definitions
    assert list(declared.input_schema["properties"]) == ["times"]  # type: ignore[arg-type]


def test_a_failure_is_no_result() -> None:
    def fail(how: str) -> str:
        """Fail."""
        raise ToolFailed("certainly not") if how == "ours" else ValueError("perhaps")

    definition = session(llm("x", says(), tools=[fail]))
    with pytest.raises(ToolFailed, match="certainly"):
        call_tool(definition, "fail", how="ours")
    with pytest.raises(ValueError, match="perhaps"):
        call_tool(definition, "fail", how="broken")


@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated")
def test_an_agent_as_a_tool_runs_whole_in_its_step() -> None:
    helper = LlmAgent(name="helper", description="Helps.", model=says([text("42")]))
    definition = session(llm("x", says(), tools=[AgentTool(helper)]))
    assert call_tool(definition, "helper", request="what?") == "42"
