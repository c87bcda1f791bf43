"""Refunds by real workers: answers that are lost, workers that are killed, and what is looked up afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from celeriac.sessions.calls import CallStatus
from celeriac.sessions.state import StepName
from tests.connectors.sdk.provider import (
    Answer,
    Provider,
    Request,
    forward,
    json_answer,
    running_provider,
)
from tests.connectors.stripe.mock import KEY, StripeMock, running_stripe
from tests.node_tools import needs_node_tools
from tests.tasks.cluster import PATIENCE, Cluster
from tests.tasks.mcp_terminal import CELERIAC
from tests.waiting import wait_until

pytestmark = [needs_node_tools, pytest.mark.timeout(240)]

AGENTS = str(Path(__file__).with_name("support_agents.py"))


@pytest.fixture(scope="module")
def stripe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StripeMock]:
    with running_stripe(tmp_path_factory.mktemp("stripe")) as running:
        yield running


@pytest.fixture(scope="module")
def provider(stripe: StripeMock) -> Iterator[Provider]:
    with running_provider() as running:
        running.then = forward(stripe.url)
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[Cluster]:
    env = {
        "CELERIAC_CONNECTION_SHOP_CONNECTOR": "stripe",
        "CELERIAC_CONNECTION_SHOP_SECRET_KEY": KEY,
        "CELERIAC_CONNECTION_SHOP_BASE_URL": provider.url,
    }
    with Cluster(tmp_path_factory.mktemp("shop"), agents=AGENTS, env=env) as made:
        yield made
        assert made.model_problems() == []


def refund(cluster: Cluster, charge: str) -> str:
    cluster.ensure_workers(1)
    arguments = f'{{"payment": "{charge}", "amount": 500}}'
    return cluster.say(f"/tool stripe_create_refund {arguments}", agent="support")


def test_a_lost_answer_is_asked_for_again_with_the_same_key(
    cluster: Cluster, provider: Provider, stripe: StripeMock
) -> None:
    charge = stripe.charge(2000)
    provider.requests.clear()
    provider.script = [forward(stripe.url, breaks="reset"), forward(stripe.url, breaks="cut")]
    (call,) = cluster.idle(refund(cluster, charge)).calls
    assert (call.status, call.attempts) == (CallStatus.SUCCEEDED, 3)
    assert (call.source, call.original_name) == ("Stripe (shop)", "createRefund")
    assert stripe.refunds(charge) == [(500, call.id)]
    assert len({(one.headers["idempotency-key"], one.body) for one in provider.requests}) == 1
    assert len(provider.requests) == 3


def test_a_worker_that_is_killed_after_the_refund(
    cluster: Cluster, provider: Provider, stripe: StripeMock
) -> None:
    charge = stripe.charge(2000)
    done, go_on = threading.Event(), threading.Event()

    def refunds_and_stays(request: Request) -> Answer:
        answer = forward(stripe.url)(request)
        done.set()
        go_on.wait(PATIENCE)
        return answer

    provider.script = [refunds_and_stays]
    session_id = refund(cluster, charge)
    assert done.wait(PATIENCE)
    cluster.kill_workers()
    go_on.set()
    cluster.ensure_workers(1)
    (call,) = cluster.idle(session_id).calls
    assert (call.status, call.attempts) == (CallStatus.SUCCEEDED, 2)
    assert stripe.refunds(charge) == [(500, call.id)]


def test_attempts_that_are_used_up_leave_it_unknown_until_it_is_looked_up(
    cluster: Cluster, provider: Provider, stripe: StripeMock
) -> None:
    """The refund was made; Stripe then answers nothing but 500."""
    charge = stripe.charge(2000)
    broken = json_answer("{}", 500, Retry_After="0")
    provider.script = [forward(stripe.url, breaks="closed"), *[broken] * 5]
    session_id = refund(cluster, charge)
    (call,) = cluster.idle(session_id).calls
    assert (call.status, call.attempts) == (CallStatus.OUTCOME_UNKNOWN, 6)
    assert call.checkable
    assert call.checking_at is not None
    (item,) = [one for one in cluster.client.unknown_outcomes() if one.call.id == call.id]
    assert item.call.checkable
    cluster.client.check_call(session_id, call.id, by="Ann")
    wait_until(
        lambda: cluster.snapshot(session_id).unknown_calls == (),
        "it is looked up",
        timeout_seconds=PATIENCE,
    )
    found = cluster.client.snapshot(session_id).calls[0]
    assert found.status is CallStatus.SUCCEEDED
    assert found.reconciled_by == "a look-up at Stripe (shop)"
    assert stripe.refunds(charge) == [(500, call.id)]
    assert cluster.client.steps(session_id)[-1].name is StepName.RECONCILE_CALL
    cluster.client.send_message(session_id, "hello")
    notices = [m.text for m in cluster.idle(session_id).messages if m.role.value == "notice"]
    assert any(
        f"{call.id} of stripe_create_refund is now known: it did happen" in n for n in notices
    )


def test_no_credential_is_in_the_store_the_logs_or_the_messages(cluster: Cluster) -> None:
    secret = KEY.removeprefix("sk_test_").encode()
    for key in cluster.redis.scan_iter(count=1000):
        assert secret not in (cluster.redis.dump(key) or b""), key
    for title, text in cluster.logs():
        assert secret.decode() not in text, title


def test_what_is_unknown_is_looked_up_by_itself_and_the_model_is_told(tmp_path: Path) -> None:
    with Cluster(tmp_path / "ledger", agents=AGENTS) as cluster:
        worker = cluster.start_worker()
        session_id = cluster.say("/tool book {}", agent="bookkeeper")
        ledger = tmp_path / "ledger" / "ledger.txt"
        wait_until(ledger.exists, "it is booked", timeout_seconds=PATIENCE)
        worker.kill()
        cluster.start_worker()
        cluster.idle(session_id)
        wait_until(
            lambda: cluster.snapshot(session_id).unknown_calls == (),
            "it is looked up",
            timeout_seconds=PATIENCE,
        )
        cluster.client.send_message(session_id, "and?")
        snapshot = cluster.idle(session_id)
        assert len(ledger.read_text().split()) == 1
        texts = [m.text for m in snapshot.messages]
        assert any("it did happen (it is in the file)" in text for text in texts)


def test_a_worker_does_not_start_with_a_wrong_connection(tmp_path: Path) -> None:
    env = {
        "CELERIAC_CONNECTION_SHOP_CONNECTOR": "stripe",
        "CELERIAC_CONNECTION_SHOP_SECRET_KEY": "hunter2-hunter2",
    }
    with Cluster(tmp_path, agents=AGENTS, env=env) as cluster:
        worker = cluster.start("worker", [*CELERIAC, "worker"])
        assert worker.process.wait(PATIENCE) != 0
        assert "credentials.secretKey is malformed" in worker.output()
        assert "hunter2" not in worker.output()


def test_a_worker_without_a_connection_leaves_its_tools_out(tmp_path: Path) -> None:
    with Cluster(tmp_path, agents=AGENTS) as cluster:
        worker = cluster.start_worker()
        session_id = cluster.say("/tool stripe_list_refunds {}", agent="support")
        assert "stripe_list_refunds" in cluster.idle(session_id).messages[-1].text
        assert cluster.snapshot(session_id).calls == ()
        (line,) = [one for one in worker.output().splitlines() if "no connection 'shop'" in one]
        assert "stripe_create_refund, stripe_list_refunds" in line
