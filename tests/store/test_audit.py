"""The audit log: an entry is there when, and only when, its act is."""

from __future__ import annotations

import pytest
import redis

from celeriac.sessions.audit import Actor, AuditAct, AuditEntry
from celeriac.sessions.calls import DecisionVerb
from celeriac.sessions.client import SessionClient
from celeriac.sessions.errors import Conflict, InvalidRequest
from celeriac.sessions.inputs import ApprovalDecided
from celeriac.sessions.settings import Settings
from celeriac.sessions.store.keys import AUDIT_REFUSED
from celeriac.sessions.store.sessions import SessionStore
from tests.store.driving import asking, new_session, unknown

ANA = Actor("Ana", "approver", "page", "10.0.0.7", own=False)


def acts(client: SessionClient, session_id: str | None = None) -> list[AuditAct]:
    """Everything that was done, in order."""
    return [entry.act for entry in reversed(client.audit(session_id=session_id).entries)]


def test_a_decision_is_logged_with_who_what_when_and_from_where(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid, call_id = asking(session_store)
    ana = session_client.acting_as(ANA)

    call = ana.decide(sid, call_id, DecisionVerb.APPROVE, by="Ana", note="a secret of the customer")

    (entry,) = session_client.audit().entries
    assert call.decision is not None
    assert abs(entry.at - call.decision.at) < 60_000
    assert entry.model_dump(exclude={"id", "at"}) == {
        "act": AuditAct.APPROVE,
        "by": "Ana",
        "role": "approver",
        "way": "page",
        "address": "10.0.0.7",
        "session_id": sid,
        "turn_id": "t1",
        "call_id": call_id,
        "tool": "cancel_order",
        "digest": f"digest of {call_id}",
        "detail": None,
    }


def test_only_what_was_done_is_logged_and_only_once(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid, call_id = asking(session_store)
    ana = session_client.acting_as(ANA)
    ana.decide(sid, call_id, DecisionVerb.REJECT, by="Ana")

    ana.decide(sid, call_id, DecisionVerb.REJECT, by="Ana")
    with pytest.raises(Conflict):
        ana.decide(sid, call_id, DecisionVerb.APPROVE, by="Ana")

    assert acts(session_client) == [AuditAct.REJECT]


def test_controls_and_reconciliation_are_logged(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid, call_id = unknown(session_store)
    operator = session_client.acting_as(Actor("Bo", "operator", "api", own=False))

    operator.send_message(sid, "waits", message_id="m1")
    operator.send_message(sid, "goes", message_id="m2")
    operator.delete_queued(sid, "m2")
    operator.reconcile(sid, call_id, succeeded=False, by="Bo")
    operator.steer(sid, by="Bo")
    operator.cancel_turn(sid, by="Bo")

    assert acts(session_client, sid) == [
        AuditAct.SEND_MESSAGE,
        AuditAct.SEND_MESSAGE,
        AuditAct.DELETE_QUEUED,
        AuditAct.RECONCILE,
        AuditAct.STEER,
        AuditAct.CANCEL_TURN,
    ]
    reconciled = session_client.audit().entries[2]
    assert (reconciled.tool, reconciled.detail) == ("cancel_order", "failed")
    assert {entry.by for entry in session_client.audit().entries} == {"Bo"}


def test_a_holders_own_messages_are_the_conversation_and_not_logged(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    holder = session_client.acting_as(Actor(None, "session", "page"))
    sid = holder.create_session(message="hello").session_id
    holder.send_message(sid, "more", message_id="m1")
    holder.delete_queued(sid, "m1")
    assert acts(session_client) == []

    holder.cancel_turn(sid, by="session user")
    assert acts(session_client) == [AuditAct.CANCEL_TURN]


def test_who_started_a_session_for_somebody_is_logged(session_client: SessionClient) -> None:
    client = session_client.acting_as(Actor("shop", "client", "api", own=False))
    sid = client.create_session().session_id
    (entry,) = session_client.audit().entries
    assert (entry.act, entry.by, entry.session_id) == (AuditAct.CREATE_SESSION, "shop", sid)


def test_pages_hold_every_entry_once_the_newest_first(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    """Over all partitions and both streams outside of them, with more entries than one read takes."""
    bo = session_client.acting_as(Actor("Bo", "operator", own=False))
    sessions = [new_session(session_store) for _ in range(12)]
    for number in range(60):
        bo.send_message(sessions[number % 12], "hello", message_id=f"m{number}")
        if number % 3 == 0:
            act = AuditAct.LOGIN if number % 2 else AuditAct.TOKEN_REFUSED
            session_client.record(AuditEntry(act=act, way="page", detail=f"m{number}"))

    found: list[AuditEntry] = []
    cursor = None
    while True:
        page = session_client.audit(cursor=cursor, limit=7)
        found += page.entries
        cursor = page.cursor
        if cursor is None:
            break
        assert len(page.entries) == 7
        assert cursor == page.entries[-1].id

    assert len(found) == len({entry.id for entry in found}) == 80
    assert [entry.at for entry in found] == sorted((e.at for e in found), reverse=True)
    one = session_client.audit(session_id=sessions[3], limit=500).entries
    assert [entry.detail for entry in one] == ["m51", "m39", "m27", "m15", "m3"]


@pytest.mark.parametrize("cursor", ["", "x", "1-2", "1-2-3-4", "1" * 40, "\u0661-0-0", "1-0-100"])
def test_a_foreign_cursor_is_refused(session_client: SessionClient, cursor: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        session_client.audit(cursor=cursor)
    assert caught.value.code == "invalid_cursor"


def test_a_flood_of_refusals_is_capped_and_pushes_no_decision_out(
    session_client: SessionClient,
    session_store: SessionStore,
    redis_client: redis.Redis,
    settings: Settings,
) -> None:
    sid, call_id = asking(session_store)
    session_client.decide(sid, call_id, DecisionVerb.APPROVE, by="Ana")
    small = SessionClient(session_store, settings.model_copy(update={"audit_max": 100}))
    for _ in range(1_000):
        small.record(AuditEntry(act=AuditAct.TOKEN_REFUSED, way="api"))

    assert redis_client.xlen(AUDIT_REFUSED) < 300
    assert acts(session_client, sid) == [AuditAct.APPROVE]


def test_a_lost_race_logs_only_the_winner(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid, call_id = asking(session_store)
    stale = session_store.load(sid)
    session_client.decide(sid, call_id, DecisionVerb.APPROVE, by="Ana")
    event = ApprovalDecided(call_id, DecisionVerb.REJECT, "Bo", f"digest of {call_id}")
    assert session_store.try_apply(event, stale, actor=Actor("Bo")) is None
    assert acts(session_client) == [AuditAct.APPROVE]
