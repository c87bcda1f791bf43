"""What people decide: approvals and unknown outcomes, with races between people."""

from __future__ import annotations

import pytest
import redis

from celeriac.sessions.calls import CallRecord, CallStatus, DecisionVerb
from celeriac.sessions.client import SessionClient
from celeriac.sessions.errors import Conflict, NotFound, Refused
from celeriac.sessions.inputs import ToolChanged
from celeriac.sessions.messages import Role
from celeriac.sessions.state import StepName
from celeriac.sessions.store.sessions import SessionStore
from tests.store.asking_client import refused, texts
from tests.store.driving import (
    WRITE,
    answer,
    asking,
    at_once,
    broke,
    claim,
    new_session,
    planned,
    respond,
    tool_ended,
    unknown,
)
from tests.store.indexes import check_indexes

# --- decisions


@pytest.mark.parametrize("verb", DecisionVerb)
def test_a_decision_reaches_its_call(
    session_client: SessionClient, session_store: SessionStore, verb: DecisionVerb
) -> None:
    sid, call_id = asking(session_store)
    shown = session_client.call(sid, call_id)
    assert shown.status is CallStatus.AWAITING_APPROVAL

    record = session_client.decide(
        sid, call_id, verb, by="Ana", note=" Not today.\x00 ", digest=shown.digest
    )

    approved = verb is DecisionVerb.APPROVE
    assert record.status is (CallStatus.PENDING if approved else CallStatus.REJECTED)
    assert record.decision is not None
    assert (record.decision.by, record.decision.verb) == ("Ana", verb)
    assert record.decision.note == "Not today.\ufffd"
    assert record == session_client.call(sid, call_id)
    last = texts(session_client, sid)[-1]
    assert ("Not today." in last[1]) is not approved


