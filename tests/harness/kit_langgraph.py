"""An agent of LangChain's create_agent."""

from __future__ import annotations

from langchain.agents import create_agent

from celeriac import AgentDefinition, CompactionPolicy, DurableToolCalls, langgraph_session
from tests.harness.langchain_model import ScriptModel
from tests.harness.tools import POLICIES, broke, look, missing, pay, sources

NAME = "langgraph"


def _agent(name: str, compaction: CompactionPolicy | None = None) -> AgentDefinition:
    model = ScriptModel(speaker=NAME)
    return langgraph_session(
        name=name,
        graph=create_agent(
            model,
            [look, pay, missing, broke],
            system_prompt="You are a clerk.",
            middleware=[DurableToolCalls()],
        ),
        model=model,
        tool_policies=POLICIES,
        tool_sources=sources(),
        compaction=compaction,
    )


agent = _agent(NAME)
small = _agent(f"{NAME}-small", CompactionPolicy(context_window_tokens=600, keep_recent_tokens=20))
