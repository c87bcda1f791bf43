"""MC-02: a server that fills stderr, prints junk on stdout, sends huge lines and splits characters."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from pydantic import JsonValue

from tests.connectors.mcp_talk import odd_server, opened


def test_mc_02_a_call_succeeds_whatever_else_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd = odd_server(tmp_path / "odd", env={"ODD_SECRET": "hunter-2-secret"})

    async def main() -> None:
        async with opened({"odd": odd.server}) as here:
            for _ in range(3):
                assert (await here.call("look", noise="stderr")).value == "done"
            assert (await here.call("look", noise="junk")).value == "done"
            text: JsonValue = {"content": [{"type": "text", "text": "für uns"}]}
            assert (await here.call("look", noise="split", result=text)).value == "für uns"
            long: JsonValue = {"content": [{"type": "text", "text": "y" * 2_000_000}]}
            assert (await here.call("look", result=long)).value == "y" * 2_000_000

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    junk = [
        record.getMessage() for record in caplog.records if "is no message" in record.getMessage()
    ]
    assert len(junk) == 3, junk
    assert len(odd.pids()) == 1, "one server, which never had to be started again"


def test_mc_02_what_is_kept_of_stderr_is_bounded_and_without_secrets(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd", env={"ODD_SECRET": "hunter-2-secret", "ODD_START": "fail"})

    async def main() -> None:
        async with opened({"odd": odd.server}) as here:
            (why,) = await here.unlisted()
            assert why.startswith("MCP server odd: "), why
            assert "the end of its stderr: odd: the database password is …" in why
            assert "hunter" not in why
            assert len(why) < 700

    asyncio.run(main())
