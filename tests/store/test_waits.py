"""Questions, timers, plans and late results against a real store, over its restarts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from pydantic import JsonValue

from celeriac.sessions.built_in import BuiltInTool
from celeriac.sessions.calls import DID_NOT_RUN, CallRecord, CallStatus, DecisionVerb
from celeriac.sessions.client import SessionClient
from celeriac.sessions.errors import Conflict, InvalidRequest
from celeriac.sessions.inputs import StepFailed, StepReturned, ToolEnded, WokenUp
from celeriac.sessions.messages import Role
from celeriac.sessions.settings import Settings
from celeriac.sessions.state import SessionStatus, StepName
from celeriac.sessions.store.connection import connect
from celeriac.sessions.store.embedded import EmbeddedStore
from celeriac.sessions.store.keys import PARTITIONS, PartitionKeys
from celeriac.sessions.store.sessions import Claim, SessionStore
from tests.store.asking_client import refused, texts
from tests.store.dispatcher import RecordingDispatcher
from tests.store.driving import (
    WRITE,
    answer,
    at_once,
    built_in,
    claim,
    message,
    new_session,
    open_step,
    planned,
    respond,
    set_timing,
    tool_ended,
)
from tests.store.indexes import check_indexes
from tests.store.moved_clock import clock_ahead, needs_moved_clock

ALL = range(PARTITIONS)
DAY = 24 * 3600


def asked(store: SessionStore, *arguments: dict[str, JsonValue]) -> tuple[str, list[str]]:
    """A session with questions: (session id, call ids)."""
    sid = new_session(store)
    calls = [built_in(BuiltInTool.ASK_USER, given) for given in arguments]
    respond(store, sid, *calls)
    return sid, [call.request.id for call in calls]


def waiting(store: SessionStore, seconds: float) -> tuple[str, str]:
    """A session with a timer: (session id, call id)."""
    sid, call = new_session(store), built_in(BuiltInTool.DURABLE_WAIT, {"seconds": seconds})
    respond(store, sid, call)
    return sid, call.request.id


# --- questions


@pytest.mark.parametrize("second", [0, "", {"size": 3}])
def test_dh_02_falsy_answers_reach_the_right_question_and_the_second_is_refused(
    session_client: SessionClient, session_store: SessionStore, second: JsonValue
) -> None:
    sid, (sure, number) = asked(session_store, {"question": "Sure?"}, {"question": "How many?"})

    record = session_client.answer(sid, sure, False, by="Ana")

    assert (record.status, record.result, record.answered_by) == (
        CallStatus.SUCCEEDED,
        False,
        "Ana",
    )
    shown = {call.id: call for call in session_client.snapshot(sid).calls}
    assert shown[sure] == record
    assert shown[number].status is CallStatus.AWAITING_ANSWER
    session_client.answer(sid, number, second, by="Bo")
    for again in (False, True):
        error = refused(partial(session_client.answer, sid, sure, again, by="Bo"))
        assert isinstance(error, Conflict)
        assert error.code == "already_answered"
        assert "by Ana" in str(error)
    results = [call.result for call in session_client.snapshot(sid).calls]
    assert results == [False, second]
    assert open_step(session_store, sid).name is StepName.RUN_MODEL
    check_indexes(session_store.client)


def test_of_many_answers_at_once_one_is_taken(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid, (call_id,) = asked(session_store, {"question": "Which?"})

    results = at_once(6, lambda n: session_client.answer(sid, call_id, n, by=f"p{n}"))

    taken = [one for one in results if isinstance(one, CallRecord)]
    assert len(taken) == 1
    assert taken[0].answered_by == f"p{taken[0].result}"
    assert {one.code for one in results if isinstance(one, Conflict)} == {"already_answered"}
    assert session_client.call(sid, call_id).result == taken[0].result


@pytest.mark.parametrize(
    ("arguments", "value", "code"),
    [
        ({"question": "Which?"}, None, "no_answer"),
        ({"question": "Which?"}, "x" * 300_000, "answer_too_large"),
        ({"question": "Which?", "choices": ["red", "blue"]}, "green", "not_a_choice"),
        ({"question": "Which?", "choices": ["red", "blue"]}, "", "not_a_choice"),
        ({"question": "Which?", "choices": ["red", "blue"]}, ["red"], "not_a_choice"),
    ],
)
def test_an_answer_that_is_none_is_refused_and_the_question_stays(
    session_client: SessionClient,
    session_store: SessionStore,
    arguments: dict[str, JsonValue],
    value: JsonValue,
    code: str,
) -> None:
    sid, (call_id,) = asked(session_store, arguments)

    error = refused(lambda: session_client.answer(sid, call_id, value, by="Ana"))

    assert isinstance(error, InvalidRequest)
    assert error.code == code
    assert session_client.call(sid, call_id).status is CallStatus.AWAITING_ANSWER


def test_an_answer_after_stop_is_told_that_the_question_was_cancelled(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid, (call_id,) = asked(session_store, {"question": "Which?"})
    session_client.cancel_turn(sid)

    error = refused(lambda: session_client.answer(sid, call_id, "red", by="Ana"))

    assert error.code == "not_awaiting_answer"
    assert "cancelled" in str(error)
    record = session_client.call(sid, call_id)
    assert record.cancelled_while is CallStatus.AWAITING_ANSWER


# --- timers


def test_dh_12_a_timer_is_taken_by_one_of_two_pollers_and_fires_once(
    session_client: SessionClient, session_store: SessionStore, dispatcher: RecordingDispatcher
) -> None:
    sid, call_id = waiting(session_store, 3_600)
    sent = len(dispatcher.sent)
    assert session_store.take_due(ALL) == []
    step = open_step(session_store, sid)
    set_timing(session_store.client, sid, step.id)

    def poll(_: int) -> int:
        taken = session_store.take_due(ALL)
        for one in taken:
            session_store.apply(one, WokenUp())
        # One that was taken by mistake, or long ago, finds nothing to do.
        session_store.apply(sid, WokenUp())
        return len(taken)

    assert sorted(str(one) for one in at_once(2, poll)) == ["0", "1"]
    assert session_client.call(sid, call_id).status is CallStatus.SUCCEEDED
    fired = [one for one in session_client.steps(sid) if one.name is StepName.AWAIT_TIMER]
    assert [one.status for one in fired] == ["fired"]
    assert len(dispatcher.sent) == sent + 1
    check_indexes(session_store.client)


def test_dh_12_an_old_timer_does_not_hide_a_new_one(session_store: SessionStore) -> None:
    old, _ = waiting(session_store, 366 * DAY)
    new, _ = waiting(session_store, 1)
    set_timing(session_store.client, new, open_step(session_store, new).id)

    assert session_store.take_due(ALL) == [new]
    session_store.apply(new, WokenUp())

    assert open_step(session_store, old).name is StepName.AWAIT_TIMER
    assert open_step(session_store, new).name is StepName.RUN_MODEL
    check_indexes(session_store.client)


def test_dh_12_steer_ends_a_wait_and_the_index_forgets_it(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid, call_id = waiting(session_store, 3_600)
    session_client.steer(sid, text="never mind")
    answer(session_store, sid)

    assert session_client.call(sid, call_id).cancelled_while is CallStatus.AWAITING_TIMER
    assert session_client.snapshot(sid).status is SessionStatus.IDLE
    check_indexes(session_store.client)


def one_look_at(store: SessionStore, sid: str) -> float:
    """A session's only entry in any wake index."""
    scores = [store.client.zscore(PartitionKeys(number).wake, sid) for number in ALL]
    found = [score for score in scores if score is not None]
    assert len(found) == 1
    return float(found[0])


