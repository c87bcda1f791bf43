"""MC-08: a Streamable HTTP server that forgets its sessions, and one whose answers get lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from celeriac.connectors.mcp_calls import LostCall
from celeriac.sessions.errors import ToolNotRun
from tests.connectors.mcp_talk import OpenSource, http_server, opened, outcome
from tests.mcp_servers.odd_http import OddHttp

Value = TypeVar("Value")


@pytest.fixture
def odd() -> Iterator[OddHttp]:
    with OddHttp() as server:
        yield server


def using(odd: OddHttp, work: Callable[[OpenSource], Awaitable[Value]]) -> Value:
    async def main() -> Value:
        async with opened({"desk": http_server(odd.url)}) as here:
            return await work(here)

    return asyncio.run(main())


def test_mc_08_a_an_expired_session_is_renewed_and_the_call_sent_once_more(odd: OddHttp) -> None:
    async def work(here: OpenSource) -> None:
        await here.call("pay", key="first")
        odd.plan.append("forget")
        assert (await here.call("pay", key="second")).value == "paid"

    using(odd, work)
    assert odd.calls == ["first", "second"]
    assert [key for key, _ in odd.requests] == ["first", "second", "second"]
    assert odd.handshakes == 2


def test_mc_08_b_five_calls_that_meet_an_expired_session_share_one_handshake(odd: OddHttp) -> None:
    async def work(here: OpenSource) -> None:
        await here.call("pay", key="first")
        odd.sessions.clear()
        ends = await asyncio.gather(*(here.call("pay", key=f"k{i}") for i in range(5)))
        assert [end.value for end in ends] == ["paid"] * 5

    using(odd, work)
    assert sorted(odd.calls) == ["first", "k0", "k1", "k2", "k3", "k4"]
    assert odd.handshakes == 2


def test_mc_08_c_a_session_that_is_refused_again_did_not_run_the_call(odd: OddHttp) -> None:
    async def work(here: OpenSource) -> None:
        await here.tools()
        odd.plan.extend(["forget", "forget"])
        end = await outcome(here.call("pay", key="k"))
        assert isinstance(end, ToolNotRun), end
        assert "does not know the session any more" in str(end)

    using(odd, work)
    assert odd.calls == []
    assert len(odd.requests) == 2


@pytest.mark.parametrize(
    ("plan", "effects"),
    [("cut", 0), ("cut_after", 1), ("half", 1), ("sse_cut", 1), ("status:502", 0)],
)
def test_mc_08_d_a_cut_connection_leaves_the_call_unknown_and_it_is_never_sent_again(
    odd: OddHttp, plan: str, effects: int
) -> None:
    async def work(here: OpenSource) -> None:
        await here.tools()
        odd.plan.append(plan)
        end = await outcome(here.call("pay", key="k"))
        assert isinstance(end, LostCall), end
        # The session is as good as before: only the one request was lost.
        assert (await here.call("pay", key="next")).value == "paid"

    using(odd, work)
    assert odd.calls == ["k"] * effects + ["next"]
    assert [key for key, _ in odd.requests] == ["k", "next"]
    assert odd.handshakes == 1


def test_a_lost_request_does_not_take_its_neighbours_with_it(odd: OddHttp) -> None:
    async def work(here: OpenSource) -> None:
        await here.tools()
        odd.plan.extend(["ok", "cut", "ok", "cut", "ok"])
        ends = await asyncio.gather(*(outcome(here.call("pay", key=f"k{i}")) for i in range(5)))
        assert sum(isinstance(end, LostCall) for end in ends) == 2, ends
        assert len(odd.calls) == 3

    using(odd, work)


def test_a_server_that_is_down_ran_nothing_and_its_tools_are_left_out(odd: OddHttp) -> None:
    async def work(here: OpenSource) -> None:
        pay = (await here.tools())["pay"]
        odd.stop()
        end = await outcome(here.source.call(pay, {}, here.context("k")))
        assert isinstance(end, ToolNotRun), end
        assert "it cannot be reached" in str(end)
        assert await here.tools() == {}
        (why,) = await here.unlisted()
        assert why.startswith("MCP server desk: ")

    using(odd, work)


def test_too_many_requests_is_no_effect_and_the_wait_is_passed_on(odd: OddHttp) -> None:
    async def work(here: OpenSource) -> None:
        await here.tools()
        odd.plan.append("retry:7")
        end = await outcome(here.call("pay", key="k"))
        assert isinstance(end, ToolNotRun), end
        assert end.retry_after_seconds == 7

    using(odd, work)
    assert odd.calls == []


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_are_told_as_such(odd: OddHttp, status: int) -> None:
    async def work(here: OpenSource) -> None:
        await here.tools()
        odd.plan.append(f"status:{status}")
        end = await outcome(here.call("pay", key="k"))
        assert isinstance(end, ToolNotRun), end
        assert f"refuses this worker's credentials (HTTP {status})" in str(end)

    using(odd, work)


def test_headers_hold_the_values_of_the_workers_variables(
    odd: OddHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK_AUTHORIZATION", "Bearer sesame-1")

    async def main() -> None:
        server = http_server(odd.url, headers={"Authorization": "DESK_AUTHORIZATION"})
        async with opened({"desk": server}) as here:
            await here.call("look")
            # Rotated: the next session has the new value.
            monkeypatch.setenv("DESK_AUTHORIZATION", "Bearer sesame-2")
            odd.sessions.clear()
            await here.call("look")

    asyncio.run(main())
    assert odd.headers[0]["authorization"] == "Bearer sesame-1"
    assert odd.headers[-1]["authorization"] == "Bearer sesame-2"
