"""The web process and workers together: many decisions at once, and a store that is away."""

from __future__ import annotations

import hashlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import httpx
import pytest

from celeriac.sessions.calls import CallStatus
from tests.tasks.cluster import PATIENCE, Cluster, last_answer
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("over-http")]

NAMES = ("ana", "ben")


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> tuple[Cluster, str]:
    """Two workers and the web; the operators' tokens are their names."""
    cluster.restore(2)
    entries = [f"{name}:operator:{hashlib.sha256(name.encode()).hexdigest()}" for name in NAMES]
    cluster.env["CELERIAC_OPERATORS"] = ",".join(entries)
    _, base = cluster.start_web()
    return cluster, base


def person(base: str, name: str) -> httpx.Client:
    return httpx.Client(
        base_url=base, headers={"Authorization": f"Bearer {name}"}, timeout=PATIENCE
    )


@pytest.mark.parametrize("number", range(3))
def test_of_twenty_decisions_at_once_one_counts(site: tuple[Cluster, str], number: int) -> None:
    cluster, base = site
    session_id = cluster.say("/tool charge_approved {}")
    call = cluster.waiting(session_id)
    url = f"/api/sessions/{session_id}/calls/{call.id}/decision"
    together = Barrier(20)

    def decide(index: int) -> tuple[str, str, httpx.Response]:
        decision = ("approve", "reject")[index % 2]
        name = NAMES[index % 2]
        with person(base, name) as web:
            web.get("/healthz")
            together.wait(PATIENCE)
            answer = web.post(url, json={"decision": decision, "note": f"note {index}"})
        return decision, name, answer

    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(decide, range(20)))
    won = {decision for decision, _, answer in answers if answer.status_code == 200}
    assert len(won) == 1
    (winner,) = won
    losers = [answer for decision, _, answer in answers if decision != winner]
    assert [answer.status_code for answer in losers] == [409] * 10
    by = NAMES[("approve", "reject").index(winner)]
    word = {"approve": "approved", "reject": "rejected"}[winner]
    for answer in losers:
        problem = answer.json()
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert f"{word} by {by} at " in problem["detail"]
    # Those who said the same later are told of the first one's note.
    notes = {a.json()["decision"]["note"] for d, _, a in answers if d == winner}
    assert len(notes) == 1
    cluster.idle(session_id)
    runs = len(cluster.marks("charge", call.id))
    status = cluster.client.call(session_id, call.id).status
    assert (runs, status) == (
        (1, CallStatus.SUCCEEDED) if winner == "approve" else (0, CallStatus.REJECTED)
    )


def test_one_message_id_sent_twenty_times_at_once_is_one_message(
    site: tuple[Cluster, str],
) -> None:
    cluster, base = site
    session_id = cluster.say("hello")
    cluster.idle(session_id)
    together = Barrier(20)

    def send(_: int) -> int:
        with person(base, "ana") as web:
            web.get("/healthz")
            together.wait(PATIENCE)
            body = {"text": "once", "message_id": "only-one"}
            return web.post(f"/api/sessions/{session_id}/messages", json=body).status_code

    with ThreadPoolExecutor(20) as threads:
        assert Counter(threads.map(send, range(20))) == {202: 20}
    wait_until(
        lambda: last_answer(cluster.snapshot(session_id)) == "You said: once",
        "it is answered",
        timeout_seconds=PATIENCE,
    )
    said = [message.text for message in cluster.idle(session_id).messages]
    assert said == ["hello", "You said: hello", "once", "You said: once"]


def test_while_the_store_is_away_the_api_says_when_to_try_again(
    site: tuple[Cluster, str],
) -> None:
    cluster, base = site
    session_id = cluster.say("/hold http said")
    cluster.entered("model", session_id)
    cluster.stop_store()
    try:
        with person(base, "ana") as web:
            for answer in (
                web.get(f"/api/sessions/{session_id}"),
                web.get("/api/approvals"),
                web.get("/readyz"),
                web.post("/api/sessions", json={"message": "hello"}),
                web.post(f"/api/sessions/{session_id}/messages", json={"text": "hello"}),
                web.post(f"/api/sessions/{session_id}/cancel", json={}),
            ):
                assert answer.status_code == 503, answer.text
                assert int(answer.headers["Retry-After"]) >= 1
            assert web.get("/healthz").status_code == 200
    finally:
        cluster.start_store()
    cluster.open_gate("http")
    assert cluster.answer(session_id) == "said and more"
    with person(base, "ana") as web:
        assert web.get(f"/api/sessions/{session_id}").json()["status"] == "idle"
