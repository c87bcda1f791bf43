"""Whole sessions on real workers, whose model is a server that is not ours."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import pytest

from celeriac.sessions.calls import CallStatus, DecisionVerb
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.messages import Role
from celeriac.sessions.snapshot import Snapshot
from tests.models.aimock import Aimock, Json
from tests.models.dialects import CHAT, CHAT_ONLY, DIALECTS, RESPONSES, Dialect, environment
from tests.node_tools import needs_node_tools
from tests.tasks.cluster import PATIENCE, Cluster, assert_history_holds, last_answer, results
from tests.waiting import wait_until

pytestmark = [
    needs_node_tools,
    pytest.mark.skipif(find_spec("litellm") is None, reason="needs the extra litellm"),
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("aimock-sessions"),
]

LOOK_UP: Json = {"id": "call_1", "name": "look_up", "arguments": '{"item":"trowel"}'}
ORDER: Json = {"id": "call_2", "name": "order", "arguments": '{"item":"seeds"}'}
CANCEL: Json = {"id": "call_3", "name": "cancel", "arguments": '{"item":"rake"}'}


class Shop:
    """Sessions of the agent `shop`, and what its models were asked."""

    def __init__(self, cluster: Cluster, aimock: Aimock) -> None:
        self.cluster = cluster
        self.aimock = aimock

    def start(self, text: str, model: str = DIALECTS[0].model) -> str:
        return self.cluster.client.create_session(
            agent="shop", message=text, model=model
        ).session_id

    def effects(self) -> list[str]:
        path = self.cluster.root / "effects"
        return sorted(path.read_text().splitlines()) if path.exists() else []

    def asked(self, text: str) -> list[dict[str, object]]:
        """The requests of conversations in which this was said."""
        return [entry for entry in self.aimock.journal() if text in str(entry["body"])]

    def messages(self, at: int) -> list[dict[str, object]]:
        """What a request sent, as chat completions."""
        body = cast("dict[str, object]", self.aimock.journal()[at]["body"])
        return cast("list[dict[str, object]]", body["messages"])

    def is_retrying(self, session_id: str) -> bool:
        turn = self.cluster.snapshot(session_id).turn
        return turn is not None and [step.state for step in turn.steps] == ["retrying"]


@pytest.fixture(scope="module")
def clusters(running_aimock: Aimock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    agents = str(Path(__file__).with_name("shop_agents.py"))
    env = {**environment(running_aimock.url), "CELERIAC_WORKER_CONCURRENCY": "1"}
    with Cluster(tmp_path_factory.mktemp("shop"), agents=agents, env=env) as made:
        yield made


@pytest.fixture
def shop(clusters: Cluster, running_aimock: Aimock) -> Shop:
    """One worker that does one thing at a time."""
    running_aimock.reset()
    clusters.restore(1)
    (clusters.root / "effects").unlink(missing_ok=True)
    wait_until(clusters.client.agents, "a worker has told its agents", timeout_seconds=PATIENCE)
    return Shop(clusters, running_aimock)


every_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)


@every_dialect
def test_a_turn_with_parallel_calls_asks_twice(shop: Shop, dialect: Dialect) -> None:
    shop.aimock.script(
        {"match": {"hasToolResult": False, "turnIndex": 0}, "response": {"toolCalls": [LOOK_UP, ORDER]}},
        {
            "match": {"toolResultContains": "seeds: ordered"},
            "response": {"content": "Three trowels; seeds are on their way."},
        },
    )  # fmt: skip
    session_id = shop.start("Trowels? And order seeds.", dialect.model)
    snapshot = shop.cluster.idle(session_id)
    assert last_answer(snapshot) == "Three trowels; seeds are on their way."
    assert results(snapshot) == ["trowel: 3 in stock", "seeds: ordered"]
    assert shop.effects() == ["look_up trowel", "order seeds"]
    assert [entry["path"] for entry in shop.aimock.journal()] == [dialect.path] * 2
    assert shop.aimock.statuses() == [200, 200]
    sent = shop.messages(1)
    ids = called_in(sent)
    assert [one["tool_call_id"] for one in sent if one["role"] == "tool"] == ids
    assert len(set(ids)) == 2
    assert_history_holds(snapshot)


@every_dialect
@pytest.mark.parametrize("verb", [DecisionVerb.APPROVE, DecisionVerb.REJECT])
def test_the_model_reads_how_its_call_was_decided(
    shop: Shop, dialect: Dialect, verb: DecisionVerb
) -> None:
    shop.aimock.script(
        {"match": {"hasToolResult": False}, "response": {"toolCalls": [CANCEL]}},
        {"match": {"toolResultContains": "rake: cancelled"}, "response": {"content": "Done."}},
        {"match": {"toolResultContains": "keep the rake"}, "response": {"content": "I let it be."}},
    )
    session_id = shop.start("Cancel the rake.", dialect.model)
    call = shop.cluster.waiting(session_id)
    assert len(shop.aimock.journal()) == 1
    shop.cluster.client.decide(
        session_id, call.id, verb, by="ana", digest=call.digest,
        note=None if verb is DecisionVerb.APPROVE else "keep the rake",
    )  # fmt: skip
    approved = verb is DecisionVerb.APPROVE
    assert shop.cluster.answer(session_id) == ("Done." if approved else "I let it be.")
    assert shop.effects() == (["cancel rake"] if approved else [])
    assert shop.aimock.statuses() == [200, 200]


@every_dialect
@pytest.mark.parametrize("chunks", [1, 2, 5], ids="after {} chunks".format)
def test_mh_10_no_call_of_a_cut_response_runs(shop: Shop, dialect: Dialect, chunks: int) -> None:
    cut = {
        "response": {"toolCalls": [ORDER, CANCEL]},
        "chunkSize": 8,
        "truncateAfterChunks": chunks,
    }
    shop.aimock.in_turn(cut, cut, {"content": "Never mind."})
    snapshot = shop.cluster.idle(shop.start("Order seeds, cancel the rake.", dialect.model))
    assert [message.role for message in snapshot.messages] == [Role.USER, Role.ASSISTANT]
    assert last_answer(snapshot) == "Never mind."
    assert (snapshot.calls, shop.effects()) == ((), [])
    assert len(shop.aimock.journal()) == 3


def test_mh_10_a_response_that_is_cut_three_times_ends_the_turn(shop: Shop) -> None:
    cut = {"response": {"toolCalls": [ORDER, CANCEL]}, "chunkSize": 8, "truncateAfterChunks": 5}
    shop.aimock.script({"match": {}, **cut})
    snapshot = shop.cluster.idle(shop.start("Order seeds, cancel the rake."))
    assert failure(snapshot) in {FailureKind.BROKEN, FailureKind.UNAVAILABLE}
    assert (snapshot.calls, shop.effects()) == ((), [])
    assert len(shop.aimock.journal()) == 3


def called_in(messages: list[dict[str, object]]) -> list[object]:
    """The ids of all calls, in order."""
    calls = (cast("list[Json]", one.get("tool_calls") or []) for one in messages)
    return [call["id"] for some in calls for call in some]


def failure(snapshot: Snapshot) -> FailureKind | None:
    notice = snapshot.messages[-1]
    assert notice.role is Role.NOTICE
    return notice.failure


def busy(wait: float | str) -> dict[str, object]:
    error = {"message": "slow down", "type": "rate_limit_error"}
    return {"error": error, "status": 429, "retryAfter": wait}


@every_dialect
def test_ll_05_no_request_before_the_stated_time(shop: Shop, dialect: Dialect) -> None:
    shop.aimock.in_turn(busy(2), {"content": "Hello."})
    assert shop.cluster.answer(shop.start("hi", dialect.model)) == "Hello."
    assert shop.aimock.statuses() == [429, 200]
    first, second = (cast("int", entry["timestamp"]) for entry in shop.aimock.journal())
    # Two clocks, both in whole milliseconds.
    assert second - first >= 1_990


def test_ll_05_the_worker_is_free_during_the_wait_and_stop_acts_at_once(shop: Shop) -> None:
    """The worker does one thing at a time, so what holds it would keep the other session waiting."""
    shop.aimock.script(
        {"match": {"userMessage": "patience"}, "response": busy(600)},
        {"match": {"userMessage": "quick"}, "response": {"content": "Here."}},
    )
    waiting = shop.start("patience")
    wait_until(lambda: shop.is_retrying(waiting), "it waits", timeout_seconds=PATIENCE)
    assert shop.cluster.answer(shop.start("quick")) == "Here."
    assert shop.is_retrying(waiting)
    shop.cluster.client.cancel_turn(waiting, by="ana")
    snapshot = shop.cluster.idle(waiting)
    assert snapshot.messages[-1].role is Role.NOTICE
    assert len(shop.asked("patience")) == 1


@every_dialect
@pytest.mark.parametrize("wait", [3600, "Fri, 01 Jan 2100 00:00:00 GMT"], ids=["seconds", "date"])
def test_ll_05_a_wait_over_the_cap_ends_the_turn_and_says_so(
    shop: Shop, dialect: Dialect, wait: float | str
) -> None:
    shop.aimock.in_turn(busy(wait))
    snapshot = shop.cluster.idle(shop.start("hi", dialect.model))
    assert failure(snapshot) is FailureKind.BUSY
    assert "CELERIAC_PROVIDER_WAIT_MAX_SECONDS" in snapshot.messages[-1].text
    assert len(shop.aimock.journal()) == 1


@every_dialect
@pytest.mark.parametrize(
    "answer",
    [busy(0), busy("soon"), {"error": {"message": "oh"}, "status": 529}],
    ids=["no wait", "garbage", "529"],
)
def test_ll_05_at_most_three_requests_for_a_step(
    shop: Shop, dialect: Dialect, answer: Json
) -> None:
    shop.aimock.script({"match": {}, "response": answer})
    snapshot = shop.cluster.idle(shop.start("hi", dialect.model))
    assert failure(snapshot) in {FailureKind.BUSY, FailureKind.UNAVAILABLE}
    assert len(shop.aimock.journal()) == 3


@every_dialect
def test_a_refused_request_ends_the_turn_and_the_next_message_works(
    shop: Shop, dialect: Dialect
) -> None:
    refused = {"error": {"message": "no such thing here"}, "status": 400}
    shop.aimock.in_turn(refused, {"content": "Now it works."})
    session_id = shop.start("hi", dialect.model)
    snapshot = shop.cluster.idle(session_id)
    assert failure(snapshot) is FailureKind.BAD_REQUEST
    assert "no such thing here" in snapshot.messages[-1].text
    shop.cluster.client.send_message(session_id, "again")
    assert shop.cluster.answer(session_id) == "Now it works."
    assert shop.aimock.statuses() == [400, 200]


def test_a_server_without_the_responses_api_is_asked_in_chat(shop: Shop) -> None:
    """The worker remembers it, so this is a model of its own."""
    shop.aimock.in_turn({"error": {"message": "not here"}, "status": 404}, {"content": "Hello."})
    assert shop.cluster.answer(shop.start("hi", CHAT_ONLY)) == "Hello."
    assert [entry["path"] for entry in shop.aimock.journal()] == [RESPONSES.path, CHAT.path]


def test_mh_06_ids_that_a_provider_repeats_stay_apart(shop: Shop) -> None:
    """Every call of the conversation has the provider's id call_0; the server takes no doubled id."""
    same = [{**LOOK_UP, "id": "call_0"}, {**ORDER, "id": "call_0"}]
    shop.aimock.in_turn(
        {"toolCalls": [{**LOOK_UP, "id": "call_0"}]},
        {"content": "Three."},
        {"toolCalls": [{**CANCEL, "id": "call_0"}]},
        {"content": "Cancelled."},
        {"toolCalls": same},
        {"content": "All done."},
    )
    session_id = shop.start("Trowels?")
    assert shop.cluster.answer(session_id) == "Three."
    shop.cluster.client.send_message(session_id, "Cancel the rake.")
    call = shop.cluster.waiting(session_id)
    assert shop.effects() == ["look_up trowel"]
    shop.cluster.client.decide(
        session_id, call.id, DecisionVerb.APPROVE, by="ana", digest=call.digest
    )
    assert shop.cluster.answer(session_id) == "Cancelled."
    shop.cluster.client.send_message(session_id, "Trowels again, and order seeds.")
    snapshot = shop.cluster.idle(session_id)
    assert last_answer(snapshot) == "All done."
    assert all(call.status is CallStatus.SUCCEEDED for call in snapshot.calls)
    assert shop.effects() == ["cancel rake", "look_up trowel", "look_up trowel", "order seeds"]
    sent = shop.messages(5)
    ids = called_in(sent)
    assert len(ids) == len(set(ids)) == 4
    assert [one["tool_call_id"] for one in sent if one["role"] == "tool"] == ids
