"""Commits: all of a change or nothing, and indexes that always fit (invariants 1 and 2)."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import cast

import pytest
import redis

from celeriac.sessions.calls import CallStatus, DecisionVerb
from celeriac.sessions.errors import Refused
from celeriac.sessions.inputs import (
    ApprovalDecided,
    Input,
    ModelReplied,
    QueuedMessageDeleted,
    ToolChanged,
    ToolEnded,
    TurnCancelled,
    TurnSteered,
    WokenUp,
)
from celeriac.sessions.settings import Settings
from celeriac.sessions.state import SessionState, SessionStatus, StepName
from celeriac.sessions.store.keys import SessionKeys
from celeriac.sessions.store.packing import pack_session
from celeriac.sessions.store.reader import SessionReader
from celeriac.sessions.store.sessions import SessionStore
from tests.store.dispatcher import RecordingDispatcher, Sent
from tests.store.driving import (
    WRITE,
    answer,
    asking,
    at_once,
    broke,
    claim,
    message,
    new_session,
    open_step,
    planned,
    reply,
    respond,
    set_timing,
    tool_ended,
    unknown,
    whole_turn,
)
from tests.store.indexes import check_indexes, stored_sessions


def contents(client: redis.Redis) -> dict[bytes, bytes | None]:
    """Every key with its exact value."""
    return {name: client.dump(name) for name in client.scan_iter(count=1000)}


def wake_score(client: redis.Redis, session_id: str) -> float | None:
    return client.zscore(SessionKeys.of(session_id).partition.wake, session_id)


def decided(store: SessionStore, session_id: str, call_id: str, verb: str) -> ApprovalDecided:
    call = store.load(session_id).state.call(call_id)
    assert call is not None
    return ApprovalDecided(call_id, DecisionVerb(verb), "Ana", call.digest)


# --- all or nothing


def test_nothing_is_written_when_the_session_moved_on(
    session_store: SessionStore, redis_client: redis.Redis, dispatcher: RecordingDispatcher
) -> None:
    sid = new_session(session_store)
    claimed = claim(session_store, sid)
    seen = session_store.load(sid)
    session_store.apply(sid, message("quicker"))
    before, sent = contents(redis_client), list(dispatcher.sent)

    response = ModelReplied(
        claimed.step.id, claimed.token, "text", [planned(), planned(approval=True)]
    )
    assert session_store.try_apply(response, seen) is None

    assert contents(redis_client) == before
    assert dispatcher.sent == sent


def test_a_session_that_exists_is_not_created_again(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store)
    before = contents(redis_client)

    with pytest.raises(Exception, match="exists already"):
        session_store.create(sid, "helper", "demo", message("again"))

    assert contents(redis_client) == before


def test_a_refused_input_writes_nothing(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid, call_id = asking(session_store)
    before = contents(redis_client)

    for event in (
        QueuedMessageDeleted("m-none"),
        TurnSteered(()),
        TurnCancelled(turn_id="t9"),
        ApprovalDecided("call_none", DecisionVerb.APPROVE, "Ana", "digest"),
        ApprovalDecided(call_id, DecisionVerb.APPROVE, "Ana", "another digest"),
    ):
        with pytest.raises(Refused):
            session_store.apply(sid, event)

    assert contents(redis_client) == before


def test_an_input_that_changes_nothing_writes_nothing(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid, call_id = asking(session_store)
    approve = decided(session_store, sid, call_id, "approve")
    session_store.apply(sid, approve)
    before = contents(redis_client)

    state, changed = session_store.apply(sid, approve)
    old_token = ToolEnded("s1", 1, "call_none", succeeded=True)

    assert not changed
    assert state == session_store.load(sid).state
    assert session_store.apply(sid, old_token) == (state, False)
    assert session_store.apply(sid, WokenUp()) == (state, False)
    assert contents(redis_client) == before


def test_each_commit_counts_the_version_once(session_store: SessionStore) -> None:
    sid = new_session(session_store, None)
    versions = [int(session_store.load(sid).version)]
    for number in range(5):
        session_store.apply(sid, message(f"number {number}"))
        versions.append(int(session_store.load(sid).version))

    assert versions == [1, 2, 3, 4, 5, 6]


def test_two_threads_that_race_lose_nothing(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store, None)

    def send(thread: int) -> list[str]:
        sent = []
        for number in range(100):
            event = message(f"text of {thread}-{number}", f"m-{thread}-{number}")
            state, changed = session_store.apply(sid, event)
            assert changed
            assert event.message_id in {
                *(item.id for item in state.queue),
                *(state.turn.message_ids if state.turn else ()),
            }
            sent.append(event.message_id)
        return sent

    one, two = at_once(2, send)

    assert isinstance(one, list)
    assert isinstance(two, list)
    loaded = session_store.load(sid)
    assert loaded.version == "201"
    assert loaded.state.turn is not None
    arrived = [*loaded.state.turn.message_ids, *(item.id for item in loaded.state.queue)]
    assert sorted(arrived) == sorted(one + two)
    for mine in (one, two):  # each thread's own order is kept
        assert [mid for mid in arrived if mid in set(mine)] == mine
    texts = cast("dict[bytes, bytes]", redis_client.hgetall(SessionKeys.of(sid).queue))
    assert texts == {
        mid.encode(): f"text of {mid[2:]}".encode()
        for mid in arrived
        if mid not in loaded.state.turn.message_ids
    }
    check_indexes(redis_client)


def test_a_message_deleted_meanwhile_is_a_lost_race_and_no_error(
    session_store: SessionStore,
) -> None:
    """Its text is fetched beside the commit and is not there any more."""
    sid = new_session(session_store)
    claimed = claim(session_store, sid)
    session_store.apply(sid, message("next", "m-next"))
    seen = session_store.load(sid)
    session_store.apply(sid, QueuedMessageDeleted("m-next"))

    ended = ModelReplied(claimed.step.id, claimed.token, "Here you are.")

    assert session_store.try_apply(ended, seen) is None
    assert session_store.apply(sid, ended)[0].turn is None


def test_deleting_and_taking_the_queue_race(session_store: SessionStore) -> None:
    """Every deleted message is gone, every other one is answered, and nobody meets an error."""
    sid = new_session(session_store)
    ids = [f"m-{number}" for number in range(30)]
    for mid in ids:
        session_store.apply(sid, message(f"text of {mid}", mid))

    def act(thread: int) -> list[str]:
        if thread:
            while session_store.load(sid).state.turn is not None:
                answer(session_store, sid)
            return []
        deleted = []
        for mid in reversed(ids):
            try:
                session_store.apply(sid, QueuedMessageDeleted(mid))
            except Refused:
                break
            deleted.append(mid)
        return deleted

    deleted, errors = at_once(2, act)

    assert errors == []
    assert isinstance(deleted, list)
    shown = SessionReader(session_store, session_store.settings).messages(sid, None, 200).messages
    texts = [one.text for one in shown if one.message_id in ids]
    assert texts == [f"text of {mid}" for mid in ids if mid not in deleted]


def test_a_response_with_thousands_of_calls_is_stored_whole(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store)
    calls = [replace(planned(), refused="there is no such tool") for _ in range(2_500)]

    respond(session_store, sid, *calls)

    reader = SessionReader(session_store, session_store.settings)
    records = reader.calls(session_store.load(sid).state, [call.request.id for call in calls])
    assert [one.status for one in records] == [CallStatus.FAILED] * 2_500
    assert session_store.load(sid).state.next_seq == 2_502
    assert redis_client.llen(SessionKeys.of(sid).log) == 2_502


# --- messages for workers


def test_ready_steps_are_sent_once_each(
    session_store: SessionStore, dispatcher: RecordingDispatcher
) -> None:
    sid = new_session(session_store)
    read, write, asks = planned(), planned(effect=WRITE), planned(approval=True)
    respond(session_store, sid, read, write, asks)

    assert [(sent.name, sent.call_id) for sent in dispatcher.sent] == [
        (StepName.RUN_MODEL, None),
        (StepName.CALL_TOOL, read.request.id),
        (StepName.CALL_SINGLE_ATTEMPT_TOOL, write.request.id),
    ]
    assert {sent.session_id for sent in dispatcher.sent} == {sid}


def test_a_message_is_pushed_in_the_commit_or_not_at_all(
    redis_client: redis.Redis, settings: Settings
) -> None:
    dispatcher = RecordingDispatcher(push_to="celeriac.model")
    store = SessionStore(redis_client, dispatcher, settings)
    sid = new_session(store)
    assert redis_client.lrange("celeriac.model", 0, -1) == [f"{sid} s3".encode()]
    assert dispatcher.sent == []

    claimed = claim(store, sid)
    seen = store.load(sid)
    store.apply(sid, message())
    response = ModelReplied(claimed.step.id, claimed.token, "", [planned(), planned()])

    assert store.try_apply(response, seen) is None
    assert redis_client.llen("celeriac.model") == 1
    store.apply(sid, response)
    assert redis_client.lrange("celeriac.model", 0, 1) == [
        f"{sid} s5".encode(),
        f"{sid} s4".encode(),
    ]


def test_a_wait_is_never_sent(session_store: SessionStore, dispatcher: RecordingDispatcher) -> None:
    sid, call_id = asking(session_store)
    assert len(dispatcher.sent) == 1

    session_store.apply(sid, decided(session_store, sid, call_id, "approve"))

    step = open_step(session_store, sid)
    assert dispatcher.sent[1:] == [Sent(sid, step.id, StepName.CALL_SINGLE_ATTEMPT_TOOL, call_id)]


# --- indexes


def test_an_idle_session_is_in_an_index_of_its_own_until_it_is_packed(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    def pack_score() -> float | None:
        return redis_client.zscore(SessionKeys.of(sid).partition.pack, sid)

    sid = new_session(session_store, None)
    assert (wake_score(redis_client, sid), pack_score()) == (None, None)
    for _ in range(2):
        session_store.apply(sid, message())
        assert wake_score(redis_client, sid) is not None
        assert pack_score() is None
        state = answer(session_store, sid)
        assert wake_score(redis_client, sid) is None
        assert pack_score() == state.updated_at + 60_000
        check_indexes(redis_client)
    assert pack_session(session_store, sid)
    assert (wake_score(redis_client, sid), pack_score()) == (None, None)
    check_indexes(redis_client)


def test_a_session_that_only_waits_for_a_person_is_due_never(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid, call_id = asking(session_store)

    assert wake_score(redis_client, sid) == float("inf")
    assert session_store.load(sid).state.status is SessionStatus.WAITING
    check_indexes(redis_client)

    session_store.apply(sid, decided(session_store, sid, call_id, "approve"))
    assert wake_score(redis_client, sid) == open_step(session_store, sid).timing.due
    check_indexes(redis_client)


def test_the_status_index_follows_the_session(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    partition = SessionKeys.of(sid := new_session(session_store, None)).partition

    def where() -> list[SessionStatus]:
        return [
            one
            for one in SessionStatus
            if redis_client.zscore(partition.status(one), sid) is not None
        ]

    assert where() == [SessionStatus.IDLE]
    session_store.apply(sid, message())
    assert where() == [SessionStatus.RUNNING]
    respond(session_store, sid, planned(approval=True))
    assert where() == [SessionStatus.WAITING]
    session_store.apply(sid, TurnCancelled())
    assert where() == [SessionStatus.IDLE]


def test_each_waiting_call_has_its_own_entry(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store)
    calls = [planned(approval=True) for _ in range(3)]
    respond(session_store, sid, *calls)
    approvals = SessionKeys.of(sid).partition.approvals

    session_store.apply(sid, decided(session_store, sid, calls[1].request.id, "reject"))

    assert set(cast("list[bytes]", redis_client.zrange(approvals, 0, -1))) == {
        f"{sid}:{calls[0].request.id}".encode(),
        f"{sid}:{calls[2].request.id}".encode(),
    }
    session_store.apply(sid, TurnCancelled())
    assert redis_client.zcard(approvals) == 0


def test_an_unknown_outcome_stays_listed_after_the_turn(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid, call_id = unknown(session_store)
    key = SessionKeys.of(sid).partition.unknown
    assert redis_client.zrange(key, 0, -1) == [f"{sid}:{call_id}".encode()]

    answer(session_store, sid)
    assert redis_client.zrange(key, 0, -1) == [f"{sid}:{call_id}".encode()]
    check_indexes(redis_client)


def test_a_late_result_settles_an_unknown_outcome(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store)
    call = planned("cancel_order", effect=WRITE)
    respond(session_store, sid, call)
    claimed = claim(session_store, sid)
    set_timing(redis_client, sid, claimed.step.id)
    session_store.apply(sid, WokenUp())
    assert redis_client.zcard(SessionKeys.of(sid).partition.unknown) == 1

    tool_ended(session_store, claimed, {"cancelled": True})

    assert redis_client.zcard(SessionKeys.of(sid).partition.unknown) == 0
    reader = SessionReader(session_store, session_store.settings)
    record = reader.call(sid, call.request.id)
    assert (record.status, record.result) == (CallStatus.SUCCEEDED, {"cancelled": True})
    assert record.reconciled_by == "late result"


def test_a_call_is_listed_since_it_asks_and_not_since_it_was_made(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store)
    call = planned(approval=True)
    made_at = respond(session_store, sid, call).updated_at
    call_id = call.request.id
    session_store.apply(sid, decided(session_store, sid, call_id, "approve"))
    wait_for_later(session_store, sid, made_at)
    claimed = claim(session_store, sid)
    changed = ToolChanged(claimed.step.id, claimed.token, "another digest", "its text changed")
    session_store.apply(sid, changed)

    since = redis_client.zscore(SessionKeys.of(sid).partition.approvals, f"{sid}:{call_id}")

    assert since == open_step(session_store, sid).created_at > made_at


def test_an_outcome_is_listed_since_it_is_unknown(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    """A sibling still runs, so that nothing else of the session changes then."""
    sid = new_session(session_store)
    call = planned("cancel_order", effect=WRITE)
    made_at = respond(session_store, sid, call, planned()).updated_at
    claimed = claim(session_store, sid, open_step(session_store, sid))
    wait_for_later(session_store, sid, made_at)
    broke(session_store, claimed)

    call_id = call.request.id
    since = redis_client.zscore(SessionKeys.of(sid).partition.unknown, f"{sid}:{call_id}")
    record = SessionReader(session_store, session_store.settings).call(sid, call_id)

    assert record.settled_at is not None
    assert since == record.settled_at > made_at


def wait_for_later(store: SessionStore, session_id: str, moment: int) -> None:
    """Let the store's clock pass a moment; a millisecond is enough."""
    while store.load(session_id).read_at <= moment:
        pass


