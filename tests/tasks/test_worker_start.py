"""How workers are started, and what one that cannot work says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tasks.cluster import CHECKOUT, PATIENCE, Cluster, last_answer
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("start")]


@pytest.mark.parametrize("app", ["tasks", "celeriac.tasks"])
def test_both_commands_start_a_worker_in_the_checkout(cluster: Cluster, app: str) -> None:
    cluster.restore(0)
    worker = cluster.start_worker(app=app, cwd=CHECKOUT)
    assert cluster.answer(cluster.say("hello")) == "You said: hello"
    assert worker.stop() == 0


def test_the_command_works_anywhere(cluster: Cluster, tmp_path: Path) -> None:
    cluster.restore(0)
    worker = cluster.start_worker(cwd=tmp_path)
    assert cluster.answer(cluster.say("hello")) == "You said: hello"
    assert worker.stop() == 0


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_workers_find_the_embedded_store_of_a_directory_by_themselves(
    tmp_path: Path, pool: str
) -> None:
    with Cluster(tmp_path / "c") as cluster:
        env = {"CELERIAC_DATA_DIR": str(tmp_path / "c" / "data"), "CELERIAC_WORKER_POOL": pool}
        del cluster.env["CELERIAC_REDIS_URL"]
        workers = cluster.start_workers(2, env=env)
        session_ids = [cluster.say("/tool look {}") for _ in range(4)]
        for session_id in session_ids:
            assert last_answer(cluster.idle(session_id)) == "look returned: seen at once"
        assert [worker.stop() for worker in workers] == [0, 0]
        assert cluster.store.alive()


def test_every_line_of_a_worker_is_json_when_asked_for_and_steps_carry_their_ids(
    cluster: Cluster,
) -> None:
    cluster.restore(0)
    worker = cluster.start_worker(env={"CELERIAC_LOG_FORMAT": "json"})
    cluster.open_gate("only-for-the-tool")
    session_id = cluster.say('/tool look_async {"gate": "only-for-the-tool"}')
    cluster.idle(session_id)
    assert worker.stop() == 0
    # Celery's own words at a stop are no log line.
    written = [line for line in worker.output().splitlines() if line[:8] not in {"", "worker: "}]
    lines = [json.loads(line) for line in written]
    steps = [line for line in lines if line.get("session_id") == session_id]
    assert [(line["step"], line["task"]) for line in steps] == [
        ("RunModel", "celeriac.run_model"),
        ("CallTool", "celeriac.call_tool"),
        ("RunModel", "celeriac.run_model"),
    ]
    about = steps[1]
    call_id = cluster.snapshot(session_id).calls[0].id
    assert (about["turn_id"], about["call_id"], about["attempt"]) == ("t1", call_id, 1)
    assert (about["tool"], about["level"]) == ("look_async", "INFO")
    assert about["worker"].startswith(worker.hostname)
    assert "only-for-the-tool" not in worker.output()


BROKEN = {
    "a missing module": ("no.such.agents", "CELERIAC_AGENTS: 'no.such.agents'"),
    "a missing file": ("nowhere/agents.py", "CELERIAC_AGENTS: there is no file"),
    "no agent in it": ("celeriac.sessions.ids", "holds no AgentDefinition"),
    "a syntax error": ("def broken(:\n", "SyntaxError"),
    "an error": ("raise KeyError('ORDER_API_KEY')\n", "KeyError('ORDER_API_KEY')"),
    "a wrong definition": (
        "from celeriac import AgentDefinition\nAgentDefinition(name='a b', instructions='')\n",
        "'a b' is no agent name",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_agents_that_cannot_be_loaded_end_the_worker(
    cluster: Cluster, tmp_path: Path, what: str
) -> None:
    agents, told = BROKEN[what]
    if "\n" in agents:
        path = tmp_path / "agents.py"
        path.write_text(agents)
        agents = str(path)
    worker = cluster.start_worker(ready=False, env={"CELERIAC_AGENTS": agents})
    ended_with(worker.process.wait(PATIENCE), worker.output(), told, "CELERIAC_AGENTS")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CELERIAC_LEASE_SECONDS", "soon"),
        ("CELERIAC_WORKER_POOL", "gevent"),
        ("CELERIAC_REDIS_URL", "http://here"),
        ("CELERIAC_BROKER_URL", "carrier-pigeon://here"),
    ],
)
def test_a_setting_that_cannot_be_used_ends_the_worker(
    cluster: Cluster, name: str, value: str
) -> None:
    worker = cluster.start_worker(ready=False, env={name: value})
    ended_with(worker.process.wait(PATIENCE), worker.output(), name)


def ended_with(code: int, output: str, *words: str) -> None:
    assert code != 0
    for word in words:
        assert word in output, output


def test_two_workers_of_which_one_knows_another_agent(cluster: Cluster, tmp_path: Path) -> None:
    """A step that reaches a worker without its agent fails that attempt and says why."""
    cluster.restore(0)
    other = tmp_path / "other.py"
    other.write_text(
        "from celeriac import AgentDefinition\nother = AgentDefinition(name='other', instructions='')\n"
    )
    worker = cluster.start_worker(env={"CELERIAC_AGENTS": str(other)})
    wait_until(
        lambda: "other" in {agent.name for agent in cluster.client.agents()},
        "the agent is told",
        timeout_seconds=PATIENCE,
    )
    session_id = cluster.say("hello", agent="other")
    assert cluster.answer(session_id) == "You said: hello"
    worker.kill()
    worker = cluster.start_worker()
    cluster.client.send_message(session_id, "still there?")
    wait_until(
        lambda: "no agent 'other'" in cluster.idle(session_id).messages[-1].text,
        "the turn has failed",
        timeout_seconds=PATIENCE,
    )
    worker.kill()


def test_a_wrong_configuration_of_mcp_servers_ends_the_worker(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.restore(0)
    path = tmp_path / "mcp.yaml"
    path.write_text("servers:\n  git: {command: x, env: {TOKEN: NOT_SET_ANYWHERE}}\n")
    worker = cluster.start_worker(ready=False, env={"CELERIAC_MCP_CONFIG": str(path)})
    assert worker.process.wait(PATIENCE) != 0
    told = worker.output()
    assert "celeriac: the worker cannot start: CELERIAC_MCP_CONFIG: " in told
    assert "servers.git.env.TOKEN: the worker's variable NOT_SET_ANYWHERE is not set" in told
    assert "Traceback" not in told