@contextmanager
def opened(directory: Path, dispatcher: RecordingDispatcher) -> Iterator[SessionStore]:
    """A store on a directory; what it holds is on disk when it is closed."""
    with EmbeddedStore(directory) as embedded, closing(connect(embedded.url)) as client:
        yield SessionStore(client, dispatcher, Settings(redis_url=embedded.url))


@needs_moved_clock
def test_dh_12_a_wait_of_30_days_costs_one_entry_and_fires_once_after_a_restart(
    tmp_path: Path,
) -> None:
    """The clock of the store is really moved: 29 days ahead at one start, 30 and a bit at the next."""
    data, dispatcher = tmp_path / "data", RecordingDispatcher()
    with opened(data, dispatcher) as store:
        sid, call_id = waiting(store, 30 * DAY)
        step = open_step(store, sid)
        assert one_look_at(store, sid) == step.timing.due
        assert len(dispatcher.sent) == 1, "only the model call was ever sent"
        assert store.take_due(ALL) == []
    with clock_ahead(tmp_path, 29 * DAY), opened(data, dispatcher) as store:
        assert store.take_due(ALL) == []
        assert not store.apply(sid, WokenUp())[1]
        assert open_step(store, sid) == step
    with clock_ahead(tmp_path, 30 * DAY + 60), opened(data, dispatcher) as store:
        assert store.take_due(ALL) == [sid]
        assert store.apply(sid, WokenUp())[1]
        assert not store.apply(sid, WokenUp())[1]
        client = SessionClient(store, store.settings)
        record = client.call(sid, call_id)
        assert record.status is CallStatus.SUCCEEDED
        assert isinstance(record.result, dict)
        waited = record.result["waited_seconds"]
        assert isinstance(waited, (int, float))
        assert 30 * DAY <= waited < 30 * DAY + 300
        assert [sent.name for sent in dispatcher.sent] == [StepName.RUN_MODEL] * 2
        answer(store, sid)
        check_indexes(store.client)


