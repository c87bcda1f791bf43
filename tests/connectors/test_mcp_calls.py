"""Calls over a pooled session: lost servers, limits, progress, cancel notices, processes that are left."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from celeriac.connectors.mcp_calls import LostCall
from celeriac.sessions.errors import ToolNotRun
from celeriac.sessions.tools import ToolResult
from tests.connectors.mcp_talk import alive, odd_server, opened, outcome, until


def test_every_attempt_carries_the_idempotency_key(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd")

    async def main() -> None:
        async with opened({"odd": odd.server}) as here:
            await here.call("act", key="key-7")
            await here.call("act", key="key-7")

    asyncio.run(main())
    assert [entry["key"] for entry in odd.journal("effect")] == ["key-7", "key-7"]


def test_a_server_that_died_between_calls_is_started_again(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd")

    async def main() -> None:
        async with opened({"odd": odd.server}) as here:
            await here.call("act", key="first")
            definition = (await here.tools())["act"]
            os.kill(odd.pids()[0], signal.SIGKILL)
            pool = here.source._pooled()[0]
            await until(
                lambda: pool._session is not None and not pool._session.usable, "it is lost"
            )
            end = await here.source.call(definition, {}, here.context("second"))
            assert end == ToolResult("done")

    asyncio.run(main())
    assert len(odd.pids()) == 2
    assert [entry["key"] for entry in odd.journal("effect")] == ["first", "second"]


def test_a_call_whose_server_dies_is_lost_and_is_not_sent_again(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd")

    async def main() -> None:
        async with opened({"odd": odd.server}) as here:
            for key, die, effects in (("a", "before", 0), ("b", "after", 1)):
                end = await outcome(here.call("act", key=key, die=die))
                assert isinstance(end, LostCall), end
                done = [entry for entry in odd.journal("effect") if entry["key"] == key]
                assert len(done) == effects
            assert (await here.call("act", key="c")).value == "done"

    asyncio.run(main())
    assert [entry["key"] for entry in odd.journal("entered")] == ["a", "b", "c"]


def test_a_server_that_dies_is_quoted_without_secrets(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd", env={"ODD_SECRET": "sesame-12"})

    async def main() -> None:
        async with opened({"odd": odd.server}) as here:
            end = await outcome(here.call("act", die="before"))
            assert isinstance(end, LostCall), end
            assert "MCP server odd: Connection closed" in str(end)
            assert "the end of its stderr: the key … is not valid" in str(end)

    asyncio.run(main())


def test_a_server_that_cannot_be_started_again_ran_nothing(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd")

    async def main() -> None:
        async with opened({"odd": odd.server}) as here:
            definition = (await here.tools())["act"]
            odd.server.args[-1] = str(tmp_path / "gone")
            os.kill(odd.pids()[0], signal.SIGKILL)
            pool = here.source._pooled()[0]
            await until(
                lambda: pool._session is not None and not pool._session.usable, "it is lost"
            )
            end = await outcome(here.source.call(definition, {}, here.context("k")))
            assert isinstance(end, ToolNotRun), end
            assert str(end).startswith("MCP server odd: ")

    asyncio.run(main())


def test_a_tool_that_changed_with_the_start_of_its_server_does_not_run(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd")

    async def main() -> None:
        async with opened({"odd": odd.server}) as here:
            definition = (await here.tools())["act"]
            odd.set_tools([{"name": "act", "description": "x", "inputSchema": {"type": "object"}}])
            os.kill(odd.pids()[0], signal.SIGKILL)
            pool = here.source._pooled()[0]
            await until(
                lambda: pool._session is not None and not pool._session.usable, "it is lost"
            )
            end = await outcome(here.source.call(definition, {}, here.context("k")))
            assert isinstance(end, ToolNotRun), end
            assert "its tool changed" in str(end)

    asyncio.run(main())
    assert odd.journal("entered") == []


def test_silence_ends_a_call_and_the_server_is_told(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd", idle_seconds=0.4)

    async def main() -> None:
        async with opened({"odd": odd.server}) as here:
            end = await outcome(here.call("act", gate="never"))
            assert isinstance(end, LostCall), end
            assert "no sign of life for 0.4 s" in str(end)
            await until(lambda: odd.journal("stopped"), "the server has stopped it")
            assert (await here.call("act", key="next")).value == "done"

    asyncio.run(main())
    assert len(odd.pids()) == 1, "a call that ran out of time does not end the session"


@pytest.mark.parametrize(("tool", "ends"), [("look", True), ("act", False)])
def test_a_stopped_turn_ends_a_read_and_lets_a_write_end_itself(
    tmp_path: Path, tool: str, ends: bool
) -> None:
    odd = odd_server(tmp_path / "odd")

    async def main() -> None:
        async with opened({"odd": odd.server}) as here:
            definition = (await here.tools())[tool]
            context = here.context("k")
            call = asyncio.create_task(
                outcome(here.source.call(definition, {"gate": "go"}, context))
            )
            await until(lambda: odd.journal("entered"), "it runs")
            context.cancelled.set()
            if ends:
                end = await call
                assert isinstance(end, LostCall)
                assert "it was stopped" in str(end)
                await until(lambda: odd.journal("stopped"), "the server has stopped it")
            odd.open_gate("go")
            if not ends:
                assert await call == ToolResult("done")
            assert (await here.call("act", key="next")).value == "done"

    asyncio.run(main())


def test_progress_is_a_sign_of_life_and_is_shown(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd", idle_seconds=1)

    async def main() -> None:
        async with opened({"odd": odd.server}) as here:
            end = await here.call("act", progress=8, every=0.25)
            assert end.value == "done"
            assert here.progress[-1] == "8 of 9: so far"

    asyncio.run(main())


def test_progress_does_not_lengthen_the_longest_time(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd", idle_seconds=1, total_seconds=1.5)

    async def main() -> None:
        async with opened({"odd": odd.server}) as here:
            end = await outcome(here.call("act", progress=1000, every=0.02))
            assert isinstance(end, LostCall), end
            assert "no end within 1.5 s" in str(end)
            await until(lambda: odd.journal("cancelled"), "the server was told")

    asyncio.run(main())


def test_a_call_that_never_had_its_turn_did_not_run(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd", max_concurrent_calls=1, total_seconds=1)

    async def main() -> None:
        async with opened({"odd": odd.server}) as here:
            (server,) = here.source._pooled()
            async with server.slots:
                end = await outcome(here.call("act", key="b"))
            assert isinstance(end, ToolNotRun), end
            assert "busy with 1 other calls" in str(end)
            assert (await here.call("act", key="c")).value == "done"

    asyncio.run(main())
    assert [entry["key"] for entry in odd.journal("entered")] == ["c"]


def test_many_calls_share_one_session_opened_once(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd")

    async def main() -> None:
        async with opened({"odd": odd.server}) as here:
            ends = await asyncio.gather(*(here.call("act", key=f"k{i}") for i in range(40)))
            assert all(end.value == "done" for end in ends)

    asyncio.run(main())
    assert len(odd.pids()) == 1
    assert len(odd.journal("list")) == 1
    assert len({entry["key"] for entry in odd.journal("effect")}) == 40


def test_closing_ends_the_whole_process_group(tmp_path: Path) -> None:
    odd = odd_server(tmp_path / "odd", env={"ODD_STAYS": "1"})

    async def main() -> None:
        async with opened({"odd": odd.server}) as here:
            await here.call("act", child=True)

    asyncio.run(main())
    (child,) = odd.journal("child")
    assert not alive(odd.pids()[0])
    assert not alive(int(str(child["child"])))
    assert odd.journal("end"), "it saw the end of its input first"
