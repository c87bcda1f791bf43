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
from celeriac import AgentDefinition, BuiltInTool, ToolDefinition, ToolEffect, ToolResult, tool

{tool}

{name} = AgentDefinition(
    name="{name}",
    instructions="DEMO-SIGNATURE: {signature}",
    tools=[{names}],
    tool_sources=[{sources}],
    built_in_tools=frozenset({own}),
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


SOURCE = '''
class Desk:
    """A source that cannot list its tools while a file says so."""

    async def list_tools(self):
        if (Path(os.environ["FAULT_DIR"]) / "desk-is-away").exists():
            raise ConnectionError("the desk does not answer")
        schema = {{"type": "object"}}
        return [
            ToolDefinition("ring", "Ring.", schema, ToolEffect.READ),
            ToolDefinition("knock", "Knock.", schema, ToolEffect.READ, approval=True),
        ]

    async def call(self, tool, arguments, context):
        return ToolResult("it rang")
'''


def deploy(
    cluster: Cluster,
    path: Path,
    *,
    signature: str = "one",
    text: str = "Pay.",
    more: str = "",
    removed: bool = False,
    own: str = "BuiltInTool",
    name: str = "changing",
) -> None:
    """Replace every worker by one with this agent; the store is restarted, too."""
    tool = "" if removed else PAY.format(text=text, more=more)
    path.write_text(
        AGENT.format(
            tool=tool + SOURCE.format(),
            signature=signature,
            names="" if removed else "pay",
            sources="Desk()",
            own=own,
            name=name,
        )
    )
    cluster.kill_workers()
    cluster.kill_store()
    cluster.start_store()
    cluster.start_worker(env={"CELERIAC_AGENTS": str(path)})


@pytest.fixture
def agent(cluster: Cluster, tmp_path: Path) -> Path:
    cluster.restore(0)
    (cluster.root / "paid").write_text("")
    (cluster.root / "desk-is-away").unlink(missing_ok=True)
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


# --- questions and timers under a deploy


@pytest.mark.parametrize("own", ["BuiltInTool", "()"])
def test_a_question_outlives_a_deploy_also_one_that_takes_its_tool_away(
    cluster: Cluster, agent: Path, own: str
) -> None:
    session_id = cluster.say("/ask Which one?", agent="changing")
    call = cluster.waits(session_id, CallStatus.AWAITING_ANSWER)
    deploy(cluster, agent, signature="two", own=own)
    assert cluster.waits(session_id, CallStatus.AWAITING_ANSWER) == call
    cluster.client.answer(session_id, call.id, "blue", by="ana")
    assert last_answer(cluster.idle(session_id)) == "ask_user returned: blue — two"


@pytest.mark.parametrize("own", ["BuiltInTool", "()"])
def test_a_timer_outlives_a_deploy_also_one_that_takes_its_tool_away(
    cluster: Cluster, agent: Path, own: str
) -> None:
    session_id = cluster.say("/wait 2", agent="changing")
    cluster.waits(session_id, CallStatus.AWAITING_TIMER)
    deploy(cluster, agent, signature="two", own=own)
    snapshot = cluster.idle(session_id)
    assert [call.status for call in snapshot.calls] == [CallStatus.SUCCEEDED]
    assert last_answer(snapshot).endswith("— two")


@pytest.mark.parametrize("kind", ["approval", "question", "timer"])
def test_a_session_whose_agent_is_gone_fails_its_turn_in_clear_words_and_goes_on_when_it_is_back(
    cluster: Cluster, agent: Path, kind: str
) -> None:
    said = {"approval": '/tool pay {"amount": 5}', "question": "/ask Which?", "timer": "/wait 1"}
    session_id = cluster.say(said[kind], agent="changing")
    wait_until(lambda: cluster.snapshot(session_id).calls, "it waits", timeout_seconds=PATIENCE)
    (call,) = cluster.snapshot(session_id).calls
    deploy(cluster, agent, name="other")
    if kind == "approval":
        approve(cluster, session_id, call)
    elif kind == "question":
        cluster.client.answer(session_id, call.id, "blue", by="ana")
    snapshot = cluster.idle(session_id)
    (settled,) = snapshot.calls
    if kind == "approval":
        assert (settled.status, settled.attempts) == (CallStatus.FAILED, 0)
        assert "did not run, so it is safe to call again" in (settled.error or "")
        assert paid(cluster) == 0
    else:
        assert settled.status is CallStatus.SUCCEEDED
    assert "'changing'" in snapshot.messages[-1].text
    deploy(cluster, agent, signature="back")
    cluster.client.send_message(session_id, "hello")
    assert last_answer(cluster.idle(session_id)).endswith("— back")


# --- sources of tools


def test_an_agent_goes_without_a_source_that_cannot_list_until_it_can(
    cluster: Cluster, agent: Path
) -> None:
    (cluster.root / "desk-is-away").touch()
    session_id = cluster.say("/tool ring {}", agent="changing")
    assert "no such tool now: ring" in last_answer(cluster.idle(session_id))
    (cluster.root / "desk-is-away").unlink()
    cluster.client.send_message(session_id, "/tool ring {}")
    assert results(cluster.idle(session_id)) == ["it rang"]


def test_a_call_whose_source_cannot_list_is_tried_again_and_is_never_called_removed(
    cluster: Cluster, agent: Path
) -> None:
    session_id = cluster.say('/tools knock {} pay {"amount": 5}', agent="changing")
    cluster.waiting(session_id)
    knock, pay = cluster.snapshot(session_id).calls
    (cluster.root / "desk-is-away").touch()
    approve(cluster, session_id, knock)
    approve(cluster, session_id, pay)
    snapshot = cluster.idle(session_id)
    knock, pay = snapshot.calls
    assert (knock.status, knock.attempts) == (CallStatus.FAILED, 0)
    assert (knock.error or "").startswith("the tool did not run, so it is safe to call again: ")
    assert "cannot be found at the moment" in (knock.error or "")
    assert "the desk does not answer" in (knock.error or "")
    attempts = [s for s in cluster.client.steps(session_id) if s.call_id == knock.id]
    assert [one.name.value for one in attempts].count("CallTool") == 3
    assert pay.status is CallStatus.SUCCEEDED, "others are not touched"
