"""A graph of LangGraph's own making: a node for the model, and one for all tools of a response."""

from __future__ import annotations

from typing import Any

from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition

from celeriac import (
    AgentDefinition,
    CompactionPolicy,
    durable_tool_node,
    langgraph_session,
    session_tools,
)
from tests.harness.langchain_model import ScriptModel
from tests.harness.tools import POLICIES, broke, look, missing, pay, sources

NAME = "custom-langgraph"
TOOLS = [look, pay, missing, broke]


def _agent(name: str, compaction: CompactionPolicy | None = None) -> AgentDefinition:
    model = ScriptModel(speaker=NAME)

    async def ask(state: MessagesState) -> dict[str, Any]:
        bound = model.bind_tools([*TOOLS, *session_tools()])
        return {"messages": [await bound.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", durable_tool_node(TOOLS))
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", tools_condition)
    graph.add_edge("tools", "ask")
    return langgraph_session(
        name=name,
        graph=graph.compile(),
        model=model,
        tool_policies=POLICIES,
        tool_sources=sources(),
        compaction=compaction,
    )


agent = _agent(NAME)
small = _agent(f"{NAME}-small", CompactionPolicy(context_window_tokens=600, keep_recent_tokens=20))
