"""The examples load as the worker loads them, and their tools run."""

from __future__ import annotations

from pathlib import Path

import pytest

from celeriac.connectors.mcp_source import McpToolSource
from celeriac.connectors.sdk.source import ConnectorToolSource
from celeriac.sessions.registry import load_agents
from celeriac.sessions.settings import load_settings
from celeriac.sessions.tools import ToolContext, needs_approval

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_first_agent_counts_and_asks_before_it_orders() -> None:
    [shop] = load_agents(str(EXAMPLES / "first_agent" / "agent.py")).values()
    count, order = shop.tools
    context = ToolContext(session_id="s", call_id="c", idempotency_key="c", attempt=1)
    assert count.invoke({"item": "seeds"}, context) == 40
    assert not needs_approval(count.definition.approval, {})
    assert needs_approval(order.definition.approval, {"item": "seeds", "amount": 1})


def test_the_agent_with_mcp_servers_loads_with_its_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = EXAMPLES / "mcp_servers"
    monkeypatch.setenv("CELERIAC_MCP_CONFIG", str(folder / "mcp.yaml"))
    monkeypatch.setenv("MEMORY_FILE", "memory.jsonl")
    load_settings.cache_clear()
    try:
        [keeper] = load_agents(str(folder / "agent.py")).values()
    finally:
        load_settings.cache_clear()
    [source] = keeper.tool_sources
    assert isinstance(source, McpToolSource)
    assert list(source.servers) == ["git", "files", "memory"]


def test_the_support_desk_asks_before_large_refunds() -> None:
    [support] = load_agents(str(EXAMPLES / "support_desk" / "agent.py")).values()
    [source] = support.tool_sources
    assert isinstance(source, ConnectorToolSource)
    tools = {definition.name: definition for definition in source.definitions}
    refund = tools["stripe_create_refund"].approval
    assert not needs_approval(refund, {"payment": "ch_1", "amount": 5000})
    assert needs_approval(refund, {"payment": "ch_1", "amount": 5001})
    assert needs_approval(refund, {"payment": "ch_1"}), "all of it may be much"
    assert tools["slack_post_thread_reply"].approval is True
    assert tools["sql_note_refund"].approval is False


def test_the_demo_agent_is_found_by_its_module() -> None:
    assert list(load_agents("celeriac.connectors.order_support")) == ["order-support"]
