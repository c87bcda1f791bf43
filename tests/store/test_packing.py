"""Packing: an idle session takes little of the store and reads as before."""

from __future__ import annotations

import random
import string
from typing import NamedTuple, cast

import pytest
import redis
from pydantic import JsonValue

from celeriac.sessions.calls import CallRecord, CallStatus, DecisionVerb, ToolEffect
from celeriac.sessions.client import SessionClient
from celeriac.sessions.errors import Conflict, NotFound
from celeriac.sessions.inputs import CallReconciled, ToolEnded, TurnCancelled
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.snapshot import Snapshot, StepRecord
from celeriac.sessions.store import packing, reader
from celeriac.sessions.store.commit import Writes
from celeriac.sessions.store.keys import SessionKeys
from celeriac.sessions.store.packing import pack_session
from celeriac.sessions.store.sessions import SessionStore
from tests.store.driving import (
    WRITE,
    answer,
    asking,
    at_once,
    broke,
    claim,
    compact,
    message,
    new_session,
    planned,
    reply,
    respond,
    tool_ended,
    unknown,
    whole_turn,
)
from tests.store.indexes import check_indexes

LONG: JsonValue = {"rows": [{"n": n, "name": f"row {n}", "share": n / 7} for n in range(40)]}


@pytest.fixture
def short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a page showed 10 messages, so that a short session has older ones."""
    for module in (packing, reader):
        monkeypatch.setattr(module, "SNAPSHOT_MESSAGES", 10)


class Everything(NamedTuple):
    """All that can be read of a session."""

    snapshot: Snapshot
    pages: list[tuple[Message, ...]]
    calls: dict[str, CallRecord]
    single_calls: dict[str, CallRecord]
    steps: tuple[StepRecord, ...]


def everything(client: SessionClient, session_id: str, limit: int = 37) -> Everything:
    """Read a session to its beginning, in every way there is."""
    shown = client.snapshot(session_id)
    pages = []
    calls: dict[str, CallRecord] = {}
    before: int | None = None
    while True:
        page = client.messages(session_id, before=before, limit=limit)
        pages.append(page.messages)
        calls |= {call.id: call for call in page.calls}
        if not page.has_older:
            break
        before = page.messages[0].seq
    single = {call_id: client.call(session_id, call_id) for call_id in calls}
    steady = shown.model_copy(update={"version": 0})
    return Everything(steady, pages, calls, single, client.steps(session_id))


def random_turn(store: SessionStore, session_id: str, chance: random.Random) -> None:
    """A turn that ends, with calls that end in every way."""
    store.apply(session_id, message("".join(chance.choices(string.printable, k=200))))
    for _ in range(chance.randrange(3)):
        calls = [
            planned(
                "look", {"key": chance.random()}, effect=chance.choice([ToolEffect.READ, WRITE])
            )
            for _ in range(chance.randrange(1, 4))
        ]
        respond(store, session_id, *calls)
        for _ in calls:
            end_call(store, session_id, chance)
    if chance.random() < 0.1:
        claimed = claim(store, session_id)
        store.apply(session_id, TurnCancelled(by="Ana"))
        reply(store, claimed, "partial")
    else:
        answer(store, session_id, chance.choice(["yes", "é" * 300]))


def end_call(store: SessionStore, session_id: str, chance: random.Random) -> None:
    claimed = claim(store, session_id)
    kind = chance.random()
    call_id = claimed.step.call_id
    assert call_id is not None
    if kind < 0.2 and claimed.step.name.value == "CallSingleAttemptTool":
        broke(store, claimed)
    elif kind < 0.4:
        event = ToolEnded(
            claimed.step.id, claimed.token, call_id, succeeded=False, error="it is closed " * 10
        )
        store.apply(session_id, event)
    else:
        results: list[JsonValue] = [None, False, 1.0, "a" * 100, "é\u2028\n" * 50, LONG, {"a": ""}]
        tool_ended(store, claimed, chance.choice(results))


# --- packed and unpacked read the same


@pytest.mark.parametrize("seed", range(3))
def test_a_packed_session_reads_as_before(
    session_store: SessionStore,
    session_client: SessionClient,
    redis_client: redis.Redis,
    seed: int,
    short_log: None,
) -> None:
    chance = random.Random(seed)
    sid = new_session(session_store, None)
    for _ in range(5):
        for _ in range(chance.randrange(1, 4)):
            random_turn(session_store, sid, chance)
        state = session_store.load(sid).state
        if chance.random() < 0.5:
            compact(redis_client, sid, chance.randrange(state.context_from, state.next_seq))
        if state.unknown and chance.random() < 0.5:
            event = CallReconciled(state.unknown[0].id, True, "Ana", LONG, "I looked")
            session_store.apply(sid, event)
        before = everything(session_client, sid)
        for _ in range(2):  # packing what is packed changes nothing
            assert pack_session(session_store, sid)
            assert everything(session_client, sid) == before
            check_indexes(redis_client)
    keys = SessionKeys.of(sid)
    state = session_store.load(sid).state
    assert not redis_client.exists(keys.steps)
    assert set(cast("list[bytes]", redis_client.hkeys(keys.calls))) == {
        name for call in state.unknown for name in (call.id.encode(), call.id.encode() + b":o")
    }
    assert redis_client.llen(keys.log) == state.next_seq - session_store.load(sid).log_from


def test_the_next_step_of_a_packed_session_reads_its_context(
    session_store: SessionStore, redis_client: redis.Redis, short_log: None
) -> None:
    sid = new_session(session_store, None)
    for _ in range(20):
        whole_turn(session_store, sid)
    compact(redis_client, sid, 13)
    assert pack_session(session_store, sid)
    assert session_store.load(sid).log_from == 13
    compact(redis_client, sid, 36)
    assert pack_session(session_store, sid)
    assert session_store.load(sid).log_from == 30, "the latest 10 stay in the log"

    session_store.apply(sid, message("go on"))
    claimed = claim(session_store, sid)

    assert [entry.seq for entry in claimed.messages] == list(range(36, 41))
    assert claimed.messages[-1].text == "go on"


def test_a_context_that_nothing_summarises_stays_in_the_log(
    session_store: SessionStore, redis_client: redis.Redis, short_log: None
) -> None:
    sid = new_session(session_store, None)
    for _ in range(30):
        whole_turn(session_store, sid)
    assert pack_session(session_store, sid)
    assert redis_client.llen(SessionKeys.of(sid).log) == 60


# --- when it is packed


def test_a_session_with_an_open_turn_is_not_packed(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid, _ = asking(session_store)
    before = {name: redis_client.dump(name) for name in redis_client.scan_iter()}

    assert not pack_session(session_store, sid)
    assert {name: redis_client.dump(name) for name in redis_client.scan_iter()} == before


def test_a_message_that_comes_while_a_session_is_packed_wins(
    session_store: SessionStore,
    session_client: SessionClient,
    redis_client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sid = new_session(session_store)
    respond(session_store, sid, planned())
    tool_ended(session_store, claim(session_store, sid))
    answer(session_store, sid)
    finish = packing._Packing.finish

    def finish_late(self: packing._Packing) -> Writes:
        writes = finish(self)
        session_client.send_message(sid, "and then?")
        return writes

    with monkeypatch.context() as patch:
        patch.setattr(packing._Packing, "finish", finish_late)
        assert not pack_session(session_store, sid)

    check_indexes(redis_client)
    assert not redis_client.exists(SessionKeys.of(sid).chunks)
    answer(session_store, sid)
    assert [one.role for one in session_client.snapshot(sid).messages[-2:]] == [
        Role.USER,
        Role.ASSISTANT,
    ]
    assert pack_session(session_store, sid)
    check_indexes(redis_client)


def test_packing_races_with_everything_else(
    session_store: SessionStore, session_client: SessionClient, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store, None)
    turns = 12

    def act(thread: int) -> int:
        done = 0
        if thread == 0:
            for _ in range(turns):
                whole_turn(session_store, sid, planned(), planned())
        while session_store.load(sid).state.turns < turns:
            if thread == 1:
                done += pack_session(session_store, sid)
            else:
                everything(session_client, sid, 9)
        return done

    for result in at_once(3, act):
        assert isinstance(result, int), result

    pack_session(session_store, sid)
    shown = everything(session_client, sid)
    assert [one.seq for page in reversed(shown.pages) for one in page] == list(range(turns * 5))
    assert len(shown.calls) == turns * 2
    ids = [int(step.id[1:]) for step in shown.steps]
    assert ids == sorted(set(ids), key=ids.index)
    assert len(ids) == len(set(ids)) == 1 + turns * 6
    check_indexes(redis_client)


# --- calls


def test_an_unknown_call_is_packed_once_it_is_reconciled(
    session_store: SessionStore, session_client: SessionClient, redis_client: redis.Redis
) -> None:
    sid, call_id = unknown(session_store)
    answer(session_store, sid)
    assert pack_session(session_store, sid)
    assert redis_client.hlen(SessionKeys.of(sid).calls) == 2
    assert session_client.call(sid, call_id).status is CallStatus.OUTCOME_UNKNOWN
    assert [item.call.id for item in session_client.unknown_outcomes()] == [call_id]

    session_client.reconcile(sid, call_id, succeeded=True, by="Ana", note="I looked", result=LONG)
    check_indexes(redis_client)
    before = session_client.call(sid, call_id)
    assert pack_session(session_store, sid)

    assert redis_client.hlen(SessionKeys.of(sid).calls) == 0
    assert session_client.call(sid, call_id) == before
    assert (before.status, before.reconciled_by) == (CallStatus.SUCCEEDED, "Ana")
    with pytest.raises(Conflict, match="not unknown"):
        session_client.reconcile(sid, call_id, succeeded=False, by="Ben")


def test_a_decision_on_a_packed_call_says_who_decided(
    session_store: SessionStore, session_client: SessionClient
) -> None:
    sid, call_id = asking(session_store)
    decide = session_client.decide
    decide(sid, call_id, DecisionVerb.APPROVE, by="Ana")
    tool_ended(session_store, claim(session_store, sid))
    answer(session_store, sid)
    assert pack_session(session_store, sid)

    assert decide(sid, call_id, DecisionVerb.APPROVE, by="Ben").decision is not None
    with pytest.raises(Conflict, match="approved by Ana"):
        decide(sid, call_id, DecisionVerb.REJECT, by="Ben")


@pytest.mark.parametrize("odd", ["call_none", "index", "steps", "c0", "", "x" * 41, "a:o"])
def test_a_call_that_does_not_exist_is_not_found_among_packed_ones(
    session_store: SessionStore, session_client: SessionClient, odd: str
) -> None:
    sid = new_session(session_store, None)
    whole_turn(session_store, sid, planned())
    assert pack_session(session_store, sid)
    with pytest.raises(NotFound):
        session_client.call(sid, odd)


def test_a_late_result_of_a_packed_call_is_kept_with_it(
    session_store: SessionStore, session_client: SessionClient
) -> None:
    sid = new_session(session_store)
    respond(session_store, sid, planned())
    claimed = claim(session_store, sid)
    tool_ended(session_store, claimed, LONG)
    answer(session_store, sid)
    assert pack_session(session_store, sid)
    call_id = claimed.step.call_id
    assert call_id is not None
    late = ToolEnded(claimed.step.id, claimed.token - 1, call_id, succeeded=True, result="second")
    same = ToolEnded(claimed.step.id, claimed.token, call_id, succeeded=True, result=LONG)

    session_store.apply(sid, same)
    assert session_client.call(sid, call_id).late_result is None, "it is what settled the call"
    session_store.apply(sid, late)
    version = session_store.load(sid).version
    session_store.apply(sid, late)
    assert session_store.load(sid).version == version, "it is kept already"

    for _ in range(2):
        call = session_client.call(sid, call_id)
        assert (call.result, call.late_result and call.late_result.result) == (LONG, "second")
        assert pack_session(session_store, sid)


def test_a_late_result_is_packed_with_its_call(
    session_store: SessionStore, session_client: SessionClient, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store)
    respond(session_store, sid, planned())
    claimed = claim(session_store, sid)
    tool_ended(session_store, claimed)
    call_id = claimed.step.call_id
    assert call_id is not None
    late = ToolEnded(claimed.step.id, claimed.token - 1, call_id, succeeded=True, result="second")
    session_store.apply(sid, late)
    answer(session_store, sid)
    before = session_client.call(sid, call_id)
    assert before.late_result is not None
    assert pack_session(session_store, sid)

    assert not redis_client.exists(SessionKeys.of(sid).calls)
    assert session_client.call(sid, call_id) == before


# --- client message ids and step history


def test_a_message_id_taken_long_ago_is_still_known(
    session_store: SessionStore, session_client: SessionClient, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store, None)
    for number in range(130):
        session_client.send_message(sid, "hello", message_id=f"m-{number}")
        answer(session_store, sid)
    assert pack_session(session_store, sid)
    assert not redis_client.exists(SessionKeys.of(sid).ids)
    version = session_store.load(sid).version

    assert session_client.send_message(sid, "hello", message_id="m-7").message_id == "m-7"
    assert session_store.load(sid).version == version
    session_client.send_message(sid, "hello", message_id="m-130")
    assert session_store.load(sid).version != version


def test_packed_step_history_is_capped_too(
    redis_client: redis.Redis, session_store: SessionStore, session_client: SessionClient
) -> None:
    settings = session_store.settings.model_copy(update={"history_max_steps": 20})
    store = SessionStore(redis_client, session_store._dispatcher, settings)
    sid = new_session(store, None)
    for _ in range(3):
        for _ in range(6):
            whole_turn(store, sid)
        assert pack_session(store, sid)
    steps = session_client.steps(sid)
    assert len(steps) == 20
    assert steps[-1].id == f"s{store.load(sid).state.steps_made}"


# --- deleting what a summary stands for


def always(_: str) -> bool:
    return True


def summarised(store: SessionStore, client: redis.Redis) -> str:
    sid = new_session(store, None)
    for _ in range(30):
        whole_turn(store, sid, planned())
    compact(client, sid, 100)
    return sid


@pytest.mark.parametrize("packed_before", [True, False])
@pytest.mark.usefixtures("short_log")
def test_summarised_messages_and_their_calls_are_deleted_if_the_policy_says_so(
    session_store: SessionStore,
    session_client: SessionClient,
    redis_client: redis.Redis,
    packed_before: bool,
) -> None:
    sid = summarised(session_store, redis_client)
    first = session_client.messages(sid, before=2, limit=1).messages[0].calls[0].id
    kept_before = session_client.messages(sid, limit=20)
    if packed_before:
        assert pack_session(session_store, sid)
        assert session_client.call(sid, first).status is CallStatus.SUCCEEDED

    assert pack_session(session_store, sid, always)

    shown = session_client.snapshot(sid)
    assert (shown.oldest_seq, shown.has_older) == (100, True)
    page = session_client.messages(sid, limit=50)
    assert page.messages == kept_before.messages
    assert page.calls == kept_before.calls
    assert (page.oldest_seq, page.has_older) == (100, False)
    older = session_client.messages(sid, before=60, limit=50)
    assert (older.messages, older.has_older) == ((), False)
    with pytest.raises(NotFound):
        session_client.call(sid, first)
    fields = cast("list[bytes]", redis_client.hkeys(SessionKeys.of(sid).chunks))
    assert not [field for field in fields if field.startswith(b"m")]
    session_store.apply(sid, message("go on"))
    assert claim(session_store, sid).messages[0].seq == 100


@pytest.mark.usefixtures("short_log")
def test_nothing_is_deleted_that_no_summary_stands_for(
    session_store: SessionStore, session_client: SessionClient
) -> None:
    sid = new_session(session_store, None)
    for _ in range(30):
        whole_turn(session_store, sid, planned())
    before = everything(session_client, sid)

    assert pack_session(session_store, sid, always)

    assert everything(session_client, sid) == before


@pytest.mark.usefixtures("short_log")
def test_an_unknown_call_outlives_its_messages(
    session_store: SessionStore, session_client: SessionClient, redis_client: redis.Redis
) -> None:
    sid, call_id = unknown(session_store)
    answer(session_store, sid)
    for _ in range(20):
        whole_turn(session_store, sid)
    compact(redis_client, sid, 20)

    assert pack_session(session_store, sid, always)

    assert session_client.messages(sid).oldest_seq == 20
    assert [item.call.id for item in session_client.unknown_outcomes()] == [call_id]
    session_client.reconcile(sid, call_id, succeeded=False, by="Ana")
    assert pack_session(session_store, sid, always)
    assert session_client.call(sid, call_id).reconciled_by == "Ana"


# --- how much it takes


def test_packing_counts_what_a_session_really_takes(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = new_session(session_store, None)
    for _ in range(20):
        whole_turn(session_store, sid, planned())
    assert session_store.load(sid).stored_bytes > 20 * 500
    redis_client.hset(SessionKeys.of(sid).session, "bytes", 7)  # as if it had been miscounted
    assert pack_session(session_store, sid)

    sizes = (redis_client.memory_usage(key, samples=0) for key in SessionKeys.of(sid).lasting)
    taken = sum(size or 0 for size in sizes)
    assert session_store.load(sid).stored_bytes == pytest.approx(taken, rel=0.2)
