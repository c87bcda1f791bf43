"""Lists of tools: pages, what is kept and what is left out, effects, freshness, and servers that cannot list."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from pydantic import JsonValue

from celeriac.connectors.mcp_names import suffixed_name
from celeriac.connectors.mcp_tap import usable_tools
from celeriac.connectors.toolset import build_toolset
from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.definition import AgentDefinition
from celeriac.sessions.errors import ToolFailed
from celeriac.sessions.model import ModelCall
from celeriac.sessions.tools import ToolDefinition
from tests.connectors.mcp_talk import TOOLS, Odd, odd_server, opened, outcome

OBJECT: JsonValue = {"type": "object"}


def a_tool(name: str, **more: JsonValue) -> dict[str, JsonValue]:
    return {"name": name, "inputSchema": OBJECT, **more}


def listed(odd: Odd, tools: Sequence[JsonValue]) -> Mapping[str, ToolDefinition]:
    odd.set_tools(list(tools))

    async def main() -> Mapping[str, ToolDefinition]:
        async with opened({"odd": odd.server}) as here:
            return await here.tools()

    return asyncio.run(main())


def test_all_pages_are_read(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd", env={"ODD_PAGE": "7"})
    tools = listed(odd, [a_tool(f"t{number}") for number in range(30)])
    assert set(tools) == {f"t{number}" for number in range(30)}
    assert len(odd.journal("list")) == 5


@pytest.mark.parametrize("trusted", [True, False])
def test_an_effect_follows_hints_only_where_they_are_trusted(tmp_path: Path, trusted: bool) -> None:
    odd = odd_server(tmp_path / "odd", trust_annotations=trusted)
    hints: dict[str, JsonValue] = {
        "read": {"readOnlyHint": True},
        "idempotent": {"idempotentHint": True},
        "both": {"readOnlyHint": False, "idempotentHint": True},
        "nearly": {"readOnlyHint": "true"},
        "one": {"readOnlyHint": 1},
        "none": {},
        "null": {"readOnlyHint": None},
    }
    tools = listed(odd, [a_tool(name, annotations=hint) for name, hint in hints.items()])
    once = ToolEffect.NON_IDEMPOTENT_WRITE
    expected = dict.fromkeys(hints, once)
    if trusted:
        repeated = ToolEffect.IDEMPOTENT_WRITE
        expected |= {"read": ToolEffect.READ, "idempotent": repeated, "both": repeated}
    assert {name: tool.effect for name, tool in tools.items()} == expected
    assert all(tool.approval is (tool.effect is once) for tool in tools.values())


def test_rules_of_the_configuration_choose_tools_and_approval(tmp_path: Path) -> None:
    rules = {"allow": ["a*", "b"], "deny": ["ab"], "approval": {"ac": "never", "b": "always"}}
    odd = odd_server(tmp_path / "odd", tools=rules)
    tools = listed(
        odd,
        [a_tool(name) for name in ("aa", "ab", "ac", "c")]
        + [a_tool("b", annotations={"readOnlyHint": True})],
    )
    assert {name: tool.approval for name, tool in tools.items()} == {
        "aa": True,
        "ac": False,
        "b": True,
    }


def test_odd_tools_are_kept_or_left_out_with_a_warning_that_names_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd = odd_server(tmp_path / "odd")
    kept: list[JsonValue] = [
        {"name": "no-schema"},
        a_tool("no-type", inputSchema={"properties": {"a": {"type": "string"}}}),
        a_tool(
            "draft-7",
            inputSchema={"type": "object", "$schema": "http://json-schema.org/draft-07/schema#"},
        ),
        a_tool(
            "tuple-of-draft-7",
            inputSchema={
                "$schema": "http://json-schema.org/draft-07/schema#",
                "type": "object",
                "properties": {"a": {"type": "array", "items": [{"type": "string"}]}},
            },
        ),
        a_tool(
            "own-reference",
            inputSchema={
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/a"}},
                "$defs": {"a": {"type": "object", "properties": {"again": {"$ref": "#/$defs/a"}}}},
            },
        ),
        a_tool("odd-output", outputSchema="text"),
        a_tool("odd-hints", annotations={"readOnlyHint": "yes", "title": 7}),
        a_tool("more", icons=17, execution="?", _meta=None, title=["x"]),
        a_tool("anything", inputSchema={"type": "object", "properties": {"a": True}}),
    ]
    left_out: list[JsonValue] = [
        "no tool",
        {"inputSchema": OBJECT},
        a_tool("list-schema", inputSchema=[]),
        a_tool("text-schema", inputSchema={"type": "string"}),
        a_tool(
            "elsewhere", inputSchema={"type": "object", "properties": {"a": {"$ref": "http://h/s"}}}
        ),
        a_tool(
            "nowhere", inputSchema={"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}}
        ),
        a_tool(
            "in-circles",
            inputSchema={
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/a"}},
                "$defs": {"a": {"$ref": "#/$defs/a"}},
            },
        ),
        a_tool(
            "no-json-schema", inputSchema={"type": "object", "properties": {"a": {"type": "words"}}}
        ),
        a_tool(
            "bad-pattern", inputSchema={"type": "object", "properties": {"a": {"pattern": "("}}}
        ),
        a_tool("too-large", inputSchema={"type": "object", "description": "x" * 70_000}),
        a_tool("nul\0", inputSchema=OBJECT),
    ]
    with caplog.at_level(logging.WARNING):
        tools = listed(odd, [*left_out, *kept, a_tool("more", description="a second one")])
    assert set(tools) == {str(entry["name"]) for entry in kept if isinstance(entry, dict)}
    warnings = [record.getMessage() for record in caplog.records]
    assert all("odd" in warning for warning in warnings)
    for entry in left_out[2:]:
        assert isinstance(entry, dict)
        name = repr(entry["name"])
        assert any(name in warning for warning in warnings), name
    for name in ("no-schema", "odd-output", "odd-hints", "more"):
        assert any(repr(name) in warning for warning in warnings), name
    assert tools["odd-hints"].effect is ToolEffect.NON_IDEMPOTENT_WRITE
    assert tools["no-type"].input_schema["type"] == "object"


def test_a_page_that_holds_no_object_is_no_tool() -> None:
    assert usable_tools("s", [None, 7, [], {}, {"name": 5}, {"name": ""}]) == []


def test_of_two_tools_with_one_name_for_models_the_same_one_is_left_out_always(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Somebody who knows the rule can name a tool after another one's digits.
    taken = suffixed_name("odd", "a/b").removeprefix("odd__")
    for number, names in enumerate((["a/b", taken], [taken, "a/b"])):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            tools = listed(odd_server(tmp_path / str(number) / "odd"), [a_tool(n) for n in names])
        assert set(tools) == {"a/b"}
        assert f"tool '{taken}': it has the same name for models as 'a/b'" in caplog.text


def test_arguments_are_checked_before_anything_is_sent(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd")
    schema: JsonValue = {
        "type": "object",
        "properties": {"amount": {"type": "integer", "minimum": 1}},
        "required": ["amount"],
    }
    odd.set_tools([a_tool("pay", inputSchema=schema)])

    async def main() -> list[str | None]:
        async with opened({"odd": odd.server}) as here:
            agent = AgentDefinition(name="a", instructions="", tool_sources=[here.source])
            toolset = await build_toolset(agent)
            calls = (
                ModelCall("odd__pay", text) for text in ("{}", '{"amount": 0}', '{"amount": 3}')
            )
            return [toolset.plan(call, "t", 0).refused for call in calls]

    missing, small, fine = asyncio.run(main())
    assert missing is not None
    assert "'amount' is a required property" in missing
    assert small is not None
    assert "$.amount: 0 is less than the minimum of 1" in small
    assert fine is None


def test_a_list_is_used_until_the_server_tells_of_a_change(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd", env={"ODD_TELLS": "1"})

    async def main() -> None:
        async with opened({"odd": odd.server}) as here:
            for _ in range(5):
                assert set(await here.tools()) == {"act", "look"}
            assert len(odd.journal("list")) == 1
            odd.set_tools([*TOOLS, a_tool("new")])
            await here.call("look", changes=10)
            assert set(await here.tools()) == {"act", "look", "new"}

    asyncio.run(main())
    assert len(odd.journal("list")) <= 3, "ten notices are not ten lists"


def test_a_list_that_is_old_is_read_anew(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd", list_seconds=0.2)

    async def main() -> None:
        async with opened({"odd": odd.server}) as here:
            await here.tools()
            odd.set_tools([a_tool("new")])

            async def renewed() -> bool:
                return set(await here.tools()) == {"new"}

            async with asyncio.timeout(30):
                while not await renewed():
                    await asyncio.sleep(0.05)

    asyncio.run(main())


def test_a_server_that_is_slow_is_waited_for_meanwhile(tmp_path: Path) -> None:
    slow = odd_server(tmp_path / "slow", env={"ODD_LIST": "hang"}, connect_seconds=1)
    odd = odd_server(tmp_path / "odd")

    async def main() -> None:
        async with opened({"odd": odd.server, "slow": slow.server}) as here:
            here.source._patience = 0.2
            whys: set[str] = set()
            async with asyncio.timeout(30):
                while len(whys) < 2:
                    listing = await here.source.list_tools()
                    whys |= set(listing.unlisted)
            assert {"odd__act", "odd__look"} == {
                tool.name for tool in (await here.source.list_tools()).tools
            }
            assert whys == {
                "MCP server slow: not ready after 0.2 s; it is waited for meanwhile",
                "MCP server slow: no list of its tools within 1 s",
            }

    asyncio.run(main())


def test_a_server_that_failed_is_tried_again_by_itself(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd")
    script = odd.server.args[1]
    odd.server.args[1] = str(tmp_path / "not-there-yet.py")

    async def main() -> None:
        async with opened({"odd": odd.server}) as here:
            assert await here.tools() == {}
            odd.server.args[1] = script
            async with asyncio.timeout(30):
                while not await here.tools():
                    await asyncio.sleep(0.05)
            assert await here.unlisted() == ()

    asyncio.run(main())


def test_resources_and_prompts_have_tools_where_a_server_has_them(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd", env={"ODD_RESOURCES": "1"})
    plain = odd_server(tmp_path / "plain")

    async def main() -> None:
        async with opened({"plain": plain.server}) as here:
            assert set(await here.tools()) == {"act", "look"}
        async with opened({"odd": odd.server}, resources=False) as here:
            assert set(await here.tools()) == {"act", "look"}
        async with opened({"odd": odd.server, "plain": plain.server}) as here:
            tools = await here.tools()
            reads = {"mcp_list_resources", "mcp_read_resource", "mcp_get_prompt"}
            assert reads <= set(tools)
            assert all(tools[name].effect is ToolEffect.READ for name in reads)
            everything = (await here.call("mcp_list_resources")).value
            note: JsonValue = {"name": "note", "uri": "note://1"}
            by_uri: JsonValue = {"name": "any", "uriTemplate": "note://{id}"}
            prompt: JsonValue = {"name": "greet", "arguments": [{"name": "who"}]}
            nothing: JsonValue = {"resources": [], "resource_templates": [], "prompts": []}
            offered: JsonValue = {
                "resources": [note, {"name": "second", "uri": "note://2"}],
                "resource_templates": [by_uri],
                "prompts": [prompt],
            }
            assert everything == {"odd": offered, "plain": nothing}
            assert (await here.call("mcp_list_resources", server="odd")).value == offered
            text = await here.call("mcp_read_resource", server="odd", uri="note://1")
            assert text.value == "the note"
            end = await outcome(here.call("mcp_read_resource", server="odd", uri="note://9"))
            assert isinstance(end, ToolFailed)
            assert str(end) == "no such resource"
            got = await here.call(
                "mcp_get_prompt", server="odd", name="greet", arguments={"who": "Ana"}
            )
            assert got.value == [{"role": "user", "content": "Greet Ana."}]
            end = await outcome(here.call("mcp_read_resource", server="else", uri="x"))
            assert isinstance(end, ToolFailed)
            assert "there is no MCP server 'else'; there are odd, plain" in str(end)

    asyncio.run(main())
