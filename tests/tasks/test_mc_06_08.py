"""MC-02, MC-06 and MC-08 through workers: what the record of a call says after each kind of answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pydantic import JsonValue

from celeriac.sessions.calls import CallRecord, CallStatus
from tests.connectors.mcp_talk import Odd, http_server, odd_server
from tests.mcp_servers.odd_http import OddHttp
from tests.tasks.cluster import last_answer, results
from tests.tasks.mcp_cluster import McpCluster

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("mc_06_08")]


@dataclass(frozen=True)
class Place:
    cluster: McpCluster
    odd: Odd
    desk: OddHttp

    def call(self, tool: str, **arguments: JsonValue) -> CallRecord:
        """Have the model call a tool, approve that, and let the turn end; return the call."""
        session_id = self.cluster.say(f"/tool {tool} {json.dumps(arguments)}", agent="librarian")
        self.cluster.approve(session_id, self.cluster.waiting(session_id))
        snapshot = self.cluster.idle(session_id)
        assert last_answer(snapshot), "whatever the end, the model is told, and answers"
        assert len(results(snapshot)) == 1
        return snapshot.calls[-1]

    def requests_of(self, call: CallRecord) -> int:
        return sum(key == call.id for key, _ in self.desk.requests)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("mc")
    odd = odd_server(root / "odd")
    with (
        OddHttp() as desk,
        McpCluster(root / "cluster", {"odd": odd.server, "desk": http_server(desk.url)}) as cluster,
    ):
        cluster.start_worker()
        cluster.await_tool("odd__act")
        cluster.await_tool("desk__pay")
        yield Place(cluster, odd, desk)


def test_mc_02_a_result_of_two_megabytes_follows_the_rule_of_size(place: Place) -> None:
    call = place.call("odd__act", noise="stderr", long=2_000_000)
    assert call.status is CallStatus.SUCCEEDED
    assert isinstance(call.result, str)
    assert "cut here: 2,000,000 bytes in full" in call.result
    assert len(call.result.encode()) < 300_000


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"result": {"content": [], "isError": True}}, "without a message"),
        ({"result": {"content": [], "isError": True, "structuredContent": {"n": 7}}}, '"n"'),
        ({"error": {"code": -32603, "message": "no such order"}}, "no such order"),
    ],
)
def test_mc_06_a_failure_is_recorded_as_one_and_is_not_tried_again(
    place: Place, answer: dict[str, JsonValue], told: str
) -> None:
    call = place.call("odd__act", **answer)
    assert call.status is CallStatus.FAILED
    assert call.error is not None
    assert told in call.error
    assert call.attempts == 1


def test_mc_06_structured_content_alone_is_the_result(place: Place) -> None:
    call = place.call("odd__act", result={"content": [], "structuredContent": {"state": "ok"}})
    assert (call.status, call.result) == (CallStatus.SUCCEEDED, {"state": "ok"})


def test_mc_06_a_write_whose_answer_is_no_result_is_of_unknown_outcome(place: Place) -> None:
    call = place.call("odd__act", result={"content": "none"})
    assert (call.status, call.attempts) == (CallStatus.OUTCOME_UNKNOWN, 1)


def test_mc_08_a_a_write_that_meets_an_expired_session_runs_once(place: Place) -> None:
    place.desk.plan.append("forget")
    call = place.call("desk__pay")
    assert (call.status, call.result) == (CallStatus.SUCCEEDED, "paid")
    assert place.desk.calls.count(call.id) == 1
    assert place.requests_of(call) == 2


def test_mc_08_c_a_write_whose_session_is_refused_for_good_fails_and_says_so(place: Place) -> None:
    place.desk.plan.extend(["forget"] * 20)
    try:
        call = place.call("desk__pay")
    finally:
        place.desk.plan.clear()
    assert call.status is CallStatus.FAILED
    assert call.error is not None
    assert "does not know the session any more" in call.error
    assert place.desk.calls.count(call.id) == 0


@pytest.mark.parametrize(("plan", "effects"), [("cut", 0), ("cut_after", 1), ("sse_cut", 1)])
def test_mc_08_d_a_write_whose_connection_is_cut_is_of_unknown_outcome(
    place: Place, plan: str, effects: int
) -> None:
    place.desk.plan.append(plan)
    call = place.call("desk__pay")
    assert (call.status, call.attempts) == (CallStatus.OUTCOME_UNKNOWN, 1)
    assert place.requests_of(call) == 1
    assert place.desk.calls.count(call.id) == effects
