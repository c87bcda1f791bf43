"""What people and programs can do: every method, every refusal, and races between people."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import redis

from celeriac.sessions.calls import CallStatus, DecisionVerb
from celeriac.sessions.client import SessionClient
from celeriac.sessions.errors import Conflict, InvalidRequest, NotFound
from celeriac.sessions.inputs import ModelReplied
from celeriac.sessions.messages import Role
from celeriac.sessions.settings import Settings
from celeriac.sessions.snapshot import SentMessage
from celeriac.sessions.state import SessionStatus, StepName
from celeriac.sessions.store.keys import SessionKeys
from celeriac.sessions.store.lists import SessionLists
from celeriac.sessions.store.reader import SessionReader
from celeriac.sessions.store.sessions import SessionStore
from tests.store.announced import AGENTS, SEEN_AT, worker
from tests.store.asking_client import refused, texts
from tests.store.dispatcher import RecordingDispatcher
from tests.store.driving import (
    answer,
    at_once,
    broke,
    claim,
    new_session,
    open_step,
    planned,
    respond,
    tool_ended,
    unknown,
)
from tests.store.indexes import stored_sessions

NOBODY = "ses_000000000000000000000000"


# --- starting


def test_a_session_starts_with_the_default_agent_and_model(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    created = session_client.create_session()

    assert (created.agent, created.model, created.message_id) == ("desk", "demo", None)
    state = session_store.load(created.session_id).state
    assert state.status is SessionStatus.IDLE
    assert state.created_at == state.updated_at
    assert [step.name for step in session_client.steps(created.session_id)] == [
        StepName.START_AGENT_SESSION
    ]


def test_a_session_with_a_message_is_one_commit(
    session_client: SessionClient, session_store: SessionStore, dispatcher: RecordingDispatcher
) -> None:
    created = session_client.create_session(
        agent="desk", model="other", message="Cancel A-1", message_id="m-1"
    )

    loaded = session_store.load(created.session_id)
    assert loaded.version == "1"
    assert (created.model, created.message_id) == ("other", "m-1")
    assert loaded.state.turn is not None
    assert loaded.state.title == "Cancel A-1"
    assert texts(session_client, created.session_id) == [(Role.USER, "Cancel A-1")]
    assert [sent.name for sent in dispatcher.sent] == [StepName.RUN_MODEL]
    assert [step.name for step in session_client.steps(created.session_id)] == [
        StepName.START_AGENT_SESSION,
        StepName.AWAIT_USER_MESSAGE,
    ]


def test_the_default_agent_can_be_set(session_store: SessionStore, settings: Settings) -> None:
    chosen = settings.model_copy(update={"default_agent": "helper"})
    SessionLists(session_store, SessionReader(session_store, chosen), chosen).announce(
        worker("w", 1), AGENTS
    )

    assert SessionClient(session_store, chosen).create_session().agent == "helper"


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        ({"agent": "nobody"}, "unknown_agent", "'nobody'; there are desk, helper"),
        ({"model": "gpt-0"}, "unknown_model", "'gpt-0'; it has demo, other"),
        ({"agent": "helper", "model": "other"}, "unknown_model", "helper has no model 'other'"),
        ({"message": " \n\t"}, "blank_message", "blank"),
        ({"message": "x" * 262_145}, "message_too_large", "262,145 bytes; the limit is 262,144"),
        (
            {"message": "x", "plan_mode": True},
            "plan_mode_unavailable",
            "Agent desk has no plan mode",
        ),
        ({"message": "x", "message_id": "a b"}, "invalid_message_id", "1 to 64"),
        ({"message": "x", "message_id": ""}, "invalid_message_id", "1 to 64"),
        ({"message": "x", "message_id": "m" * 65}, "invalid_message_id", "1 to 64"),
    ],
)
def test_a_wrong_start_is_refused_and_leaves_nothing(
    session_client: SessionClient,
    redis_client: redis.Redis,
    arguments: dict[str, str | bool],
    code: str,
    named: str,
) -> None:
    error = refused(lambda: session_client.create_session(**arguments))  # type: ignore[arg-type]

    assert isinstance(error, InvalidRequest)
    assert error.code == code
    assert named in str(error)
    assert stored_sessions(redis_client) == []


def test_without_a_worker_ever_there_is_no_agent(
    session_store: SessionStore, settings: Settings
) -> None:
    error = refused(SessionClient(session_store, settings).create_session)

    assert error.code == "no_agents"
    assert "start a worker" in str(error)


# --- talking


def test_a_message_begins_a_turn_and_later_ones_wait(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = session_client.create_session().session_id

    assert session_client.send_message(sid, "one", message_id="m-1") == SentMessage(
        message_id="m-1", queued=False
    )
    second = session_client.send_message(sid, "two")
    assert second.queued
    assert session_client.send_message(sid, "three").queued

    shown = session_client.snapshot(sid)
    assert [one.text for one in shown.queue] == ["two", "three"]
    assert texts(session_client, sid) == [(Role.USER, "one")]
    answer(session_store, sid, "1")
    answer(session_store, sid, "2")
    assert [text for _, text in texts(session_client, sid)] == ["one", "1", "two", "2", "three"]


def test_a_message_is_cleaned_before_it_is_stored(session_client: SessionClient) -> None:
    created = session_client.create_session(message="a\x00b\ud800c ✓")

    assert texts(session_client, created.session_id) == [(Role.USER, "a\ufffdb\ufffdc ✓")]


def test_the_same_message_id_again_changes_nothing(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = session_client.create_session(message="first", message_id="m-0").session_id
    session_client.send_message(sid, "second", message_id="m-1")
    version = session_store.load(sid).version

    assert session_client.send_message(sid, "second", message_id="m-1").queued
    assert session_client.send_message(sid, "other text", message_id="m-1").queued
    assert not session_client.send_message(sid, "first", message_id="m-0").queued
    assert session_store.load(sid).version == version

    answer(session_store, sid)
    answer(session_store, sid)
    session_client.send_message(sid, "second", message_id="m-1")
    assert session_store.load(sid).state.turn is None


def test_a_deleted_message_does_not_come_back(session_client: SessionClient) -> None:
    sid = session_client.create_session(message="first").session_id
    session_client.send_message(sid, "second", message_id="m-1")
    session_client.delete_queued(sid, "m-1")

    assert not session_client.send_message(sid, "second", message_id="m-1").queued
    assert session_client.snapshot(sid).queue == ()


@pytest.mark.parametrize("running", [False, True])
def test_the_same_message_from_many_threads_is_one_message(
    session_client: SessionClient, session_store: SessionStore, *, running: bool
) -> None:
    sid = session_client.create_session(message="first" if running else None).session_id

    answers = at_once(20, lambda _: session_client.send_message(sid, "again", message_id="m-1"))

    assert answers == [SentMessage(message_id="m-1", queued=running)] * 20
    state = session_store.load(sid).state
    assert [item.id for item in state.queue] == (["m-1"] if running else [])
    assert state.turns == 1
    assert state.next_seq == 1


def test_many_messages_at_once_are_all_kept(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = session_client.create_session().session_id

    answers = at_once(20, lambda number: session_client.send_message(sid, f"text {number}"))

    assert sum(isinstance(one, SentMessage) and not one.queued for one in answers) == 1
    for _ in range(20):
        answer(session_store, sid)
    said = {text for role, text in texts(session_client, sid) if role is Role.USER}
    assert said == {f"text {number}" for number in range(20)}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"text": ""}, "blank_message"),
        ({"text": "ä" * 131_073}, "message_too_large"),
        ({"text": "x", "message_id": "a:b"}, "invalid_message_id"),
    ],
)
def test_a_wrong_message_is_refused(
    session_client: SessionClient,
    session_store: SessionStore,
    arguments: dict[str, str],
    code: str,
) -> None:
    sid = session_client.create_session().session_id

    error = refused(lambda: session_client.send_message(sid, **arguments))  # type: ignore[arg-type]

    assert (type(error), error.code) == (InvalidRequest, code)
    assert session_store.load(sid).version == "1"


def test_a_full_queue_refuses_but_knows_what_it_has(
    session_client: SessionClient, session_store: SessionStore, settings: Settings
) -> None:
    few = SessionClient(session_store, settings.model_copy(update={"queue_max_messages": 2}))
    sid = few.create_session(message="first").session_id
    few.send_message(sid, "second", message_id="m-2")
    few.send_message(sid, "third")

    error = refused(lambda: few.send_message(sid, "fourth", message_id="m-4"))

    assert (type(error), error.code) == (Conflict, "queue_full")
    assert str(error).startswith("2 messages wait already")
    assert few.send_message(sid, "second", message_id="m-2").queued
    few.delete_queued(sid, "m-2")
    assert few.send_message(sid, "fourth", message_id="m-4").queued


def test_a_queued_message_is_deleted_once(
    session_client: SessionClient, session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = session_client.create_session(message="first", message_id="m-1").session_id
    session_client.send_message(sid, "second", message_id="m-2")

    answers = at_once(5, lambda _: session_client.delete_queued(sid, "m-2"))

    assert answers.count(None) == 1
    assert {type(one) for one in answers} == {type(None), NotFound}
    assert redis_client.exists(SessionKeys.of(sid).queue) == 0
    for taken in ("m-1", "m-2", "m-none"):
        error = refused(lambda taken=taken: session_client.delete_queued(sid, taken))  # type: ignore[misc]
        assert (type(error), error.code) == (NotFound, "unknown_message")
        assert repr(taken) in str(error)
    assert answer(session_store, sid).turn is None


# --- control


def test_steering_with_all_queued_messages(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = session_client.create_session(message="first").session_id
    call = planned(approval=True)
    respond(session_store, sid, call)
    session_client.send_message(sid, "second")

    session_client.steer(sid, text="third", by="Ana")

    shown = session_client.snapshot(sid)
    assert shown.queue == ()
    assert [one.text for one in shown.messages][-2:] == ["second", "third"]
    assert shown.turn is not None
    assert shown.turn.id == "t2"
    assert shown.calls[0].status is CallStatus.CANCELLED
    notes = [one.note for one in session_client.steps(sid) if one.name == "ApplyTurnControl"]
    assert notes == ["steer by Ana"]


def test_steering_with_chosen_messages_leaves_the_others(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = session_client.create_session(message="first").session_id
    respond(session_store, sid, planned(approval=True))
    for number in (2, 3, 4):
        session_client.send_message(sid, f"text {number}", message_id=f"m-{number}")

    session_client.steer(sid, message_ids=("m-3",), text="now")

    shown = session_client.snapshot(sid)
    assert [one.text for one in shown.messages if one.role is Role.USER] == [
        "first",
        "text 3",
        "now",
    ]
    assert [one.text for one in shown.queue] == ["text 2", "text 4"]


def test_steering_an_idle_session_just_talks_to_it(session_client: SessionClient) -> None:
    sid = session_client.create_session().session_id

    session_client.steer(sid, text="hello")

    assert texts(session_client, sid) == [(Role.USER, "hello")]


def test_steering_waits_for_what_has_started(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = session_client.create_session(message="first").session_id
    running, ready = planned(), planned()
    respond(session_store, sid, running, ready)
    claimed = claim(session_store, sid)

    session_client.steer(sid, text="second")

    shown = session_client.snapshot(sid)
    assert shown.turn is not None
    assert shown.turn.state == "steering"
    assert [call.status for call in shown.calls] == [CallStatus.RUNNING, CallStatus.CANCELLED]
    tool_ended(session_store, claimed)
    assert texts(session_client, sid)[-1] == (Role.USER, "second")


def test_wrong_steering_is_refused(session_client: SessionClient) -> None:
    sid = session_client.create_session(message="first").session_id

    nothing = refused(lambda: session_client.steer(sid))
    gone = refused(lambda: session_client.steer(sid, message_ids=("m-none",)))

    assert (type(nothing), nothing.code) == (Conflict, "nothing_to_steer")
    assert (type(gone), gone.code) == (NotFound, "unknown_message")


def test_a_steer_whose_text_was_taken_up_meanwhile_is_done(
    session_client: SessionClient, session_store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn ends by itself between the two parts of a steer: the text is on its way already."""
    sid = session_client.create_session(message="first").session_id
    claimed = claim(session_store, sid)
    send = session_client.send_message

    def send_and_let_the_turn_end(*args: str) -> SentMessage:
        sent = send(*args)
        session_store.apply(sid, ModelReplied(claimed.step.id, claimed.token, "done"))
        return sent

    monkeypatch.setattr(session_client, "send_message", send_and_let_the_turn_end)
    session_client.steer(sid, text="second")

    assert texts(session_client, sid)[-1] == (Role.USER, "second")
    assert session_store.load(sid).state.turns == 2


