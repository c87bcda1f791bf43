"""SE-08: no address of an MCP server, nor a redirect or a name of it, leads to a host's secrets."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from pydantic import JsonValue, ValidationError

from celeriac.connectors.mcp_addresses import is_refused
from celeriac.sessions.errors import ToolFailed
from celeriac.sessions.tools import ToolResult
from tests.connectors.mcp_talk import http_server, odd_server, opened, outcome
from tests.mcp_servers.odd_http import OddHttp

METADATA = "169.254.169.254"


@pytest.mark.parametrize(
    "address",
    [METADATA, "169.254.170.2", "fe80::1%eth0", "::ffff:169.254.169.254", "fd00:ec2::254"],
)
def test_se_08_addresses_of_metadata_services_are_refused(address: str) -> None:
    assert is_refused(address)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.1.2.3", "192.168.0.9", "8.8.8.8"])
def test_se_08_addresses_that_an_operator_may_name(address: str) -> None:
    assert not is_refused(address)


@pytest.mark.parametrize("url", [f"http://{METADATA}/mcp", "http://[fd00:ec2::254]/mcp"])
def test_se_08_a_configured_metadata_address_is_never_connected_to(url: str) -> None:
    async def main() -> tuple[str, ...]:
        async with opened({"bad": http_server(url)}) as here:
            return await here.unlisted()

    (why,) = asyncio.run(main())
    assert "which is never connected to" in why


def test_se_08_a_name_that_leads_there_at_a_later_look_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    genuine = socket.getaddrinfo
    answers = ["127.0.0.1"]

    def looked_up(host: object, *arguments: object, **more: object) -> object:
        named = answers[0] if host == "tools.example" else host
        return genuine(named, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    with OddHttp() as odd:
        url = odd.url.replace("127.0.0.1", "tools.example")

        async def main() -> tuple[str, ...]:
            async with opened({"desk": http_server(url)}) as here:
                assert (await here.call("look")).value == "paid"
                answers[0] = METADATA
                here.source.forget_tools("desk")
                odd.cut_connections()
                async with asyncio.timeout(30):
                    while not (why := await here.unlisted()):
                        here.source.forget_tools("desk")
                return why

        (why,) = asyncio.run(main())
    assert f"tools.example is at {METADATA}" in why


def test_se_08_a_redirect_to_another_place_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESK_AUTHORIZATION", "Bearer sesame")
    with OddHttp() as odd, OddHttp() as other:

        async def main() -> None:
            server = http_server(odd.url, headers={"Authorization": "DESK_AUTHORIZATION"})
            async with opened({"desk": server}) as here:
                await here.tools()
                for target in (f"http://{METADATA}/latest/", other.url):
                    odd.plan.append(f"redirect:{target}")
                    end = await outcome(here.call("pay"))
                    assert isinstance(end, ToolFailed), end
                    assert "not followed" in str(end)

        asyncio.run(main())
        assert other.headers == [], "no request, and so no credential, went elsewhere"
        assert odd.calls == []


def test_se_08_what_a_result_links_to_is_told_and_not_fetched(tmp_path: Path) -> None:
    with OddHttp() as other:
        links: list[JsonValue] = [
            {"type": "resource_link", "uri": other.url, "name": "more"},
            {"type": "text", "text": f"![x]({other.url})"},
            {"type": "resource", "resource": {"uri": "file:///etc/passwd", "text": "a note"}},
        ]
        odd = odd_server(tmp_path / "odd")

        async def main() -> ToolResult:
            async with opened({"odd": odd.server}) as here:
                return await here.call("act", result={"content": links})

        asyncio.run(main())
        assert other.headers == []


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://h/x", "gopher://h", "//h/x"])
def test_se_08_a_configured_address_is_a_web_address(url: str) -> None:
    with pytest.raises(ValidationError):
        http_server(url)
