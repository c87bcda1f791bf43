"""CR-01: a step may last as long as it likes; no message of it comes back, and no second worker runs it."""

from __future__ import annotations

import pytest

from celeriac.sessions.calls import CallStatus
from tests.tasks.cluster import Cluster, assert_history_holds, results

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("long-steps")]


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_cr_01_steps_longer_than_leases_and_resends_run_once(cluster: Cluster, pool: str) -> None:
    cluster.restore(0)
    workers = cluster.start_workers(3, env={"CELERIAC_WORKER_POOL": pool})
    gate = f"long-{pool}"
    model = cluster.say(f"/hold {gate} said")
    read = cluster.say(f'/tool look {{"gate": "{gate}"}}')
    once = cluster.say(f'/tool charge {{"gate": "{gate}"}}')
    cluster.entered("model", model)
    looked = cluster.running_call(read, "look")
    charged = cluster.running_call(once, "charge")
    # Leases are two seconds, a message is sent again after half of one.
    for _ in range(4):
        for session_id in (model, read, once):
            cluster.first_lease_is_over(session_id)
    # There is nothing that a visibility timeout could count: no message is kept until it is acknowledged.
    assert not [key for key in cluster.broker_keys() if key.startswith(b"unacked")]
    cluster.open_gate(gate)
    assert cluster.answer(model) == "said and more"
    assert results(cluster.idle(read)) == [f"seen {gate}"]
    (call,) = cluster.idle(once).calls
    assert (call.status, call.attempts) == (CallStatus.SUCCEEDED, 1)
    assert len(cluster.marks("model", model)) == 1
    assert len(cluster.marks("look", looked.id)) == 1
    assert len(cluster.marks("before", charged.id)) == 1
    for session_id in (model, read, once):
        assert_history_holds(cluster.snapshot(session_id))
    for worker in workers:
        worker.kill()
