"""Agent definitions: what an author writes, checked when it is written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from celeriac.sessions.built_in import BuiltInTool
from celeriac.sessions.errors import DefinitionError
from celeriac.sessions.model import ModelClient
from celeriac.sessions.tools import FunctionTool, ToolPolicy, ToolSource

__all__ = ["AgentDefinition", "CompactionPolicy"]

_AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """When older messages are summarised.

    Args:
        context_window_tokens: Tokens the model can read.
        threshold: Share of the window at which compaction starts.
        keep_recent_tokens: Tokens of the newest messages that are never summarised.
    """

    context_window_tokens: int = 128_000
    threshold: float = 0.8
    keep_recent_tokens: int = 16_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDefinition:
    """An agent: its words, its models and its tools. Safe to change at any deploy.

    Args:
        name: How sessions refer to it; keep it stable.
        instructions: The system prompt; a change takes effect at the next model call of every session.
        models: Allowed models, the default first.
        model_clients: Clients of your own by model name; any other name goes to the worker's clients.
        tools: Functions made by `tool`.
        tool_sources: Sources of more tools.
        tool_policies: Effect and approval of plain tools by name, over what the tool declares.
        built_in_tools: Which of Celeriac's own tools it has.
        plan_mode_enabled: Whether messages may ask for a plan first.
        compaction: When older messages are summarised; None never.
        max_model_calls_per_turn: Bound of one turn, against endless loops.
        description: A line for people choosing an agent.

    Raises:
        DefinitionError: A name is malformed or used twice, or a policy names an unknown tool.
    """

    name: str
    instructions: str
    models: Sequence[str] = ("demo",)
    model_clients: Mapping[str, ModelClient] = field(default_factory=dict)
    tools: Sequence[FunctionTool] = ()
    tool_sources: Sequence[ToolSource] = ()
    tool_policies: Mapping[str, ToolPolicy] = field(default_factory=dict)
    built_in_tools: frozenset[BuiltInTool] = frozenset()
    plan_mode_enabled: bool = False
    compaction: CompactionPolicy | None = None
    max_model_calls_per_turn: int = 100
    description: str = ""

    def __post_init__(self) -> None:
        if _AGENT_NAME.fullmatch(self.name) is None:
            raise DefinitionError(
                f"{self.name!r} is no agent name: use at most 64 letters, digits, '.', '_' or '-'"
            )
        if isinstance(self.models, str):
            raise DefinitionError(
                f"agent {self.name}: `models` is {self.models!r}; write a list: [{self.models!r}]"
            )
        if not self.models:
            raise DefinitionError(f"agent {self.name}: `models` is empty; name at least one")
        if self.plan_mode_enabled and BuiltInTool.WRITE_TODOS not in self.built_in_tools:
            raise DefinitionError(
                f"agent {self.name}: plan_mode_enabled needs BuiltInTool.WRITE_TODOS in built_in_tools"
            )
        self._check_tools()

    def _check_tools(self) -> None:
        names: set[str] = {built_in.value for built_in in self.built_in_tools}
        for entry in self.tools:
            if not isinstance(entry, FunctionTool):
                raise DefinitionError(
                    f"agent {self.name}: {entry!r} is no tool; decorate the function with @tool"
                )
            if entry.definition.name in names:
                raise DefinitionError(
                    f"agent {self.name}: two tools are named {entry.definition.name!r}; rename one"
                )
            names.add(entry.definition.name)
        for unknown in set(self.tool_policies) - names:
            raise DefinitionError(
                f"agent {self.name}: tool_policies names {unknown!r}, which is none of its plain tools"
            )
