"""OAuth behind real workers: who is told of a missing login, and where no token ever is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from celeriac.sessions.calls import CallStatus
from tests.connectors.mcp_talk import http_server
from tests.mcp_servers.oauth_world import World, world
from tests.tasks.cluster import PATIENCE
from tests.tasks.mcp_cluster import McpCluster
from tests.tasks.mcp_terminal import Terminal
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("mcp")]

LOGIN = {"grant": "authorization_code"}
ECHO = '/tool guarded__echo {"text": "in"}'


@pytest.fixture
def here() -> Iterator[World]:
    with world() as made:
        yield made


def missing(cluster: McpCluster) -> str:
    return " ".join(line for agent in cluster.client.agents() for line in agent.missing_tools)


def notes(cluster: McpCluster, session_id: str) -> str:
    return " ".join(step.note for step in cluster.client.steps(session_id) if step.note)


def test_workers_wait_for_no_login_and_use_it_once_it_is_there(tmp_path: Path, here: World) -> None:
    servers = {"guarded": http_server(here.url, oauth=LOGIN)}
    with McpCluster(tmp_path / "cluster", servers) as cluster:
        cluster.start_workers(2)
        wait_until(
            lambda: (
                "nobody has logged in to it: run `celeriac mcp login guarded`" in missing(cluster)
            ),
            "the page names the server that wants a login",
            timeout_seconds=PATIENCE,
        )
        session_id = cluster.say("Hello", agent="librarian")
        assert cluster.idle(session_id).messages[-1].text, "the agent answers"
        assert "run `celeriac mcp login guarded`" in notes(cluster, session_id)
        with Terminal(cluster.root, cluster.env).logging_in() as login:
            httpx.get(login.way_back())
            assert login.end()[0] == 0
        cluster.await_tool("guarded__echo")
        # Both workers meet the end of the token at once, again and again.
        for _ in range(3):
            here.access.clear()
            sessions = [cluster.say(ECHO, agent="librarian") for _ in range(8)]
            for one in sessions:
                assert cluster.idle(one).calls[0].status is CallStatus.SUCCEEDED
        assert "refresh_token 400" not in here.grants, "each refresh token was used once"
        here.revoke_everything()
        call = cluster.idle(cluster.say(ECHO, agent="librarian")).calls[0]
        assert call.status is CallStatus.FAILED
        assert "run `celeriac mcp login guarded`" in str(call)

        def told() -> bool:
            # Each worker learns of it with its own first call.
            cluster.idle(cluster.say(ECHO, agent="librarian"))
            return "run `celeriac mcp login guarded`" in missing(cluster)

        wait_until(told, "the page names the server that is missing", timeout_seconds=PATIENCE)
        _no_secret_is_there(cluster, here)


def _no_secret_is_there(cluster: McpCluster, here: World) -> None:
    places = [*cluster.root.glob("*.log"), *(cluster.root / "data").rglob("*")]
    written = {place: place.read_bytes() for place in places if place.is_file()}
    assert any(b"guarded__echo" in text for place, text in written.items() if "aof" in place.name)
    for secret in here.issued:
        for place, text in written.items():
            assert secret.encode() not in text, place
