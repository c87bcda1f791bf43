"""Claims: one worker alone runs a step, under a token that is never given twice (invariant 3)."""

from __future__ import annotations

from typing import cast

import pytest
import redis
from pydantic import ValidationError

from celeriac.sessions.codec import UnknownSchema
from celeriac.sessions.inputs import ContextCompacted, ContextFull, StepReturned, TurnCancelled
from celeriac.sessions.messages import Role
from celeriac.sessions.state import StepName
from celeriac.sessions.store.keys import SessionKeys
from celeriac.sessions.store.sessions import Claim, SessionStore, Verdict
from tests.store.driving import (
    at_once,
    broke,
    claim,
    message,
    new_session,
    open_step,
    planned,
    respond,
    set_timing,
    tool_ended,
    try_claim,
    whole_turn,
)
from tests.store.indexes import check_indexes


def wake_score(client: redis.Redis, session_id: str) -> float | None:
    return client.zscore(SessionKeys.of(session_id).partition.wake, session_id)


def test_a_ready_step_is_claimed_with_a_lease(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store)
    before = session_store.load(sid)

    claimed = claim(session_store, sid, owner="worker-7@host")

    assert claimed.step.name is StepName.RUN_MODEL
    timing = claimed.step.timing
    assert (timing.owner, timing.token) == ("worker-7@host", claimed.token)
    assert before.read_at <= timing.claimed_at == claimed.loaded.read_at
    assert timing.due == timing.claimed_at + session_store.rules.lease_ms
    after = session_store.load(sid)
    assert after.state == claimed.loaded.state
    assert after.version == claimed.loaded.version != before.version
    assert wake_score(redis_client, sid) == timing.due
    check_indexes(redis_client)


@pytest.mark.parametrize(
    ("newer", "error"),
    [
        (b'{"schema_version":99,', UnknownSchema),
        (b'{"schema_version":1,"of_a_later_version":true,', ValidationError),
    ],
    ids=["schema", "field"],
)
def test_a_worker_that_cannot_read_a_session_leaves_its_steps_to_others(
    session_store: SessionStore, redis_client: redis.Redis, newer: bytes, error: type[Exception]
) -> None:
    """A step that such a worker kept would count as begun: an attempt lost, or an unknown outcome."""
    sid = new_session(session_store)
    step = open_step(session_store, sid)
    key = SessionKeys.of(sid).session
    state = redis_client.hget(key, "state")
    assert isinstance(state, bytes)
    redis_client.hset(key, "state", state.replace(b'{"schema_version":1,', newer))

    with pytest.raises(error):
        try_claim(session_store, sid, step, "an-old-worker")

    redis_client.hset(key, "state", state)
    assert not open_step(session_store, sid).timing.claimed
    check_indexes(redis_client)
    claimed = claim(session_store, sid, owner="a-new-worker")
    assert claimed.step.attempt == 1


def test_of_many_workers_one_gets_the_step(session_store: SessionStore) -> None:
    sid = new_session(session_store)
    step = open_step(session_store, sid)

    results = at_once(20, lambda number: try_claim(session_store, sid, step, f"worker-{number}"))

    assert sum(isinstance(result, Claim) for result in results) == 1
    assert results.count(Verdict("busy")) == 19


def test_an_expired_lease_is_not_claimed_but_said_to_be_expired(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store)
    claimed = claim(session_store, sid)
    set_timing(redis_client, sid, claimed.step.id)

    assert try_claim(session_store, sid, claimed.step, "worker-2") == Verdict("expired")
    assert session_store.load(sid).state.steps[0].timing.token == claimed.token


def test_a_retry_is_not_claimed_before_its_time(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store)
    claimed = claim(session_store, sid)
    broke(session_store, claimed)

    assert try_claim(session_store, sid, claimed.step) == Verdict("early")
    set_timing(redis_client, sid, claimed.step.id)
    again = claim(session_store, sid)

    assert (again.step.id, again.step.attempt) == (claimed.step.id, 2)
    assert again.step.last_error == "no answer"


def test_an_ended_step_is_gone(session_store: SessionStore) -> None:
    sid = new_session(session_store)
    claimed = claim(session_store, sid)
    answer_state = session_store.load(sid).state
    assert answer_state.step(claimed.step.id) is not None

    session_store.apply(sid, TurnCancelled())
    assert try_claim(session_store, sid, claimed.step) == Verdict("busy")
    session_store.apply(sid, StepReturned(claimed.step.id, claimed.token))

    assert try_claim(session_store, sid, claimed.step) == Verdict("gone")
    assert session_store.load(sid).state.turn is None


def test_a_deleted_step_and_a_deleted_session_are_gone(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store)
    step = open_step(session_store, sid)
    keys = SessionKeys.of(sid)
    nobody = step.model_copy(update={"id": "s99"})
    assert try_claim(session_store, sid, nobody) == Verdict("gone")

    names = cast("list[bytes]", redis_client.keys(keys.session + "*"))
    redis_client.delete(*names, keys.partition.wake)

    assert try_claim(session_store, sid, step) == Verdict("gone")
    assert redis_client.keys(keys.session + "*") == []
    assert redis_client.exists(keys.partition.wake) == 0


def test_a_step_that_was_given_back_is_claimed_anew(session_store: SessionStore) -> None:
    sid = new_session(session_store)
    first = claim(session_store, sid)
    session_store.apply(sid, StepReturned(first.step.id, first.token))

    second = claim(session_store, sid, owner="worker-2")

    assert second.step.attempt == 1
    assert second.token > first.token


