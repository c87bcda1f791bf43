"""MC-06: every form of an answer ends as what it is."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest
from pydantic import JsonValue

from celeriac.connectors.mcp_calls import LostCall
from celeriac.sessions.errors import ToolFailed
from celeriac.sessions.jsonsafe import to_json_value
from celeriac.sessions.media import without_media
from celeriac.sessions.tools import ToolResult
from tests.connectors.mcp_talk import TOOLS, odd_server, opened, outcome

IMAGE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 200).decode()
TEXT: JsonValue = {"type": "text", "text": "it is so"}
SCHEMA: JsonValue = {
    "type": "object",
    "properties": {"state": {"type": "string"}},
    "required": ["state"],
}


def told(folder: Path, tool: str = "act", **arguments: JsonValue) -> ToolResult | Exception:
    odd = odd_server(folder / "odd")
    strict: JsonValue = {
        "name": "strict",
        "inputSchema": {"type": "object"},
        "outputSchema": SCHEMA,
    }
    odd.set_tools([*TOOLS, strict])

    async def main() -> ToolResult | Exception:
        async with opened({"odd": odd.server}) as here:
            end = await outcome(here.call(tool, "k", **arguments))
            # Whatever came, the next call of the same session is not touched by it.
            assert (await here.call("look")).value == "done"
            return end

    end = asyncio.run(main())
    assert len(odd.journal("effect")) == 2, "an answer of whatever form is never asked for twice"
    return end


@pytest.mark.parametrize(
    ("result", "value"),
    [
        ({"content": [], "structuredContent": {"state": "ok"}}, {"state": "ok"}),
        ({"content": [TEXT]}, "it is so"),
        ({"content": [TEXT, TEXT]}, "it is so\nit is so"),
        ({"content": []}, "(the tool returned nothing)"),
        (
            {
                "content": [{"type": "text", "text": '{"state": "ok"}'}],
                "structuredContent": {"state": "ok"},
            },
            {"state": "ok"},
        ),
        (
            {"content": [TEXT], "structuredContent": {"state": "ok"}},
            {"content": "it is so", "structured_content": {"state": "ok"}},
        ),
        (
            {"content": [TEXT, {"type": "image", "mimeType": "image/png", "data": IMAGE}]},
            [TEXT, "[image: image/png, 208 bytes; not shown to the model]"],
        ),
        (
            {
                "content": [
                    {"type": "resource", "resource": {"uri": "note://1", "text": "a note"}},
                    {
                        "type": "resource",
                        "resource": {
                            "uri": "file://x",
                            "mimeType": "application/pdf",
                            "blob": IMAGE,
                        },
                    },
                    {"type": "resource_link", "uri": "http://h/secret", "name": "more"},
                ]
            },
            [
                {"type": "resource", "uri": "note://1", "text": "a note"},
                {
                    "type": "resource",
                    "uri": "file://x",
                    "mimeType": "application/pdf",
                    "content": "[application/pdf, 208 bytes; not shown to the model]",
                },
                {"type": "resource_link", "uri": "http://h/secret", "name": "more"},
            ],
        ),
    ],
)
def test_mc_06_what_the_model_reads(tmp_path: Path, result: JsonValue, value: JsonValue) -> None:
    end = told(tmp_path, result=result)
    assert isinstance(end, ToolResult)
    assert not end.is_error
    assert without_media(to_json_value(end.value)) == value


@pytest.mark.parametrize(
    ("result", "value"),
    [
        ({"content": [TEXT], "isError": True}, "it is so"),
        ({"content": [], "isError": True}, "the tool says that it failed, without a message"),
        (
            {"content": [], "structuredContent": {"state": "bad"}, "isError": True},
            {"state": "bad"},
        ),
    ],
)
def test_mc_06_a_flagged_error_is_one_and_has_words(
    tmp_path: Path, result: JsonValue, value: JsonValue
) -> None:
    assert told(tmp_path, result=result) == ToolResult(value, is_error=True)


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({"content": [], "structuredContent": {"state": 7}}, "does not fit the tool's own schema"),
        ({"content": [TEXT]}, "sent no structured content"),
    ],
)
def test_mc_06_a_result_that_breaks_its_schema_is_a_success_with_a_warning(
    tmp_path: Path, result: JsonValue, why: str
) -> None:
    end = told(tmp_path, "strict", result=result)
    assert isinstance(end, ToolResult)
    assert not end.is_error
    assert isinstance(end.value, dict)
    assert why in str(end.value["warning"])
    assert end.value["result"] in ("it is so", {"state": 7})


@pytest.mark.parametrize("code", [-32602, -32603, -32000, -32001, 17])
def test_mc_06_a_json_rpc_error_is_a_failure(tmp_path: Path, code: int) -> None:
    end = told(tmp_path, error={"code": code, "message": "no such order"})
    assert isinstance(end, ToolFailed)
    assert str(end) == "no such order"


def test_mc_06_an_answer_that_is_no_result_leaves_a_write_unknown(tmp_path: Path) -> None:
    end = told(tmp_path, result={"content": "none"})
    assert isinstance(end, LostCall)
    assert "answered what the protocol does not allow: " in str(end)
