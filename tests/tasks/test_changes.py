"""Agents change between the steps of sessions that go on: nothing is replayed, and what runs is what was shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from celeriac.sessions.calls import CallRecord, CallStatus, DecisionVerb
from tests.tasks.cluster import PATIENCE, Cluster, last_answer, results
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("changes")]

AGENT = """
import os
from pathlib import Path
from celeriac import AgentDefinition, ToolEffect, tool

{tool}

changing = AgentDefinition(
    name="changing", instructions="DEMO-SIGNATURE: {signature}", tools=[{names}]
)
"""

PAY = '''
@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True)
def pay(amount: int{more}) -> str:
    """{text}"""
    with (Path(os.environ["FAULT_DIR"]) / "paid").open("a") as file:
        file.write("paid\\n")
    return f"paid {{amount}}"
'''


def deploy(
    cluster: Cluster,
    path: Path,
    *,
    signature: str = "one",
    text: str = "Pay.",
    more: str = "",
    removed: bool = False,
) -> None:
    """Replace every worker by one with this agent; the store is restarted, too."""
    tool = "" if removed else PAY.format(text=text, more=more)
    path.write_text(AGENT.format(tool=tool, signature=signature, names="" if removed else "pay"))
    cluster.kill_workers()
    cluster.kill_store()
    cluster.start_store()
    cluster.start_worker(env={"CELERIAC_AGENTS": str(path)})


@pytest.fixture
def agent(cluster: Cluster, tmp_path: Path) -> Path:
    cluster.restore(0)
    (cluster.root / "paid").write_text("")
    path = tmp_path / "agent.py"
    deploy(cluster, path)
    wait_until(
        lambda: "changing" in {one.name for one in cluster.client.agents()},
        "the agent is told",
        timeout_seconds=PATIENCE,
    )
    return path


def paid(cluster: Cluster) -> int:
    return len((cluster.root / "paid").read_text().splitlines())


def ask(cluster: Cluster) -> tuple[str, CallRecord]:
    session_id = cluster.say('/tool pay {"amount": 5}', agent="changing")
    return session_id, cluster.waiting(session_id)


def approve(cluster: Cluster, session_id: str, call: CallRecord) -> None:
    cluster.client.decide(session_id, call.id, DecisionVerb.APPROVE, by="ana", digest=call.digest)


def test_an_approval_outlives_a_restart_and_the_new_prompt_is_used(
    cluster: Cluster, agent: Path
) -> None:
    session_id, call = ask(cluster)
    deploy(cluster, agent, signature="two")
    waiting = cluster.waiting(session_id)
    assert waiting == call
    assert [item.call.id for item in cluster.client.approvals()] == [call.id]
    approve(cluster, session_id, call)
    assert last_answer(cluster.idle(session_id)) == "pay returned: paid 5 — two"
    assert paid(cluster) == 1


def test_a_tool_that_changed_after_its_approval_asks_again_and_says_why(
    cluster: Cluster, agent: Path
) -> None:
    session_id, call = ask(cluster)
    cluster.kill_workers()
    approve(cluster, session_id, call)
    deploy(cluster, agent, text="Pay twice.")
    again = cluster.waiting(session_id)
    assert again.id == call.id
    assert again.digest != call.digest
    assert again.approval_reason is not None
    assert "changed" in again.approval_reason
    assert again.decision is None
    assert paid(cluster) == 0
    approve(cluster, session_id, again)
    assert results(cluster.idle(session_id)) == ["paid 5"]
    assert paid(cluster) == 1


def test_a_tool_that_was_removed_fails_without_running(cluster: Cluster, agent: Path) -> None:
    session_id, call = ask(cluster)
    cluster.kill_workers()
    approve(cluster, session_id, call)
    deploy(cluster, agent, removed=True)
    (settled,) = cluster.idle(session_id).calls
    assert settled.status is CallStatus.FAILED
    assert settled.error is not None
    assert settled.error.startswith("the tool did not run, so it is safe to call again: ")
    assert "tool removed" in settled.error
    assert paid(cluster) == 0


def test_arguments_that_a_changed_tool_does_not_take_never_reach_it(
    cluster: Cluster, agent: Path
) -> None:
    """The approval was for other parameters, so it asks again; what it then runs is checked again."""
    session_id, call = ask(cluster)
    deploy(cluster, agent, more=", currency: str")
    approve(cluster, session_id, call)
    again = cluster.waiting(session_id)
    approve(cluster, session_id, again)
    (settled,) = cluster.idle(session_id).calls
    assert settled.status is CallStatus.FAILED
    assert "currency" in (settled.error or "")
    assert paid(cluster) == 0
