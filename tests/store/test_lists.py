"""Lists over all sessions: order, pages that lose and double nothing, filters, what waits for a person."""

from __future__ import annotations

import pytest
import redis

from celeriac.sessions.calls import CallStatus, DecisionVerb
from celeriac.sessions.client import SessionClient
from celeriac.sessions.codec import write_state
from celeriac.sessions.errors import InvalidRequest
from celeriac.sessions.inputs import TurnCancelled
from celeriac.sessions.snapshot import ApprovalItem
from celeriac.sessions.state import SessionStatus
from celeriac.sessions.store.keys import SessionKeys
from celeriac.sessions.store.sessions import SessionStore
from tests.store.driving import (
    WRITE,
    asking,
    broke,
    claim,
    message,
    new_session,
    planned,
    respond,
    unknown,
)
from tests.store.indexes import check_indexes

NOON = 1_796_040_000_000


def active_at(store: SessionStore, session_id: str, moment: int) -> None:
    """Let the last activity of a session be at a moment."""
    state = store.load(session_id).state.model_copy(update={"updated_at": moment})
    keys = SessionKeys.of(session_id)
    store.client.hset(keys.session, "state", write_state(state))
    store.client.zadd(keys.partition.status(state.status), {session_id: moment})


def sessions_at(
    store: SessionStore, *moments: int, partition: int | None = None, text: str | None = None
) -> list[str]:
    made = []
    for moment in moments:
        made.append(new_session(store, text, partition=partition))
        active_at(store, made[-1], moment)
    return made


def pages(client: SessionClient, limit: int, **filters: object) -> list[list[str]]:
    """All pages of the list, as session ids."""
    found: list[list[str]] = []
    cursor: str | None = None
    while True:
        page = client.list_sessions(cursor=cursor, limit=limit, **filters)  # type: ignore[arg-type]
        found.append([one.session_id for one in page.sessions])
        assert len(found[-1]) <= limit
        cursor = page.cursor
        if cursor is None:
            return found
        assert len(found[-1]) == limit


def listed(client: SessionClient, limit: int = 50, **filters: object) -> list[str]:
    return [sid for page in pages(client, limit, **filters) for sid in page]


# --- sessions


def test_no_sessions(session_client: SessionClient) -> None:
    page = session_client.list_sessions()

    assert (page.sessions, page.cursor) == ((), None)


