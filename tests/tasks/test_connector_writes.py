"""Five connector writes of one response, in the model's order, over workers that are killed at every point.

The second asks a person. The third is refused by the provider, so that those after it are skipped.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from celeriac.sessions.calls import DID_NOT_RUN, CallRecord, CallStatus, DecisionVerb
from tests.connectors.sdk.provider import Answer, Provider, Request, running_provider
from tests.tasks.cluster import PATIENCE, Cluster

pytestmark = pytest.mark.timeout(240)

AGENTS = str(Path(__file__).with_name("writing_agents.py"))
OK, UNKNOWN, FAILED = CallStatus.SUCCEEDED, CallStatus.OUTCOME_UNKNOWN, CallStatus.FAILED


class Desk:
    """Does each write once for each key, and can be held just before or after it."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.seen: set[str] = set()
        self.hold = ""
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, request: Request) -> Answer:
        what = request.path.removeprefix("/")
        if self.hold == f"before {what}":
            self._wait()
        key = request.headers.get("idempotency-key", f"{what} {len(self.seen)}")
        if what.endswith("3"):
            return Answer(400, b"not this one")
        if key not in self.seen:
            self.seen.add(key)
            self.done.append(what)
        if self.hold == f"after {what}":
            self._wait()
        return Answer(200, b"{}", {"Content-Type": "application/json"})

    def _wait(self) -> None:
        self.hold = ""
        self.reached.set()
        self.go_on.wait(PATIENCE)


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with running_provider() as running:
        yield running


@pytest.fixture
def desk(provider: Provider) -> Iterator[Desk]:
    made = provider.then = Desk()
    yield made
    made.go_on.set()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[Cluster]:
    requests = {
        f"{name}{number}": {
            "method": "POST",
            "url": f"{provider.url}/{name}{number}",
            "description": "Write.",
            "idempotencyHeader": "Idempotency-Key",
        }
        for name in ("once", "keyed")
        for number in range(1, 6)
    }
    env = {
        "CELERIAC_CONNECTION_MAIN_CONNECTOR": "http",
        "CELERIAC_CONNECTION_MAIN_ALLOWED_HOSTS": json.dumps([urlsplit(provider.url).netloc]),
        "CELERIAC_CONNECTION_MAIN_REQUESTS": json.dumps(requests),
    }
    with Cluster(tmp_path_factory.mktemp("writes"), agents=AGENTS, env=env) as made:
        yield made
        assert made.model_problems() == []


def begin(cluster: Cluster, agent: str) -> str:
    cluster.ensure_workers(1)
    calls = " ".join(f'http_{agent}{number} {{"parameters": {{}}}}' for number in range(1, 6))
    return cluster.say(f"/tools {calls}", agent=agent)


def approve(cluster: Cluster, session_id: str) -> None:
    call = cluster.waiting(session_id)
    others = [one for one in cluster.snapshot(session_id).calls if one.id != call.id]
    assert [one.status for one in others[1:]] == [CallStatus.PENDING] * 3, "it waits alone"
    assert all(one.waits_its_turn for one in others[1:])
    cluster.client.decide(
        session_id, call.id, DecisionVerb.APPROVE, by="Ann", digest=call.digest or ""
    )


def kill_at(cluster: Cluster, desk: Desk) -> None:
    """Kill the worker while the provider holds its request, and start another."""
    assert desk.reached.wait(PATIENCE)
    cluster.kill_workers()
    desk.go_on.set()
    cluster.ensure_workers(1)


def ended(cluster: Cluster, session_id: str) -> list[CallRecord]:
    return list(cluster.idle(session_id).calls)


def skipped(calls: list[CallRecord], because: str) -> None:
    for call in calls:
        assert (call.status, call.skipped, call.attempts) == (FAILED, True, 0)
        assert (call.error or "").startswith(DID_NOT_RUN)
        assert because in (call.error or "")


def names(agent: str, *numbers: int) -> list[str]:
    return [f"{agent}{number}" for number in numbers]


@pytest.mark.parametrize("agent", ["once", "keyed"])
def test_one_runs_one_waits_alone_and_those_after_the_failure_are_skipped(
    cluster: Cluster, desk: Desk, agent: str
) -> None:
    session_id = begin(cluster, agent)
    approve(cluster, session_id)
    first, second, third, *later = ended(cluster, session_id)
    assert [first.status, second.status, third.status] == [OK, OK, FAILED]
    assert "rejected: the server answered 400: not this one" in (third.error or "")
    skipped(later, "failed")
    assert desk.done == names(agent, 1, 2)


# The third has no effect that a crash could follow.
@pytest.mark.parametrize(
    ("number", "point"),
    [(1, "before"), (1, "after"), (2, "before"), (2, "after"), (3, "before")],
)
def test_writes_with_a_key_go_on_after_a_crash_and_are_done_once(
    cluster: Cluster, desk: Desk, number: int, point: str
) -> None:
    desk.hold = f"{point} keyed{number}"
    session_id = begin(cluster, "keyed")
    if number == 1:
        kill_at(cluster, desk)
    approve(cluster, session_id)
    if number > 1:
        kill_at(cluster, desk)
    calls = ended(cluster, session_id)
    assert [call.status for call in calls[:3]] == [OK, OK, FAILED]
    assert calls[number - 1].attempts == 2
    skipped(calls[3:], "failed")
    assert desk.done == names("keyed", 1, 2), "each once, in order"


@pytest.mark.parametrize("point", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_write_that_runs_once_is_unknown_after_a_crash_and_the_later_ones_are_skipped(
    cluster: Cluster, desk: Desk, number: int, point: str
) -> None:
    desk.hold = f"{point} once{number}"
    session_id = begin(cluster, "once")
    if number > 1:
        approve(cluster, session_id)
    kill_at(cluster, desk)
    calls = ended(cluster, session_id)
    assert [call.status for call in calls[: number - 1]] == [OK] * (number - 1)
    assert (calls[number - 1].status, calls[number - 1].attempts) == (UNKNOWN, 1)
    skipped(calls[number:], "has an unknown outcome")
    assert desk.done == names("once", *range(1, number + 1)), "the provider did it, or will have"


@pytest.mark.parametrize("agent", ["once", "keyed"])
def test_an_approval_is_waited_for_over_a_crash(cluster: Cluster, desk: Desk, agent: str) -> None:
    session_id = begin(cluster, agent)
    cluster.waiting(session_id)
    cluster.kill_workers()
    cluster.ensure_workers(1)
    approve(cluster, session_id)
    statuses: Mapping[int, CallStatus] = dict(
        enumerate(call.status for call in ended(cluster, session_id))
    )
    assert (statuses[0], statuses[1], statuses[2]) == (OK, OK, FAILED)
    assert desk.done == names(agent, 1, 2)


def test_a_rejection_skips_those_after_it(cluster: Cluster, desk: Desk) -> None:
    session_id = begin(cluster, "once")
    call = cluster.waiting(session_id)
    cluster.client.decide(
        session_id, call.id, DecisionVerb.REJECT, by="Ann", digest=call.digest or ""
    )
    first, second, *later = ended(cluster, session_id)
    assert (first.status, second.status) == (OK, CallStatus.REJECTED)
    skipped(later, "was rejected")
    assert desk.done == names("once", 1)
