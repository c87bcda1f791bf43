"""A server made with the official SDK, over both transports, in its newest and its older protocol."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import httpx
import pytest

from celeriac.connectors.mcp_config import McpServer, StdioServer
from celeriac.sessions.calls import ToolEffect
from tests import mcp_servers
from tests.connectors.mcp_talk import http_server, opened
from tests.tasks.cluster import free_port
from tests.waiting import wait_until

SCRIPT = str(Path(mcp_servers.__file__).with_name("sdk_server.py"))


@contextmanager
def serving(transport: str, protocol: Literal["auto", "legacy"]) -> Iterator[McpServer]:
    if transport == "stdio":
        yield StdioServer(
            command=sys.executable,
            args=[SCRIPT, "stdio"],
            trust_annotations=True,
            protocol=protocol,
        )
        return
    port = free_port()
    with subprocess.Popen([sys.executable, SCRIPT, "http", str(port)]) as process:
        try:
            url = f"http://127.0.0.1:{port}/mcp"
            wait_until(lambda: answers(url), "the server answers", timeout_seconds=60)
            yield http_server(url, protocol=protocol)
        finally:
            process.kill()


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code > 0
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_everything_works_over_both_transports_and_protocols(
    transport: str, protocol: Literal["auto", "legacy"]
) -> None:
    async def main(server: McpServer) -> None:
        async with opened({"sdk": server}, resources=False) as here:
            tools = await here.tools()
            assert set(tools) == {"echo", "key", "count", "grow"}
            assert tools["echo"].effect is ToolEffect.READ
            assert tools["grow"].effect is ToolEffect.IDEMPOTENT_WRITE
            (pooled,) = here.source._pooled()
            assert pooled._session is not None
            version = pooled._session.client.protocol_version
            assert version == ("2026-07-28" if protocol == "auto" else "2025-11-25")
            assert (await here.call("echo", text="Grüße")).value == "Grüße"
            meta = (await here.call("key", key="key-3")).value
            assert isinstance(meta, dict)
            assert isinstance(meta["meta"], dict)
            assert meta["meta"]["celeriac/idempotencyKey"] == "key-3"
            assert (await here.call("count", to=3)).value == 3
            assert here.progress[-1] == "3 of 3: counting"
            assert (await here.call("grow", key="key-4")).value == "grown"
            async with asyncio.timeout(30):
                while "late" not in await here.tools():
                    await asyncio.sleep(0.05)
            assert (await here.call("late")).value == "here now"

    with serving(transport, protocol) as server:
        asyncio.run(main(server))
