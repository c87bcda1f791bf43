"""Keys: partitions as Redis Cluster would compute them, one slot per session, and no odd ids."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import cast

import pytest
import redis

from celeriac.sessions.calls import DecisionVerb
from celeriac.sessions.client import SessionClient
from celeriac.sessions.errors import NotFound, Refused
from celeriac.sessions.ids import new_session_id
from celeriac.sessions.state import SessionStatus, StepName
from celeriac.sessions.store.connection import DirectConnections
from celeriac.sessions.store.keys import PARTITIONS, SessionKeys, partition_of
from celeriac.sessions.store.scripts import Argument, Script
from celeriac.sessions.store.sessions import SessionStore, Verdict
from tests.store.driving import claim, new_session, planned, respond, unknown, whole_turn
from tests.store.inventory import wrong_keys

# What CLUSTER KEYSLOT answers (Valkey 9.1, Redis 7.2).
KEYSLOTS = {
    "123456789": 12739,
    "foo": 12182,
    "bar": 5061,
    "somekey": 11058,
    "a": 15495,
    "ses_000000000000000000000000": 5572,
}

ODD_IDS = [
    "",
    "ses_1",
    "ses_000000000000000000000000:log",
    "ses_000000000000000000000000\n",
    "SES_000000000000000000000000",
    "ses_00000000000000000000000i",
    "ses_0000000000000000000000000",
    "ses_00000000000000000000000٣",
    "x}:{1}:s:ses_000000000000000000000000",
    "*",
    "../ses",
    "ses 0",
    "\x00",
    "\ud800",
]


def all_names(session_id: str) -> list[str]:
    keys = SessionKeys.of(session_id)
    own = [
        value
        for field in dataclasses.fields(keys)
        if isinstance(value := getattr(keys, field.name), str)
    ]
    partition = keys.partition
    indexes = [partition.status(one) for one in SessionStatus]
    return [
        *own,
        partition.wake,
        partition.pack,
        partition.approvals,
        partition.unknown,
        partition.audit,
        partition.rates(500_000),
        *indexes,
    ]


@pytest.mark.parametrize(("key", "slot"), KEYSLOTS.items())
def test_a_partition_is_the_slot_of_a_cluster_modulo_64(key: str, slot: int) -> None:
    assert partition_of(key) == slot % 64 == slot % PARTITIONS


def test_sessions_spread_over_all_partitions() -> None:
    counts = Counter(partition_of(new_session_id()) for _ in range(6_400))

    assert set(counts) == set(range(PARTITIONS))
    assert max(counts.values()) < 200


def test_all_keys_of_a_session_are_in_one_slot() -> None:
    for _ in range(100):
        sid = new_session_id()
        names = all_names(sid)
        assert len(set(names)) == len(names) == 19
        assert {re.findall(r"\{(.*?)\}", name)[0] for name in names} == {str(partition_of(sid))}


def test_every_script_touches_one_slot(
    session_client: SessionClient, session_store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it would fail on a cluster. The wake loop's look at many partitions is not meant here."""
    calls: dict[str, set[frozenset[str]]] = {}
    run = Script.run

    def note(
        self: Script,
        connections: DirectConnections,
        keys: Sequence[str],
        arguments: Sequence[Argument] = (),
    ) -> object:
        tags = frozenset(re.findall(r"\{(.*?)\}", key)[0] for key in keys)
        calls.setdefault(self.name, set()).add(tags)
        return run(self, connections, keys, arguments)

    monkeypatch.setattr(Script, "run", note)
    sid, call_id = unknown(session_store)
    session_client.send_message(sid, "second")
    session_client.reconcile(sid, call_id, succeeded=True, by="Ana")
    claimed = claim(session_store, sid)
    session_store.renew(sid, claimed.step.id, claimed.token)
    session_store.reindex(sid)
    session_store.take_due([partition_of(sid)])
    session_client.cancel_turn(sid)
    session_client.snapshot(sid)

    assert set(calls) == {"load", "claim", "commit", "renew", "snapshot", "take_due"}
    assert {tags for each in calls.values() for tags in each} == {
        frozenset({str(partition_of(sid))})
    }


