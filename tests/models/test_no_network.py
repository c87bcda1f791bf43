"""Workers with litellm ask nobody but the store and the model; the web never loads litellm."""

from __future__ import annotations

import ast
import ipaddress
import json
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from tests.models.aimock import Aimock
from tests.models.dialects import DIALECTS, environment
from tests.node_tools import needs_node_tools
from tests.tasks.cluster import CHECKOUT, PATIENCE, Cluster
from tests.waiting import wait_until

pytestmark = [
    needs_node_tools,
    pytest.mark.skipif(find_spec("litellm") is None, reason="needs the extra litellm"),
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("no-network"),
]

# Every process of Python runs this first. A line is short, so that appending it is one write.
WATCH = """
import atexit, json, os, sys

def _note(event, arguments):
    if event in {"socket.connect", "socket.sendto"}:
        target = arguments[1]
    elif event in {"socket.getaddrinfo", "socket.gethostbyname"}:
        target = arguments[0]
    else:
        return
    line = repr((event, target)).encode() + b"\\n"
    name = os.path.join(os.environ["WATCHED"], "sockets")
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, line)
    os.close(file)

sys.addaudithook(_note)

@atexit.register
def _tell():
    loaded = sorted({name.partition(".")[0] for name in sys.modules})
    with open(os.path.join(os.environ["WATCHED"], f"{os.getpid()}.json"), "w") as file:
        json.dump({"argv": sys.argv, "loaded": loaded}, file)
"""


@pytest.fixture(scope="module")
def watched(running_aimock: Aimock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A worker that forks, started where nobody has told litellm anything."""
    folder = tmp_path_factory.mktemp("watched")
    (folder / "sitecustomize.py").write_text(WATCH)
    env = {
        **environment(running_aimock.url),
        "PYTHONPATH": os.pathsep.join([str(folder), str(CHECKOUT)]),
        "WATCHED": str(folder),
        "CELERIAC_WORKER_POOL": "prefork",
        "CELERIAC_WORKER_CONCURRENCY": "1",
    }
    agents = str(Path(__file__).with_name("shop_agents.py"))
    with Cluster(folder / "cluster", agents=agents, env=env) as cluster:
        for name in list(cluster.env):
            if name.startswith("LITELLM_"):  # the client set them in this process
                del cluster.env[name]
        cluster.start_worker()
        wait_until(cluster.client.agents, "agents are told", timeout_seconds=PATIENCE)
        yield cluster


@pytest.fixture(autouse=True)
def script(running_aimock: Aimock) -> None:
    running_aimock.reset()
    running_aimock.script({"match": {}, "response": {"content": "Hello."}})


def is_local(target: object) -> bool:
    host = target[0] if isinstance(target, tuple) else target
    if host is None or (isinstance(target, str) and target.startswith("/")):
        return True  # any address of this machine, or a socket in the file system
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(str(host)).is_loopback
    except ValueError:
        return False


def test_a_worker_asks_nobody_but_its_store_and_its_model(
    watched: Cluster, running_aimock: Aimock
) -> None:
    for dialect in DIALECTS:
        made = watched.client.create_session(agent="shop", message="hi", model=dialect.model)
        assert watched.answer(made.session_id) == "Hello."
    seen = (watched.root.parent / "sockets").read_text()
    targets = [target for _, target in map(ast.literal_eval, seen.splitlines())]
    ports = {target[1] for target in targets if isinstance(target, tuple)}
    assert int(running_aimock.url.rpartition(":")[2]) in ports, "the hook sees nothing"
    assert [target for target in targets if not is_local(target)] == []


def test_the_web_serves_everything_without_litellm(watched: Cluster) -> None:
    web, base = watched.start_web()
    with httpx.Client(base_url=base, timeout=60) as client:
        made = client.post("/api/sessions", json={"agent": "shop", "message": "hi"}).json()
        assert watched.answer(made["session_id"]) == "Hello."
        client.headers["X-Agent-Session-Token"] = made["session_token"]
        session = f"/api/sessions/{made['session_id']}"
        for path in ("/login", "/openapi.json", "/readyz", session, f"{session}/messages"):
            assert client.get(path).status_code == 200, path
        for path in ("/", f"/sessions/{made['session_id']}", "/approvals"):
            assert client.get(path).status_code in {200, 303, 403}, path
    web.stop()
    told = [json.loads(file.read_text()) for file in watched.root.parent.glob("*.json")]
    webs = [process["loaded"] for process in told if "flask" in process["loaded"]]
    assert webs, "no process of the web told"
    for loaded in webs:
        assert not {"litellm", "openai", "mcp"} & set(loaded)