def test_stopping_a_turn(session_client: SessionClient, session_store: SessionStore) -> None:
    sid = session_client.create_session(message="first").session_id
    call = planned(approval=True)
    respond(session_store, sid, call)
    session_client.send_message(sid, "second")

    session_client.cancel_turn(sid, turn_id="t1", by="Ana")

    shown = session_client.snapshot(sid)
    assert shown.status is SessionStatus.IDLE
    assert shown.calls[0].status is CallStatus.CANCELLED
    assert [one.text for one in shown.queue] == ["second"]
    again = refused(lambda: session_client.cancel_turn(sid))
    assert (type(again), again.code) == (Conflict, "no_open_turn")


def test_stopping_names_its_turn(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = session_client.create_session(message="first").session_id
    claim(session_store, sid)

    other = refused(lambda: session_client.cancel_turn(sid, turn_id="t0"))
    assert (type(other), other.code) == (Conflict, "turn_ended")
    session_client.cancel_turn(sid, turn_id="t1")
    version = session_store.load(sid).version
    session_client.cancel_turn(sid, turn_id="t1")

    assert session_store.load(sid).version == version
    turn = session_client.snapshot(sid).turn
    assert turn is not None
    assert turn.state == "cancelling"


# --- reading and what does not exist


def test_a_session_that_does_not_exist(session_client: SessionClient) -> None:
    works: list[Callable[[], object]] = [
        lambda: session_client.send_message(NOBODY, "hello", message_id="m-1"),
        lambda: session_client.delete_queued(NOBODY, "m-1"),
        lambda: session_client.steer(NOBODY),
        lambda: session_client.steer(NOBODY, text="hello"),
        lambda: session_client.cancel_turn(NOBODY),
        lambda: session_client.decide(NOBODY, "call_1", DecisionVerb.APPROVE, by="Ana"),
        lambda: session_client.reconcile(NOBODY, "call_1", succeeded=True, by="Ana"),
        lambda: session_client.snapshot(NOBODY),
        lambda: session_client.messages(NOBODY),
        lambda: session_client.call(NOBODY, "call_1"),
        lambda: session_client.steps(NOBODY),
    ]
    for work in works:
        error = refused(work)
        assert (type(error), error.code) == (NotFound, "unknown_session")
        assert repr(NOBODY) in str(error)


def test_a_call_that_does_not_exist(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid, call_id = unknown(session_store)

    for name in ("call_none", "", f"{call_id}:o", f"{call_id}:o:o", "a b", "\ud800"):
        error = refused(lambda name=name: session_client.call(sid, name))  # type: ignore[misc]
        assert (type(error), error.code) == (NotFound, "unknown_call")


def test_the_step_history_tells_what_happened(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = new_session(session_store)
    call = planned()
    respond(session_store, sid, call)
    broke(session_store, claim(session_store, sid, owner="worker-9"))

    history = session_client.steps(sid)

    assert [(one.name.value, one.status) for one in history] == [
        ("StartAgentSession", "succeeded"),
        ("AwaitUserMessage", "succeeded"),
        ("RunModel", "succeeded"),
        ("CallTool", "failed"),
    ]
    last = history[-1]
    assert (last.call_id, last.tool, last.attempt, last.worker) == (
        call.request.id,
        "look",
        1,
        "worker-9",
    )
    assert (last.error, last.note) == ("no answer", "will be tried again")
    assert last.started_at <= last.ended_at
    assert all(a.ended_at <= b.ended_at for a, b in itertools.pairwise(history))
    record = session_client.call(sid, call.request.id)
    assert record.status is CallStatus.RETRYING
    assert record.next_attempt_at == open_step(session_store, sid).timing.not_before
    assert (record.attempts, record.max_attempts, record.last_error) == (1, 3, "no answer")


def test_workers_are_listed_while_they_are_seen(
    session_client: SessionClient, session_store: SessionStore, settings: Settings
) -> None:
    lists = SessionLists(session_store, SessionReader(session_store, settings), settings)
    now = session_store.load(session_client.create_session().session_id).read_at
    lists.announce(worker("b", now), ())
    lists.announce(worker("a", now), ())
    lists.announce(worker("silent", now - 16_000), ())

    assert [one.name for one in session_client.workers()] == ["a", "b"]
    assert session_client.agents() == AGENTS
    session_client.ping()


def test_workers_long_gone_are_forgotten(
    session_client: SessionClient,
    session_store: SessionStore,
    redis_client: redis.Redis,
    settings: Settings,
) -> None:
    lists = SessionLists(session_store, SessionReader(session_store, settings), settings)
    now = session_store.load(session_client.create_session().session_id).read_at
    lists.announce(worker("long-gone", now - 3_700_000), ())

    lists.announce(worker("here", now), ())

    assert b"long-gone" not in redis_client.hkeys("celeriac:workers")


def test_an_agent_that_nobody_announces_any_more_is_forgotten(
    session_client: SessionClient, session_store: SessionStore, settings: Settings
) -> None:
    lists = SessionLists(session_store, SessionReader(session_store, settings), settings)
    day = 24 * 3_600_000
    lists.announce(worker("one", SEEN_AT + day - 1), ())
    assert [agent.name for agent in session_client.agents()] == ["desk", "helper"]

    lists.announce(worker("one", SEEN_AT + day + 1), ())

    assert session_client.agents() == ()


def test_a_message_may_choose_another_model_for_the_session(session_client: SessionClient) -> None:
    sid = session_client.create_session().session_id
    session_client.send_message(sid, "hello", model="other")
    assert session_client.snapshot(sid).model == "other"
    session_client.send_message(sid, "later", model="demo")
    shown = session_client.snapshot(sid)
    assert (shown.model, shown.queue[0].model) == ("other", "demo")


def test_a_model_that_the_agent_does_not_have_is_refused_with_those_it_has(
    session_client: SessionClient,
) -> None:
    sid = session_client.create_session().session_id
    with pytest.raises(InvalidRequest, match=r"no model 'gpt-99'; it has demo") as refusal:
        session_client.send_message(sid, "hello", model="gpt-99")
    assert refusal.value.code == "unknown_model"
    assert session_client.snapshot(sid).messages == ()
