"""Agent definitions: what an author writes, checked when it is written."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from celeriac.sessions.built_in import BuiltInTool
from celeriac.sessions.errors import DefinitionError
from celeriac.sessions.harness import Harness
from celeriac.sessions.model import ModelClient
from celeriac.sessions.model_settings import ModelSettings
from celeriac.sessions.tools import DefinedToolSource, FunctionTool, ToolPolicy, ToolSource

__all__ = ["AgentDefinition", "CompactionPolicy"]

_AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """When older messages are summarised.

    Args:
        context_window_tokens: Tokens the model can read.
        threshold: Share of the window at which compaction starts; the rest is room for the answer.
        keep_recent_tokens: About how many tokens of the newest messages stay as they are; up to twice as
            many where that keeps a turn whole.
        delete_summarised: Whether older messages that a summary stands for are deleted, with the records
            of their calls; a while after the turn ended, and never the latest 200.

    Raises:
        DefinitionError: A value is out of range, or there would be nothing left to summarise.
    """

    context_window_tokens: int = 128_000
    threshold: float = 0.8
    keep_recent_tokens: int = 16_000
    delete_summarised: bool = False

    def __post_init__(self) -> None:
        if self.context_window_tokens < 1:
            raise DefinitionError(
                f"context_window_tokens is {self.context_window_tokens}; it must be positive"
            )
        if not 0 < self.threshold < 1:
            raise DefinitionError(f"threshold is {self.threshold}; it must be between 0 and 1")
        most = self.limit_tokens // 2
        if not 0 <= self.keep_recent_tokens <= most:
            raise DefinitionError(
                f"keep_recent_tokens is {self.keep_recent_tokens:,}; compaction starts at "
                f"{self.limit_tokens:,} tokens, so keep at most {most:,}"
            )

    @property
    def limit_tokens(self) -> int:
        """Size of a model request at which compaction starts."""
        return int(self.context_window_tokens * self.threshold)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDefinition:
    """An agent: its words, its models and its tools. Safe to change at any deploy.

    Args:
        name: How sessions refer to it; keep it stable.
        instructions: The system prompt; a change takes effect at the next model call of every session.
        models: Allowed models, the default first.
        model_clients: Clients of your own by model name; any other name goes to the worker's clients.
        model_settings: Temperature, reasoning effort and so on; for every model, or by model name.
        tools: Functions made by `tool`.
        tool_sources: Sources of more tools.
        tool_policies: Effect and approval of plain tools by name, over what the tool declares; of connector tools
            only the approval.
        built_in_tools: Which of Celeriac's own tools it has.
        plan_mode_enabled: Whether messages may ask for a plan first.
        compaction: When older messages are summarised; None never.
        max_model_calls_per_turn: Bound of one turn, against endless loops.
        description: A line for people choosing an agent.
        harness: Makes its model steps; None is Celeriac's own loop. The functions for other frameworks set it, e.g.
            `openai_agents_session`.

    Raises:
        DefinitionError: A name is malformed or used twice, or a policy names an unknown tool.
    """

    name: str
    instructions: str
    models: Sequence[str] = ("demo",)
    model_clients: Mapping[str, ModelClient] = field(default_factory=dict)
    model_settings: ModelSettings | Mapping[str, ModelSettings] = field(
        default_factory=ModelSettings
    )
    tools: Sequence[FunctionTool] = ()
    tool_sources: Sequence[ToolSource] = ()
    tool_policies: Mapping[str, ToolPolicy] = field(default_factory=dict)
    built_in_tools: frozenset[BuiltInTool] = frozenset()
    plan_mode_enabled: bool = False
    compaction: CompactionPolicy | None = None
    max_model_calls_per_turn: int = 100
    description: str = ""
    harness: Harness | None = None

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
        self._check_harness()
        self._check_tools()

    def settings_of(self, model: str) -> ModelSettings:
        """Return how the agent asks a model."""
        if isinstance(self.model_settings, ModelSettings):
            return self.model_settings
        return self.model_settings.get(model, ModelSettings())

    def _check_harness(self) -> None:
        if self.harness is None:
            return
        for what, given in (
            ("built_in_tools", self.built_in_tools),
            ("plan_mode_enabled", self.plan_mode_enabled),
            ("model_clients", self.model_clients),
            ("model_settings", self.model_settings != ModelSettings()),
            ("instructions", self.instructions),
        ):
            if given:
                raise DefinitionError(
                    f"agent {self.name}: `{what}` is for Celeriac's own loop; {self.harness.name} has its own way"
                )

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
        declared: set[str] = set()
        for source in self.tool_sources:
            definitions = source.definitions if isinstance(source, DefinedToolSource) else ()
            for name in (definition.name for definition in definitions):
                if name in names | declared:
                    raise DefinitionError(
                        f"agent {self.name}: two tools are named {name!r}; rename one"
                    )
                declared.add(name)
        self._check_policies(names, declared)

    def _check_policies(self, plain: Collection[str], declared: Collection[str]) -> None:
        for name, policy in self.tool_policies.items():
            if name not in plain and name not in declared:
                raise DefinitionError(
                    f"agent {self.name}: tool_policies names {name!r}, which is none of its plain or "
                    "connector tools"
                )
            if name in declared and policy.effect is not None:
                raise DefinitionError(
                    f"agent {self.name}: tool_policies sets the effect of {name!r}; a connector's manifest "
                    "alone does that"
                )
