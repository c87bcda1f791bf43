"""How much of the store an idle session takes. Counted in bytes, never timed."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import cast

import pytest
import redis
from pydantic import JsonValue

from celeriac.sessions.store.keys import SessionKeys
from celeriac.sessions.store.packing import pack_session
from celeriac.sessions.store.sessions import SessionStore
from tests.store.driving import (
    answer,
    claim,
    compact,
    message,
    new_session,
    planned,
    respond,
    tool_ended,
)

QUESTION = "Where is my order A-1? I have waited for it for two weeks now, please look. " * 3
ANSWER = "Your order A-1 was shipped yesterday and should arrive within two days. " * 5
FOUND: JsonValue = {"order": "A-1", "items": [{"sku": f"S-{n}", "count": n} for n in range(12)]}


@dataclass(frozen=True)
class Shape:
    """What a session consists of."""

    turns: int
    tools: int = 0
    question: str = QUESTION
    answer: str = ANSWER
    found: JsonValue = None

    def build(self, store: SessionStore, *, pack_every: int | None = None) -> str:
        sid = new_session(store, None)
        for number in range(self.turns):
            if pack_every and number % pack_every == 0:
                assert pack_session(store, sid)
            store.apply(sid, message(self.question))
            if self.tools:
                respond(store, sid, *(planned("look", {"id": "A-1"}) for _ in range(self.tools)))
            for _ in range(self.tools):
                tool_ended(store, claim(store, sid), self.found or FOUND)
            answer(store, sid, self.answer)
        return sid


SHAPES = {
    "new": Shape(0),
    "one answer": Shape(1),
    "chat": Shape(10),
    "one call": Shape(1, tools=1),
    "calls": Shape(10, tools=1),
    "parallel calls": Shape(6, tools=4),
    "short turns": Shape(150, question="ok", answer="yes"),
    "short turns with calls": Shape(60, tools=1, question="ok", answer="yes", found="done"),
    "results that do not compress": Shape(5, tools=1, found=secrets.token_hex(4_000)),
    "1,000 messages": Shape(250, tools=1),
}


def bytes_by_key(client: redis.Redis, session_id: str) -> dict[str, int]:
    """Size of each key that stays; live events expire."""
    keys = SessionKeys.of(session_id)
    sizes = {
        name.removeprefix(keys.session) or "hash": client.memory_usage(name, samples=0)
        for name in keys.lasting
    }
    return {name: size for name, size in sizes.items() if size is not None}


def allowed(client: redis.Redis, session_id: str) -> float:
    """design.md: 3 kB and 1.3 times the messages, each as it is written."""
    log = cast("list[bytes]", client.lrange(SessionKeys.of(session_id).log, 0, -1))
    return 3 * 1024 + 1.3 * sum(map(len, log))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_an_idle_session_is_small(
    session_store: SessionStore, redis_client: redis.Redis, shape: Shape
) -> None:
    sid = shape.build(session_store, pack_every=7)
    assert pack_session(session_store, sid)

    sizes = bytes_by_key(redis_client, sid)

    assert sum(sizes.values()) <= allowed(redis_client, sid), sizes


def test_what_a_summary_stands_for_takes_little(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    sid = Shape(60, tools=1).build(session_store)
    before = allowed(redis_client, sid)
    compact(redis_client, sid, 190)
    assert pack_session(session_store, sid)

    assert redis_client.llen(SessionKeys.of(sid).log) == 200
    assert sum(bytes_by_key(redis_client, sid).values()) < before * 0.9


@pytest.mark.parametrize("turns", [0, 1, 10])
def test_a_session_that_only_talks_is_small_before_it_is_packed(
    session_store: SessionStore, redis_client: redis.Redis, turns: int
) -> None:
    sid = Shape(turns).build(session_store)

    sizes = bytes_by_key(redis_client, sid)

    assert sum(sizes.values()) <= allowed(redis_client, sid), sizes


def test_the_control_state_does_not_grow_with_the_conversation(
    session_store: SessionStore, redis_client: redis.Redis
) -> None:
    short = bytes_by_key(redis_client, Shape(2, tools=1).build(session_store))
    long = bytes_by_key(redis_client, Shape(40, tools=1).build(session_store))

    assert long["hash"] <= short["hash"] + 64 <= 1024