def test_the_same_decision_again_is_no_error(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid, call_id = asking(session_store)
    first = session_client.decide(sid, call_id, DecisionVerb.APPROVE, by="Ana")
    version = session_store.load(sid).version

    again = session_client.decide(sid, call_id, DecisionVerb.APPROVE, by="Bob", note="me too")

    assert again == first
    assert session_store.load(sid).version == version
    tool_ended(session_store, claim(session_store, sid))
    answer(session_store, sid)
    later = session_client.decide(sid, call_id, DecisionVerb.APPROVE, by="Bob")
    assert later.decision == first.decision
    assert later.status is CallStatus.SUCCEEDED


@pytest.mark.parametrize("later", [False, True])
def test_another_decision_says_who_decided_and_when(
    session_client: SessionClient, session_store: SessionStore, *, later: bool
) -> None:
    sid, call_id = asking(session_store)
    first = session_client.decide(sid, call_id, DecisionVerb.REJECT, by="Ana")
    if later:
        answer(session_store, sid)
    assert first.decision is not None

    error = refused(lambda: session_client.decide(sid, call_id, DecisionVerb.APPROVE, by="Bob"))

    assert (type(error), error.code) == (Conflict, "already_decided")
    assert str(error) == f"Call {call_id} was already {first.decision.describe()}."
    assert "rejected by Ana at 20" in str(error)


def test_of_many_decisions_at_once_one_wins(
    session_client: SessionClient, session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid, call_id = asking(session_store)
    verbs = list(DecisionVerb) * 10

    answers = at_once(
        20,
        lambda number: session_client.decide(sid, call_id, verbs[number], by=f"person-{number}"),
    )

    decision = session_client.call(sid, call_id).decision
    assert decision is not None
    assert decision.by in {f"person-{number}" for number in range(20)}
    for verb, result in zip(verbs, answers, strict=True):
        if verb is decision.verb:
            assert isinstance(result, CallRecord)
            assert result.decision == decision
        else:
            assert isinstance(result, Conflict)
            assert result.code == "already_decided"
            assert decision.describe() in str(result)
    told = [one for one in session_client.steps(sid) if one.name is StepName.AWAIT_TOOL_APPROVAL]
    assert [one.note for one in told] == [f"by {decision.by}"]
    check_indexes(redis_client)


def test_a_decision_touches_only_its_own_call(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = new_session(session_store)
    one, two, free = planned(approval=True), planned(approval=True), planned()
    respond(session_store, sid, one, two, free)

    answers = at_once(
        2,
        lambda number: session_client.decide(
            sid, (one, two)[number].request.id, list(DecisionVerb)[number], by="Ana"
        ),
    )

    assert [type(each) for each in answers] == [CallRecord, CallRecord]
    statuses = [call.status for call in session_client.snapshot(sid).calls]
    assert statuses == [CallStatus.PENDING, CallStatus.REJECTED, CallStatus.PENDING]


def test_a_decision_on_what_was_not_shown_is_refused(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid, call_id = asking(session_store)
    session_client.decide(sid, call_id, DecisionVerb.APPROVE, by="Ana")
    claimed = claim(session_store, sid)
    session_store.apply(
        sid, ToolChanged(claimed.step.id, claimed.token, "new digest", "its description changed")
    )
    shown = session_client.call(sid, call_id)
    assert shown.status is CallStatus.AWAITING_APPROVAL
    assert (shown.digest, shown.approval_reason) == ("new digest", "its description changed")

    error = refused(
        lambda: session_client.decide(
            sid, call_id, DecisionVerb.APPROVE, by="Ana", digest=f"digest of {call_id}"
        )
    )

    assert (type(error), error.code) == (Conflict, "changed")
    record = session_client.decide(
        sid, call_id, DecisionVerb.APPROVE, by="Ana", digest="new digest"
    )
    assert record.status is CallStatus.PENDING


def test_decisions_that_cannot_be(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = new_session(session_store)
    free, cancelled = planned(), planned(approval=True)
    respond(session_store, sid, free, cancelled)

    def decide(call_id: str, note: str | None = None) -> Refused:
        return refused(
            lambda: session_client.decide(sid, call_id, DecisionVerb.REJECT, by="Ana", note=note)
        )

    assert decide("call_none").code == "unknown_call"
    assert decide(free.request.id).code == "not_awaiting_approval"
    assert decide(cancelled.request.id, "n" * 2_001).code == "note_too_long"
    session_client.cancel_turn(sid)
    late = decide(cancelled.request.id)
    assert (type(late), late.code) == (Conflict, "not_awaiting_approval")
    assert "it is cancelled" in str(late)


# --- unknown outcomes


@pytest.mark.parametrize("succeeded", [True, False])
def test_a_person_says_how_a_call_ended(
    session_client: SessionClient,
    session_store: SessionStore,
    redis_client: redis.Redis,
    *,
    succeeded: bool,
) -> None:
    sid, call_id = unknown(session_store)
    assert session_client.snapshot(sid).unknown_calls == (call_id,)

    record = session_client.reconcile(
        sid, call_id, succeeded=succeeded, by="Ana", note="I looked", result={"n": float("nan")}
    )

    assert record.status is (CallStatus.SUCCEEDED if succeeded else CallStatus.FAILED)
    assert (record.reconciled_by, record.attempts) == ("Ana", 1)
    assert record.result == {"n": "nan"}
    assert session_client.snapshot(sid).unknown_calls == ()
    assert session_client.unknown_outcomes() == ()
    answer(session_store, sid)
    session_client.send_message(sid, "And?")
    told = [text for role, text in texts(session_client, sid) if role is Role.NOTICE]
    word = "it did happen" if succeeded else "it did not happen"
    assert told == [
        f"The outcome of the earlier call {call_id} of cancel_order is now known: {word} (I looked)."
    ]
    check_indexes(redis_client)


def test_one_of_many_reconciliations_wins(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid, call_id = unknown(session_store)

    answers = at_once(
        10,
        lambda number: session_client.reconcile(
            sid, call_id, succeeded=number % 2 == 0, by=f"person-{number}"
        ),
    )

    winners = [one for one in answers if isinstance(one, CallRecord)]
    losers = [one for one in answers if isinstance(one, Conflict)]
    assert (len(winners), len(losers)) == (1, 9)
    assert {one.code for one in losers} == {"not_unknown"}
    assert session_client.call(sid, call_id) == winners[0]


def test_only_unknown_outcomes_are_reconciled(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid, call_id = asking(session_store)

    none = refused(lambda: session_client.reconcile(sid, "call_none", succeeded=True, by="Ana"))
    other = refused(lambda: session_client.reconcile(sid, call_id, succeeded=True, by="Ana"))

    assert (type(none), none.code) == (NotFound, "unknown_call")
    assert (type(other), other.code) == (Conflict, "not_unknown")


def test_a_single_attempt_call_that_broke_is_unknown_and_says_why(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = new_session(session_store)
    call = planned("cancel_order", effect=WRITE)
    respond(session_store, sid, call)
    broke(session_store, claim(session_store, sid), "connection reset")

    record = session_client.call(sid, call.request.id)

    assert record.status is CallStatus.OUTCOME_UNKNOWN
    assert (record.error, record.attempts) == ("connection reset", 1)
    assert [item.call.id for item in session_client.unknown_outcomes()] == [call.request.id]