def test_the_last_active_session_comes_first(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    ids = sessions_at(session_store, NOON + 2, NOON + 9, NOON, NOON + 5)

    assert listed(session_client) == [ids[1], ids[3], ids[0], ids[2]]
    session_store.apply(ids[2], message("again"))
    assert listed(session_client)[0] == ids[2]


def test_a_row_says_what_the_session_is_about(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid, _ = asking(session_store, "Cancel A-1\nplease")
    state = session_store.load(sid).state

    [row] = session_client.list_sessions().sessions

    assert (row.session_id, row.agent, row.model, row.title) == (sid, "desk", "demo", "Cancel A-1")
    assert (row.status, row.waiting_for) == (SessionStatus.WAITING, "approval: cancel_order")
    assert (row.created_at, row.updated_at, row.turns) == (state.created_at, state.updated_at, 1)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
def test_pages_lose_and_double_nothing(
    session_client: SessionClient, session_store: SessionStore, limit: int
) -> None:
    """Over all partitions and statuses, some at the same moment."""
    moments = [NOON + number // 3 for number in range(20)]
    ids = [
        *sessions_at(session_store, *moments),
        *sessions_at(session_store, *moments[:9], text="running"),
    ]

    found = listed(session_client, limit)

    assert sorted(found) == sorted(ids)
    activity = [session_store.load(sid).state.updated_at for sid in found]
    assert activity == sorted(activity, reverse=True)


@pytest.mark.parametrize("limit", [40, 100, 200])
def test_many_sessions_of_one_moment_are_all_listed(
    session_client: SessionClient, session_store: SessionStore, limit: int
) -> None:
    """More than one read of an index brings, as after an import of many sessions at once."""
    ids = [
        *sessions_at(session_store, *[NOON] * 130, partition=3),
        *sessions_at(session_store, *[NOON] * 20, partition=4),
        *sessions_at(session_store, *[NOON - 1] * 5),
    ]

    found = listed(session_client, limit)

    assert len(found) == len(ids)
    assert set(found) == set(ids)
    assert set(found[-5:]) == set(ids[-5:])


@pytest.mark.parametrize("limit", [60, 300])
def test_one_busy_partition_does_not_hide_its_older_sessions(
    session_client: SessionClient, session_store: SessionStore, limit: int
) -> None:
    """The busy one has more new sessions than one read brings; the other has only old ones."""
    busy = sessions_at(session_store, *range(NOON + 230, NOON, -1), partition=3)
    old = sessions_at(session_store, *range(NOON, NOON - 20, -1), partition=4)

    assert listed(session_client, limit) == [*busy, *old]


def test_sessions_that_move_up_while_paging_are_not_doubled_behind(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    ids = sessions_at(session_store, *range(NOON + 6, NOON, -1))
    first = session_client.list_sessions(limit=3)
    active_at(session_store, ids[0], NOON + 99)
    active_at(session_store, ids[4], NOON + 98)

    rest = session_client.list_sessions(limit=10, cursor=first.cursor)

    assert [one.session_id for one in first.sessions] == ids[:3]
    assert [one.session_id for one in rest.sessions] == [ids[3], ids[5]]


@pytest.mark.parametrize("limit", [1, 2, 50])
def test_sessions_of_one_status(
    session_client: SessionClient, session_store: SessionStore, limit: int
) -> None:
    idle = sessions_at(session_store, NOON, NOON + 1, NOON + 1)
    running = sessions_at(session_store, NOON, NOON + 1, text="hello")
    waiting = [asking(session_store)[0] for _ in range(3)]

    found = {one: listed(session_client, limit, status=one) for one in SessionStatus}

    assert {one: sorted(ids) for one, ids in found.items()} == {
        SessionStatus.IDLE: sorted(idle),
        SessionStatus.RUNNING: sorted(running),
        SessionStatus.WAITING: sorted(waiting),
    }


@pytest.mark.parametrize("limit", [1, 2, 50])
def test_sessions_of_one_agent(session_client: SessionClient, limit: int) -> None:
    made = {
        agent: [session_client.create_session(agent=agent).session_id for _ in range(4)]
        for agent in ("desk", "helper")
    }

    for agent, ids in made.items():
        assert sorted(listed(session_client, limit, agent=agent)) == sorted(ids)
    assert listed(session_client, limit, agent="nobody") == []
    both = listed(session_client, limit, agent="desk", status=SessionStatus.IDLE)
    assert sorted(both) == sorted(made["desk"])


@pytest.mark.parametrize(
    "cursor", ["", "x", "12", "12-", "-ses", "1.5-ses", "²-ses", "nan-ses", "12 -ses", "inf-ses"]
)
def test_a_wrong_cursor_is_refused(session_client: SessionClient, cursor: str) -> None:
    with pytest.raises(InvalidRequest, match="is no cursor of this list") as caught:
        session_client.list_sessions(cursor=cursor)

    assert caught.value.code == "invalid_cursor"


def test_a_cursor_of_any_past_or_future_is_a_place_in_the_list(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    ids = sessions_at(session_store, NOON)

    for cursor, found in (
        (f"{NOON + 1}-ses_0", ids),
        (f"{NOON - 1}-ses_0", []),
        ("9" * 400 + "-ses", ids),
        ("0-ses", []),
    ):
        page = session_client.list_sessions(cursor=cursor)
        assert [one.session_id for one in page.sessions] == found


# --- calls that wait for a person


def shown(items: tuple[ApprovalItem, ...]) -> list[tuple[str, str]]:
    return [(item.session_id, item.call.id) for item in items]


def test_approvals_are_listed_the_oldest_first(
    session_client: SessionClient, session_store: SessionStore, redis_client: redis.Redis
) -> None:
    made = []
    for number in (3, 1, 2, 0, 4):
        sid, call_id = asking(session_store, f"number {number}")
        moment = {f"{sid}:{call_id}": NOON + number}
        redis_client.zadd(SessionKeys.of(sid).partition.approvals, moment)
        made.append((number, sid, call_id))
    made.sort()

    items = session_client.approvals()

    assert shown(items) == [(sid, call_id) for _, sid, call_id in made]
    assert [item.since for item in items] == [NOON + number for number in range(5)]
    assert [item.title for item in items] == [f"number {number}" for number in range(5)]
    assert {item.explanation for item in items} == {"I will look."}
    assert {item.call.status for item in items} == {CallStatus.AWAITING_APPROVAL}
    assert shown(session_client.approvals(limit=2)) == shown(items)[:2]
    assert session_client.approvals(limit=0) == ()


def test_an_approval_can_be_decided_with_what_the_list_says(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid, call_id = asking(session_store)
    [item] = session_client.approvals()

    assert item.agent == "desk"
    assert (item.call.arguments, item.call.tool) == ({"order_id": "A-1"}, "cancel_order")
    session_client.decide(
        sid, call_id, DecisionVerb.REJECT, by="Ana", digest=item.call.digest, note="no"
    )

    assert session_client.approvals() == ()


def test_several_calls_of_one_session_are_listed_each(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = new_session(session_store)
    calls = [planned(approval=True) for _ in range(3)]
    respond(session_store, sid, *calls)

    assert sorted(shown(session_client.approvals())) == sorted((sid, c.request.id) for c in calls)
    session_store.apply(sid, TurnCancelled())
    assert session_client.approvals() == ()


def test_unknown_outcomes_are_listed_the_oldest_first(
    session_client: SessionClient, session_store: SessionStore, redis_client: redis.Redis
) -> None:
    made = [unknown(session_store) for _ in range(3)]
    for number, (sid, call_id) in enumerate(made):
        moment = {f"{sid}:{call_id}": NOON - number}
        redis_client.zadd(SessionKeys.of(sid).partition.unknown, moment)

    items = session_client.unknown_outcomes()

    assert shown(items) == made[::-1]
    assert {item.call.status for item in items} == {CallStatus.OUTCOME_UNKNOWN}
    session_client.reconcile(*made[1], succeeded=True, by="Ana")
    assert shown(session_client.unknown_outcomes()) == [made[2], made[0]]
    check_indexes(redis_client)


def test_an_unknown_outcome_is_not_explained_with_words_of_another_turn(
    session_client: SessionClient, session_store: SessionStore
) -> None:
    sid = new_session(session_store)
    call = planned("cancel_order", effect=WRITE)
    respond(session_store, sid, call, planned(approval=True))
    broke(session_store, claim(session_store, sid))
    [item] = session_client.unknown_outcomes()
    assert item.explanation == "I will look."

    session_store.apply(sid, TurnCancelled())
    session_store.apply(sid, message("And my other order?"))
    respond(session_store, sid, planned(approval=True))
    [item] = session_client.unknown_outcomes()

    assert item.call.id == call.request.id
    assert item.explanation == ""
