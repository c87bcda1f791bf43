"""Every harness on real workers: killed at each point, steered and stopped in the middle of a model step."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from celeriac.sessions.calls import CallRecord, CallStatus, DecisionVerb
from celeriac.sessions.messages import Role
from tests.connectors.mcp_talk import odd_server
from tests.harness.kits import KITS, Kit
from tests.tasks.cluster import PATIENCE, Cluster, assert_history_holds, last_answer
from tests.tasks.mcp_cluster import write_config
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("harness")]

INSTALLED = [kit for kit in KITS if kit.installed]


class Stage:
    """A cluster whose workers have the agents of all kits, and what they left."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def open(self, gate: str) -> None:
        (self.cluster.root / f"gate-{gate}").touch()

    def notes(self, what: str, word: str) -> int:
        """How many notes of this kind have the word in what was said last."""
        path = self.cluster.root / "notes"
        lines = path.read_text().splitlines() if path.exists() else []
        found = (json.loads(line) for line in lines)
        return sum(
            one[0] == what and word in (one[2][-1] if isinstance(one[2], list) else str(one[2]))
            for one in found
        )

    def noted(self, what: str, word: str, times: int = 1) -> None:
        wait_until(
            lambda: self.notes(what, word) >= times,
            f"{what} {word} is noted {times} times",
            timeout_seconds=PATIENCE,
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    root: Path = tmp_path_factory.mktemp("harness")
    odd = odd_server(root / "odd")
    config = write_config(root / "mcp.yaml", {"odd": odd.server})
    agents = ",".join(str(kit.path) for kit in INSTALLED)
    with Cluster(
        root,
        agents=agents,
        env={
            "HARNESS_DIR": str(root),
            "CELERIAC_MCP_CONFIG": str(config),
            # All kits are held at all points at once.
            "CELERIAC_WORKER_CONCURRENCY": str(4 * len(INSTALLED)),
        },
    ) as made:
        yield made


@pytest.fixture(params=INSTALLED, ids=lambda kit: kit.name)
def kit(request: pytest.FixtureRequest) -> Kit:
    found: Kit = request.param
    return found


@pytest.fixture
def stage(cluster: Cluster) -> Stage:
    cluster.restore(2)
    return Stage(cluster)


def calls(tool: str, **arguments: str) -> str:
    return "/calls " + json.dumps([[tool, arguments]])


class Scenes:
    """Sessions of every kit at every point, when all workers were killed at once, and two others came."""

    def __init__(self, stage: Stage, kits: Sequence[Kit]) -> None:
        self.model = self._start(stage, kits, "/hold gate-{} all of it")
        self.read = self._start(stage, kits, calls("look", item="rake-{}", gate="rake-{}"))
        self.write = self._start(stage, kits, calls("pay", item="cart-{}", after="cart-{}"))
        self.results = self._start(stage, kits, calls("pay", item="spade-{}"))
        for sid in self.write.values():
            _approve(stage, sid, stage.cluster.waiting(sid))
        waiting = {sid: stage.cluster.waiting(sid) for sid in self.results.values()}
        for kit in kits:
            stage.noted("model", f"gate-{kit.name}")
            stage.noted("look", f"rake-{kit.name}")
            stage.noted("pay", f"cart-{kit.name}")
        stage.cluster.kill_workers()
        for sid, call in waiting.items():
            _approve(stage, sid, call)
        stage.cluster.restore(2)

    @staticmethod
    def _start(stage: Stage, kits: Sequence[Kit], text: str) -> dict[str, str]:
        return {
            kit.name: stage.cluster.say(text.replace("{}", kit.name), agent=kit.name)
            for kit in kits
        }


def _approve(stage: Stage, sid: str, call: CallRecord) -> None:
    stage.cluster.client.decide(sid, call.id, DecisionVerb.APPROVE, by="ana", digest=call.digest)


@pytest.fixture(scope="module")
def scenes(request: pytest.FixtureRequest, cluster: Cluster) -> Scenes:
    cluster.restore(2)
    functions = [item for item in request.session.items if isinstance(item, pytest.Function)]
    chosen = [item.callspec.params["kit"] for item in functions if "scenes" in item.fixturenames]
    return Scenes(Stage(cluster), [kit for kit in INSTALLED if kit in chosen])


def test_killed_in_a_model_step_it_is_made_once_more(
    stage: Stage, scenes: Scenes, kit: Kit
) -> None:
    gate = f"gate-{kit.name}"
    stage.noted("model", gate, 2)
    stage.open(gate)
    assert stage.cluster.answer(scenes.model[kit.name]) == "all of it"
    assert stage.notes("model", gate) == 2


def test_killed_in_the_step_after_the_results_no_tool_runs_again(
    stage: Stage, scenes: Scenes, kit: Kit
) -> None:
    item = f"spade-{kit.name}"
    snapshot = stage.cluster.idle(scenes.results[kit.name])
    assert last_answer(snapshot) == f"Results: {item} is paid"
    assert stage.notes("pay", item) == 1
    assert_history_holds(snapshot)


def test_killed_in_a_read_it_is_read_again(stage: Stage, scenes: Scenes, kit: Kit) -> None:
    item = f"rake-{kit.name}"
    stage.noted("look", item, 2)
    stage.open(item)
    assert stage.cluster.answer(scenes.read[kit.name]) == f"Results: {item} is there"


def test_killed_in_a_write_the_model_hears_that_nobody_knows(
    stage: Stage, scenes: Scenes, kit: Kit
) -> None:
    item = f"cart-{kit.name}"
    snapshot = stage.cluster.idle(scenes.write[kit.name])
    (call,) = snapshot.calls
    assert call.status is CallStatus.OUTCOME_UNKNOWN
    assert "may or may not" in last_answer(snapshot)
    assert stage.notes("pay", item) == 1


def test_dh_06_a_model_step_is_stopped_in_the_middle(stage: Stage, kit: Kit) -> None:
    gate = f"stop-{kit.name}"
    sid = stage.cluster.say(f"/hold {gate} never all of it", agent=kit.name)
    stage.noted("model", gate)
    stage.cluster.client.cancel_turn(sid)
    stage.cluster.idle(sid)
    stage.cluster.client.send_message(sid, "/recall")
    snapshot = stage.cluster.idle(sid)
    assert "user: /recall" in last_answer(snapshot)
    texts = [m.text for m in snapshot.messages if m.role is Role.ASSISTANT and not m.interrupted]
    assert "never all of it" not in texts
    assert_history_holds(snapshot)


def test_a_steer_waits_for_the_end_of_the_model_step(stage: Stage, kit: Kit) -> None:
    gate = f"steer-{kit.name}"
    sid = stage.cluster.say(f"/hold {gate} the whole answer", agent=kit.name)
    stage.noted("model", gate)
    stage.cluster.client.steer(sid, text="/recall")
    stage.open(gate)
    snapshot = stage.cluster.idle(sid)
    assert "assistant: the whole answer | " in last_answer(snapshot)
    assert last_answer(snapshot).endswith("user: /recall")
    assert_history_holds(snapshot)


def test_a_tool_of_an_mcp_server_runs_in_a_step(stage: Stage, kit: Kit) -> None:
    sid = stage.cluster.say(calls("odd__look"), agent=kit.name)
    snapshot = stage.cluster.idle(sid)
    (call,) = snapshot.calls
    assert (call.source, call.original_name, call.status) == ("odd", "look", CallStatus.SUCCEEDED)
    assert last_answer(snapshot).startswith("Results: ")
    assert_history_holds(snapshot)