@pytest.mark.parametrize("odd", ODD_IDS)
def test_an_odd_id_is_no_session_and_reaches_no_key(
    session_client: SessionClient,
    session_store: SessionStore,
    redis_client: redis.Redis,
    odd: str,
) -> None:
    sid = new_session(session_store)
    whole = sorted(redis_client.keys())
    works: list[Callable[[], object]] = [
        lambda: session_client.snapshot(odd),
        lambda: session_client.send_message(odd, "hello"),
        lambda: session_client.delete_queued(odd, "m-1"),
        lambda: session_client.steer(odd, text="hello"),
        lambda: session_client.cancel_turn(odd),
        lambda: session_client.decide(odd, "call_1", DecisionVerb.APPROVE, by="Ana"),
        lambda: session_client.reconcile(odd, "call_1", succeeded=True, by="Ana"),
        lambda: session_client.messages(odd),
        lambda: session_client.call(odd, "call_1"),
        lambda: session_client.steps(odd),
        lambda: session_client.events(odd, after="0-0"),
    ]

    for work in works:
        with pytest.raises(NotFound) as caught:
            work()
        assert caught.value.code == "unknown_session"
    with pytest.raises(Refused):
        session_store.create(odd, "desk", "demo", None)
    assert sorted(redis_client.keys()) == whole
    assert session_store.load(sid).state.turn is not None


def test_the_id_of_one_sessions_key_is_not_another_session(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    """One in 64 such names is in the same partition, and would be the key of another type."""
    sid = new_session(session_store)
    for suffix in ("log", "calls", "steps", "ids", "events", "queue"):
        with pytest.raises(NotFound):
            session_client.snapshot(f"{sid}:{suffix}")


@pytest.mark.parametrize("step_id", ["", "s1 s2", "state", "s3\n", "\x00", "c:s3", "*"])
def test_an_odd_step_id_claims_nothing(session_store: SessionStore, step_id: str) -> None:
    sid = new_session(session_store)

    assert session_store.claim(sid, step_id, StepName.RUN_MODEL, None, "worker-1") == Verdict(
        "gone"
    )
    assert not session_store.renew(sid, step_id, 0)


def test_the_inventory_finds_what_does_not_belong(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store, None)
    whole_turn(session_store, sid, planned())
    keys = SessionKeys.of(sid)
    assert wrong_keys(redis_client) == []

    redis_client.set("celeriac:{1}:stray", 1)
    redis_client.set(keys.queue, "text")
    redis_client.expire(keys.log, 100)
    redis_client.persist(keys.events)

    assert wrong_keys(redis_client) == sorted(
        [
            "celeriac:{1}:stray (string) is not in the inventory",
            f"{keys.queue} is a string; the inventory says hash",
            f"{keys.log} expires in 100 s; the inventory says it is permanent",
            f"{keys.events} has no TTL; the inventory says it expires",
        ],
        key=lambda complaint: complaint.split()[0],
    )
    redis_client.flushall()


def test_every_kind_of_key_is_in_the_inventory(
    session_store: SessionStore, session_client: SessionClient, redis_client: redis.Redis
) -> None:
    sid, _ = unknown(session_store)
    session_client.send_message(sid, "waits")
    respond(session_store, sid, planned(approval=True))

    names = [cast("bytes", name).decode() for name in redis_client.scan_iter()]
    kinds = {re.sub(r"rates:\d+$", "rates", name).rpartition(":")[2] for name in names}

    assert kinds == {
        sid,
        "log",
        "calls",
        "steps",
        "queue",
        "ids",
        "events",
        "wake",
        "waiting",
        "approvals",
        "unknown",
        "rates",
        "workers",
        "agents",
    }