@pytest.mark.parametrize("seed", range(8))
def test_the_indexes_fit_after_every_commit(
    session_store: SessionStore, redis_client: redis.Redis, seed: int
) -> None:
    chance = random.Random(seed)
    ids = [new_session(session_store, None, partition=chance.randrange(2)) for _ in range(3)]
    check_indexes(redis_client)
    for _ in range(60):
        sid = chance.choice(ids)
        random_move(session_store, sid, chance)
        check_indexes(redis_client)

    assert len(stored_sessions(redis_client)) == 3


def random_move(store: SessionStore, session_id: str, chance: random.Random) -> None:
    state = store.load(session_id).state
    if state.turn is not None and chance.random() < 0.75:
        move_a_step(store, state, chance)
        return
    events: list[Input] = [message(), message(), TurnCancelled(), WokenUp()]
    if state.queue:
        events.append(QueuedMessageDeleted(chance.choice(state.queue).id))
        events.append(TurnSteered((state.queue[-1].id,)))
    try:
        store.apply(session_id, chance.choice(events))
    except Refused:
        assert state.turn is None


def move_a_step(store: SessionStore, state: SessionState, chance: random.Random) -> None:
    step = chance.choice(state.steps)
    if step.name is StepName.AWAIT_TOOL_APPROVAL:
        assert step.call_id is not None
        verb = chance.choice(["approve", "reject"])
        store.apply(state.session_id, decided(store, state.session_id, step.call_id, verb))
        return
    if step.timing.claimed or step.timing.not_before > store.load(state.session_id).read_at:
        set_timing(store.client, state.session_id, step.id)
        store.apply(state.session_id, WokenUp())
        return
    claimed = claim(store, state.session_id, step)
    if chance.random() < 0.3:
        return
    if chance.random() < 0.3:
        broke(store, claimed)
    elif step.name is StepName.RUN_MODEL:
        kinds = [planned(), planned(effect=WRITE), planned(approval=True)]
        reply(store, claimed, "text", chance.sample(kinds, chance.randrange(4)))
    else:
        tool_ended(store, claimed)


# --- step history


def test_the_step_history_of_a_long_session_is_bounded(
    redis_client: redis.Redis, settings: Settings
) -> None:
    few = settings.model_copy(update={"history_max_steps": 10})
    store = SessionStore(redis_client, RecordingDispatcher(), few)
    sid = new_session(store, None)
    for _ in range(150):
        whole_turn(store, sid)

    steps = SessionReader(store, few).steps(sid)

    assert 10 <= len(steps) <= 10 + 2 * 64
    assert steps[-1].name is StepName.RUN_MODEL