def test_tokens_only_grow_even_when_the_fence_went_back(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    """As after a crash of the store that lost its last second."""
    sid = new_session(session_store)
    session = SessionKeys.of(sid).session
    tokens: list[int] = []
    for number in range(20):
        claimed = claim(session_store, sid)
        tokens.append(claimed.token)
        assert redis_client.hget(session, "fence") == str(claimed.token).encode()
        if number % 2:
            redis_client.hset(session, "fence", 0)
        session_store.apply(sid, StepReturned(claimed.step.id, claimed.token))

    assert tokens == sorted(set(tokens))


def test_a_token_grows_even_when_the_clock_went_back(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store)
    ahead = 4_000_000_000_000_000  # microseconds: the year 2096
    redis_client.hset(SessionKeys.of(sid).session, "fence", ahead)

    assert claim(session_store, sid).token == ahead + 1


def test_the_next_look_is_the_earliest_of_all_steps(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store)
    respond(session_store, sid, planned(), planned(), planned(approval=True))
    first, second = session_store.load(sid).state.steps[:2]

    claimed = claim(session_store, sid, first)

    assert claimed.step.timing.due is not None
    assert second.timing.due is not None
    assert second.timing.due < claimed.step.timing.due
    assert wake_score(redis_client, sid) == second.timing.due
    check_indexes(redis_client)


def test_a_tool_step_gets_its_request_and_no_conversation(session_store: SessionStore) -> None:
    sid = new_session(session_store)
    one, two = planned("look", {"order_id": "A-1"}), planned("look", {"order_id": "Ä-2 ✓"})
    respond(session_store, sid, one, two)
    step = next(
        step for step in session_store.load(sid).state.steps if step.call_id == two.request.id
    )

    claimed = claim(session_store, sid, step)

    assert claimed.request == two.request
    assert claimed.messages == []


def test_a_model_step_gets_the_whole_active_context(session_store: SessionStore) -> None:
    sid = new_session(session_store, "First")
    call = planned()
    respond(session_store, sid, call)
    tool_ended(session_store, claim(session_store, sid), "found it")

    claimed = claim(session_store, sid)

    assert claimed.request is None
    assert [(one.seq, one.role, one.text) for one in claimed.messages] == [
        (0, Role.USER, "First"),
        (1, Role.ASSISTANT, "I will look."),
        (2, Role.TOOL, "found it"),
    ]


def test_a_model_step_gets_nothing_from_before_the_context(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store, None)
    for _ in range(3):
        whole_turn(session_store, sid)
    session_store.apply(sid, message("And now?"))
    redis_client.hset(SessionKeys.of(sid).session, "context_from", 5)

    claimed = claim(session_store, sid)

    assert [(one.seq, one.text) for one in claimed.messages] == [
        (5, "Here you are."),
        (6, "And now?"),
    ]


def test_after_a_compaction_the_model_reads_the_summary_and_what_it_does_not_cover(
    session_store: SessionStore,
) -> None:
    sid = new_session(session_store, None)
    for _ in range(3):
        whole_turn(session_store, sid)
    session_store.apply(sid, message("And now?"))  # seq 6
    model = claim(session_store, sid)
    session_store.apply(sid, ContextFull(model.step.id, model.token, 4, "it is full"))

    compaction = claim(session_store, sid)
    assert compaction.step.name is StepName.COMPACT_CONTEXT
    assert [one.seq for one in compaction.messages] == list(range(7))
    summary = ContextCompacted(compaction.step.id, compaction.token, "Orders were asked about.")
    session_store.apply(sid, summary)

    claimed = claim(session_store, sid)
    assert [(one.seq, one.text) for one in claimed.messages] == [
        (7, "Orders were asked about."),
        (4, "What about my order?"),
        (5, "Here you are."),
        (6, "And now?"),
    ]
    assert session_store.load(sid).state.context_from == 4


def test_a_claim_is_told_to_pages_and_the_stream_still_expires(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    """The stream of a session that waited for longer than events live is made anew by the claim."""
    sid = new_session(session_store)
    events = SessionKeys.of(sid).events
    redis_client.delete(events)

    claimed = claim(session_store, sid)

    [(_, fields)] = cast("list[tuple[bytes, dict[bytes, bytes]]]", redis_client.xrange(events))
    assert fields[b"e"].decode() == (
        f'{{"type":"step.started","data":{{"step_id":"{claimed.step.id}","name":"RunModel","call_id":null}}}}'
    )
    assert 0 < redis_client.ttl(events) <= session_store.settings.events_ttl_seconds


def test_a_claim_makes_a_commit_that_did_not_see_it_fail(session_store: SessionStore) -> None:
    sid = new_session(session_store)
    seen = session_store.load(sid)
    claim(session_store, sid)

    assert session_store.try_apply(TurnCancelled(), seen) is None


def test_a_refused_claim_changes_nothing(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store)
    claimed = claim(session_store, sid)
    before = redis_client.hgetall(SessionKeys.of(sid).session)
    length = redis_client.xlen(SessionKeys.of(sid).events)

    assert try_claim(session_store, sid, claimed.step) == Verdict("busy")

    assert redis_client.hgetall(SessionKeys.of(sid).session) == before
    assert redis_client.xlen(SessionKeys.of(sid).events) == length


def test_a_wait_is_not_for_workers(session_store: SessionStore) -> None:
    """No message names one; if some message ever did, no worker may take it."""
    sid = new_session(session_store)
    respond(session_store, sid, planned("pay", approval=True))
    wait = open_step(session_store, sid, StepName.AWAIT_TOOL_APPROVAL)

    assert try_claim(session_store, sid, wait) == Verdict("gone")
    assert not open_step(session_store, sid).timing.claimed
