"""How much of the store an idle session takes. Counted in bytes, never timed."""

from __future__ import annotations

from typing import cast

import pytest
import redis
from pydantic import JsonValue

from celeriac.sessions.store.keys import SessionKeys
from celeriac.sessions.store.sessions import SessionStore
from tests.store.driving import answer, claim, message, new_session, planned, respond, tool_ended

QUESTION = "Where is my order A-1? I have waited for it for two weeks now, please look. " * 3
ANSWER = "Your order A-1 was shipped yesterday and should arrive within two days. " * 5
FOUND: JsonValue = {"order": "A-1", "items": [{"sku": f"S-{n}", "count": n} for n in range(12)]}


def idle_session(store: SessionStore, *, turns: int, tools: int) -> str:
    sid = new_session(store, None)
    for _ in range(turns):
        store.apply(sid, message(QUESTION))
        if tools:
            respond(store, sid, *(planned("look", {"order_id": "A-1"}) for _ in range(tools)))
        for _ in range(tools):
            tool_ended(store, claim(store, sid), FOUND)
        answer(store, sid, ANSWER)
    return sid


def bytes_by_key(client: redis.Redis, session_id: str) -> dict[str, int]:
    """Size of each key that stays; live events expire."""
    keys = SessionKeys.of(session_id)
    names = [keys.session, keys.log, keys.calls, keys.steps, keys.queue, keys.ids]
    sizes = {
        name.removeprefix(keys.session) or "hash": client.memory_usage(name, samples=0)
        for name in names
    }
    return {name: size for name, size in sizes.items() if size is not None}


def allowed(client: redis.Redis, session_id: str) -> float:
    log = cast("list[bytes]", client.lrange(SessionKeys.of(session_id).log, 0, -1))
    return 3 * 1024 + 1.3 * sum(len(entry) for entry in log)


@pytest.mark.parametrize("turns", [0, 1, 10])
def test_a_session_that_only_talks_is_small(
    session_store: SessionStore, redis_client: redis.Redis, turns: int
) -> None:
    sid = idle_session(session_store, turns=turns, tools=0)

    sizes = bytes_by_key(redis_client, sid)

    assert sum(sizes.values()) <= allowed(redis_client, sid), sizes


@pytest.mark.xfail(
    reason="step history and call records are kept in full beside the messages: some 750 and 700 "
    "bytes a turn with one call"
)
@pytest.mark.parametrize("tools", [1, 2])
def test_a_session_with_tool_calls_is_small(
    session_store: SessionStore, redis_client: redis.Redis, tools: int
) -> None:
    sid = idle_session(session_store, turns=10, tools=tools)

    sizes = bytes_by_key(redis_client, sid)

    assert sum(sizes.values()) <= allowed(redis_client, sid), sizes


def test_the_control_state_does_not_grow_with_the_conversation(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    short = bytes_by_key(redis_client, idle_session(session_store, turns=2, tools=1))
    long = bytes_by_key(redis_client, idle_session(session_store, turns=40, tools=1))

    assert long["hash"] <= short["hash"] + 64 <= 1024
