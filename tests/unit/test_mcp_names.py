"""Names that models read for tools of MCP servers (MC-10)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence

import pytest
from pydantic import JsonValue

from celeriac.connectors.mcp_names import SERVER_NAME_PATTERN, suffixed_name, tool_name
from celeriac.connectors.toolset import build_toolset
from celeriac.sessions.definition import AgentDefinition
from celeriac.sessions.model import ModelCall
from celeriac.sessions.tools import (
    TOOL_NAME_PATTERN,
    ToolContext,
    ToolDefinition,
    ToolListing,
    ToolResult,
    tool,
)

ODD = [
    "search",
    "admin.tools.list",
    "a/b",
    "a_b",
    "a.b",
    "two words",
    "Über",
    "検索",
    "",
    "x" * 90,
    "x" * 80 + "y" * 10,
    "x" * 55,
    "x" * 56,
]


def test_mc_10_names_are_unique_fit_every_provider_and_are_the_same_at_every_start() -> None:
    pairs = [(server, original) for server in ("tracker", "wiki") for original in ODD]
    first = {pair: tool_name(*pair) for pair in pairs}
    random.Random(1).shuffle(pairs)
    assert {pair: tool_name(*pair) for pair in pairs} == first
    assert len(set(first.values())) == len(first)
    for name in first.values():
        assert TOOL_NAME_PATTERN.fullmatch(name), name


def test_mc_10_a_name_that_fits_is_only_prefixed_and_others_say_where_they_come_from() -> None:
    assert tool_name("tracker", "search") == "tracker__search"
    assert tool_name("tracker", "a/b") == "tracker__a_b_e475177a"
    assert suffixed_name("tracker", "search").startswith("tracker__search_")


@pytest.mark.parametrize("name", ["git", "my-server", "a_b", "A1", "x" * 32])
def test_names_of_servers(name: str) -> None:
    assert SERVER_NAME_PATTERN.fullmatch(name)


@pytest.mark.parametrize("name", ["", "1a", "a__b", "a_", "_a", "a b", "a.b", "x" * 33, "ü"])
def test_a_name_that_would_make_names_of_tools_ambiguous_is_none(name: str) -> None:
    assert SERVER_NAME_PATTERN.fullmatch(name) is None


class TwoServers:
    """Both offer `search`; listed in an order of its own each time."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.called: list[ToolDefinition] = []

    async def list_tools(self) -> ToolListing:
        tools = [
            ToolDefinition(
                name=tool_name(server, "search"),
                alternative_name=suffixed_name(server, "search"),
                description="Search.",
                input_schema={"type": "object"},
                source=server,
                original_name="search",
            )
            for server in ("tracker", "wiki")
        ]
        self._random.shuffle(tools)
        return ToolListing(tools, ())

    async def call(
        self, tool: ToolDefinition, arguments: Mapping[str, JsonValue], context: ToolContext
    ) -> ToolResult:
        self.called.append(tool)
        return ToolResult("found")


@tool(name="tracker__search")
def own_search() -> str:
    """Search our own."""
    return "own"


def names_by_source(toolset_definitions: Sequence[ToolDefinition]) -> dict[str | None, str]:
    return {one.source: one.name for one in toolset_definitions}


def test_mc_10_a_clash_with_a_tool_of_the_agent_shadows_neither() -> None:
    seen = []
    for seed in range(4):
        source = TwoServers(seed)
        agent = AgentDefinition(
            name="a", instructions="", tools=[own_search], tool_sources=[source]
        )
        toolset = asyncio.run(build_toolset(agent))
        names = names_by_source(toolset.definitions)
        seen.append(names)
        planned = toolset.plan(ModelCall(name=names["tracker"], arguments="{}"), "t", 0)
        assert (planned.request.source, planned.request.original_name) == ("tracker", "search")
        ours = toolset.plan(ModelCall(name="tracker__search", arguments="{}"), "t", 0)
        assert ours.request.source is None
    assert seen[0] == {
        None: "tracker__search",
        "tracker": suffixed_name("tracker", "search"),
        "wiki": "wiki__search",
    }
    assert all(names == seen[0] for names in seen)
