"""The examples load as the worker loads them, and their tools run."""

from __future__ import annotations

import asyncio
from inspect import isawaitable
from pathlib import Path

import pytest

from celeriac.connectors.mcp_source import McpToolSource
from celeriac.connectors.order_support.desk import OrderDesk
from celeriac.connectors.sdk.source import ConnectorToolSource
from celeriac.connectors.toolset import build_toolset
from celeriac.sessions.registry import load_agents
from celeriac.sessions.settings import load_settings
from celeriac.sessions.tools import ToolContext, ToolResult, needs_approval

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


@pytest.mark.parametrize(
    ("folder", "package"),
    [
        ("openai_agents", "agents"),
        ("google_adk", "google.adk"),
        ("langgraph", "langgraph"),
        ("pydantic_ai", "pydantic_ai"),
    ],
)
def test_the_desk_is_the_same_in_every_framework(
    folder: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(package)
    monkeypatch.setenv("CELERIAC_ORDER_DESK", str(tmp_path / "desk.sqlite"))
    [agent] = load_agents(str(EXAMPLES / folder)).values()

    async def run() -> None:
        toolset = await build_toolset(agent)
        asks = {one.name: one.approval for one in toolset.definitions}
        assert asks == {"look_up_order": False, "set_note": False, "cancel_order": True}
        context = ToolContext(session_id="s", call_id="call_7", idempotency_key="call_7", attempt=1)
        cancel = toolset.get("cancel_order")
        assert cancel is not None
        done = cancel.invoke({"order_id": "1003"}, context)
        assert isawaitable(done)
        result = await done
        assert isinstance(result, ToolResult)
        assert isinstance(result.value, dict)
        assert result.value["status"] == "cancelled"

    asyncio.run(run())
    assert [one.call_id for one in OrderDesk(tmp_path / "desk.sqlite").effects()] == ["call_7"]