def test_dh_12_a_wait_outlives_a_restart_and_fires_once_by_its_own_times(tmp_path: Path) -> None:
    """As above where no clock can be moved: the session's own times are, which is the same to the store."""
    data, dispatcher = tmp_path / "data", RecordingDispatcher()
    with opened(data, dispatcher) as store:
        sid, call_id = waiting(store, 30 * DAY)
    with opened(data, dispatcher) as store:
        assert store.take_due(ALL) == []
        set_timing(store.client, sid, open_step(store, sid).id)
        assert store.take_due(ALL) == [sid]
        assert store.apply(sid, WokenUp())[1]
        assert not store.apply(sid, WokenUp())[1]
        record = SessionClient(store, store.settings).call(sid, call_id)
        assert record.status is CallStatus.SUCCEEDED


# --- plans


def drafted(store: SessionStore) -> str:
    sid = new_session(store)
    respond(store, sid, built_in(BuiltInTool.WRITE_TODOS, {"todos": [{"title": "Look"}]}))
    answer(store, sid)
    return sid


def test_a_plan_is_executed_by_one_of_many(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = drafted(session_store)

    results = at_once(5, lambda _: session_client.execute_plan(sid, revision=1, by="Ana"))

    assert results.count(None) == 1
    assert {one.code for one in results if isinstance(one, Conflict)} == {"turn_running"}
    plan = session_client.snapshot(sid).plan
    assert plan is not None
    assert (plan.revision, plan.status.value) == (1, "active")
    assert [role for role, _ in texts(session_client, sid)].count(Role.USER) == 2
    assert refused(lambda: session_client.execute_plan(sid, revision=2)).code == "stale_plan"


def test_a_stalled_execution_is_corrected_once_and_stored(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = drafted(session_store)
    session_client.execute_plan(sid, revision=1)
    answer(session_store, sid, "I stop here.")
    assert "tasks of the plan" in texts(session_client, sid)[-1][1]
    answer(session_store, sid, "I stop again.")
    assert session_client.snapshot(sid).status is SessionStatus.IDLE
    check_indexes(session_store.client)


# --- late reports


def lost(store: SessionStore) -> tuple[str, Claim]:
    """A single-attempt write whose worker was thought dead, so that its outcome is unknown."""
    sid, call = new_session(store), planned("charge", effect=WRITE)
    respond(store, sid, call)
    claimed = claim(store, sid)
    set_timing(store.client, sid, claimed.step.id)
    store.apply(sid, WokenUp())
    return sid, claimed


@pytest.mark.parametrize("how", ["given back", "not entered"])
def test_a_late_report_that_it_did_not_run_settles_the_unknown(
    session_client: SessionClient, session_store: SessionStore, how: str
) -> None:
    sid, claimed = lost(session_store)
    call_id = claimed.step.call_id or ""
    assert session_client.snapshot(sid).unknown_calls == (call_id,)
    step, token = claimed.step.id, claimed.token
    event: StepReturned | StepFailed = StepReturned(step, token, call_id)
    if how == "not entered":
        event = StepFailed(step, token, "no such tool", call_id, retryable=False, entered=False)

    assert session_store.apply(sid, event)[1]
    assert not session_store.apply(sid, event)[1]

    record = session_client.call(sid, call_id)
    assert (record.status, record.reconciled_by) == (CallStatus.FAILED, "late result")
    assert (record.error or "").startswith(DID_NOT_RUN)
    assert session_client.unknown_outcomes() == ()
    check_indexes(session_store.client)


def test_a_late_result_of_a_settled_call_is_kept_once_and_long_after_its_turn(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid, call = new_session(session_store), planned("look")
    respond(session_store, sid, call)
    first = claim(session_store, sid)
    set_timing(session_store.client, sid, first.step.id)
    session_store.apply(sid, WokenUp())
    tool_ended(session_store, claim(session_store, sid), "second")
    answer(session_store, sid)
    session_store.apply(sid, message("more"))
    late = ToolEnded(first.step.id, first.token, call.request.id, succeeded=True, result="first")

    assert session_store.apply(sid, late)[1]
    assert not session_store.apply(sid, late)[1]

    record = session_client.call(sid, call.request.id)
    assert (record.status, record.result) == (CallStatus.SUCCEEDED, "second")
    assert record.late_result is not None
    assert (record.late_result.result, record.late_result.token) == ("first", first.token)
    check_indexes(session_store.client)


def test_a_late_success_that_contradicts_a_person_is_kept_and_told(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid, claimed = lost(session_store)
    call_id = claimed.step.call_id or ""
    record = session_client.reconcile(sid, call_id, succeeded=False, by="Ana", note="I looked")
    assert (record.status, record.note, record.error) == (CallStatus.FAILED, "I looked", None)

    tool_ended(session_store, claimed, "charged")

    record = session_client.call(sid, call_id)
    assert (record.status, record.reconciled_by) == (CallStatus.FAILED, "Ana")
    assert record.late_result is not None
    assert record.late_result.result == "charged"
    answer(session_store, sid)
    session_client.send_message(sid, "and now?")
    notices = [text for role, text in texts(session_client, sid) if role is Role.NOTICE]
    assert any("it succeeded, although it was recorded as failed" in text for text in notices)


# --- one response with calls of every kind


@pytest.mark.parametrize("look", ["works", "fails", "rich"])
def test_dh_04_a_call_settled_at_once_and_calls_that_wait_give_one_set_of_results_in_order(
    session_client: SessionClient, session_store: SessionStore, look: str
) -> None:
    """In this form for our own loop; each adapter has the same."""
    sid = new_session(session_store)
    looked, send_a, send_b, asks = (
        planned("look_up"),
        planned("send_a", effect=WRITE, approval=True),
        planned("send_b", effect=WRITE, approval=True),
        built_in(BuiltInTool.ASK_USER, {"question": "Which?"}),
    )
    todos = built_in(BuiltInTool.WRITE_TODOS, {"todos": [{"title": "Send"}]})
    calls = [send_b, todos, looked, asks, send_a]
    respond(session_store, sid, *calls)
    claimed = claim(session_store, sid)
    result: JsonValue = (
        {"content": [{"type": "image", "data": "…"}], "n": 1} if look == "rich" else "x"
    )
    session_store.apply(
        sid,
        ToolEnded(
            claimed.step.id,
            claimed.token,
            looked.request.id,
            succeeded=look != "fails",
            result=None if look == "fails" else result,
            error="no such order" if look == "fails" else None,
        ),
    )
    session_client.decide(sid, send_a.request.id, DecisionVerb.APPROVE, by="Ana")
    tool_ended(session_store, claim(session_store, sid), "sent")
    session_client.answer(sid, asks.request.id, "red", by="Ana")
    assert session_client.snapshot(sid).status is SessionStatus.WAITING
    session_client.decide(sid, send_b.request.id, DecisionVerb.REJECT, by="Ana", note="not b")

    read = claim(session_store, sid).messages

    assert [one.role for one in read] == [Role.USER, Role.ASSISTANT, *[Role.TOOL] * 5]
    assert [one.call_id for one in read[2:]] == [call.request.id for call in calls]
    told = [one.text for one in read[2:]]
    assert "not b" in told[0]
    assert told[2] == {"works": "x", "fails": "Error: no such order"}.get(look, told[2])
    assert told[3:] == ["red", "sent"]


def test_dh_10_each_decision_touches_its_own_call(
    session_client: SessionClient, session_store: SessionStore, dispatcher: RecordingDispatcher
) -> None:
    """Reject the first, approve the second twice with one body, leave the third."""
    sid = new_session(session_store)
    calls = [planned("send", effect=WRITE, approval=True) for _ in range(3)]
    respond(session_store, sid, *calls)
    first, second, third = (call.request.id for call in calls)
    sent = len(dispatcher.sent)

    session_client.decide(sid, first, DecisionVerb.REJECT, by="Ana")
    once = session_client.decide(sid, second, DecisionVerb.APPROVE, by="Ana")
    again = session_client.decide(sid, second, DecisionVerb.APPROVE, by="Ana")

    assert again == once
    assert [one.call_id for one in dispatcher.sent[sent:]] == [second]
    tool_ended(session_store, claim(session_store, sid), "sent")
    again = session_client.decide(sid, second, DecisionVerb.APPROVE, by="Ana")
    assert again.status is CallStatus.SUCCEEDED
    shown = {call.id: call.status for call in session_client.snapshot(sid).calls}
    assert shown == {
        first: CallStatus.REJECTED,
        second: CallStatus.SUCCEEDED,
        third: CallStatus.AWAITING_APPROVAL,
    }
    steps = session_store.load(sid).state.steps
    assert [(step.name, step.call_id) for step in steps] == [(StepName.AWAIT_TOOL_APPROVAL, third)]
    assert len(dispatcher.sent) == sent + 1, "no model step begins"
    code = refused(lambda: session_client.decide(sid, first, DecisionVerb.APPROVE, by="Bo")).code
    assert code == "already_decided"
