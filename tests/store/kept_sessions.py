"""Sessions as some version stored them: built, taken out of a store as JSON, and put into one again.

``python -m tests.store.kept_sessions`` writes those of this schema version that are not kept yet. A file that
is kept is never written again: what it holds must stay readable.
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import cast
from unittest import mock

import redis
from pydantic import JsonValue

from celeriac.sessions.built_in import BuiltInTool
from celeriac.sessions.client import SessionClient
from celeriac.sessions.inputs import ToolEnded, TurnCancelled
from celeriac.sessions.settings import Settings
from celeriac.sessions.state import SCHEMA_VERSION
from celeriac.sessions.store import packing, reader
from celeriac.sessions.store.connection import connect
from celeriac.sessions.store.embedded import EmbeddedStore
from celeriac.sessions.store.keys import SessionKeys
from celeriac.sessions.store.packing import pack_session
from celeriac.sessions.store.sessions import SessionStore
from tests.store.dispatcher import RecordingDispatcher
from tests.store.driving import (
    answer,
    asking,
    broke,
    built_in,
    claim,
    compact,
    message,
    new_session,
    planned,
    respond,
    tool_ended,
    unknown,
    whole_turn,
)

FOLDER = Path(__file__).parent.parent / "data" / "sessions"

Kept = dict[str, JsonValue]


# --- what is kept


def idle_with_tools(store: SessionStore) -> str:
    sid = new_session(store, "Where is my order A-1? ß 漢字 🧾")
    respond(store, sid, planned(), planned("count", {"n": 1.5}))
    tool_ended(store, claim(store, sid), {"found": [True, None, "ä"]})
    tool_ended(store, claim(store, sid), "two " * 40)
    answer(store, sid)
    whole_turn(store, sid, planned())
    return sid


def packed(store: SessionStore) -> str:
    sid = idle_with_tools(store)
    for number in range(12):
        whole_turn(store, sid, planned("look", {"number": number}))
    compact(store.client, sid, 40)
    with (
        mock.patch.object(packing, "SNAPSHOT_MESSAGES", 10),
        mock.patch.object(reader, "SNAPSHOT_MESSAGES", 10),
    ):
        pack_session(store, sid)
    whole_turn(store, sid, planned())
    return sid


def unknown_and_late(store: SessionStore) -> str:
    sid, _ = unknown(store)
    answer(store, sid)
    store.apply(sid, message("Again?"))
    respond(store, sid, planned())
    claimed = claim(store, sid)
    tool_ended(store, claimed)
    answer(store, sid)
    call_id = cast("str", claimed.step.call_id)
    late = ToolEnded(claimed.step.id, claimed.token - 1, call_id, succeeded=True, result="late")
    store.apply(sid, late)
    return sid


def queued(store: SessionStore) -> str:
    sid, _ = asking(store, "first")
    store.apply(sid, message("second", "m-2"))
    store.apply(sid, message("third", "m-3"))
    return sid


def mid_retry(store: SessionStore) -> str:
    sid = new_session(store)
    broke(store, claim(store, sid), "HTTP 503")
    return sid


def running(store: SessionStore) -> str:
    sid = new_session(store)
    respond(store, sid, planned(), planned())
    claim(store, sid)
    return sid


def stopped(store: SessionStore) -> str:
    sid, _ = asking(store)
    store.apply(sid, message("later", "m-2"))
    store.apply(sid, TurnCancelled(by="Ana"))
    return sid


def question(store: SessionStore) -> str:
    sid = new_session(store)
    asked: dict[str, JsonValue] = {"question": "Which size?", "choices": ["S", "L"]}
    respond(store, sid, built_in(BuiltInTool.ASK_USER, asked))
    return sid


def timer(store: SessionStore) -> str:
    sid = new_session(store)
    respond(store, sid, built_in(BuiltInTool.DURABLE_WAIT, {"seconds": 3600, "reason": "the post"}))
    return sid


def plan(store: SessionStore) -> str:
    sid = new_session(store)
    todos: list[JsonValue] = [{"title": "look", "status": "pending"}]
    respond(store, sid, built_in(BuiltInTool.WRITE_TODOS, {"todos": todos}))
    answer(store, sid)
    return sid


SHAPES: Mapping[str, Callable[[SessionStore], str]] = {
    "new": lambda store: new_session(store, None),
    "ready": new_session,
    "idle_with_tools": idle_with_tools,
    "packed": packed,
    "waiting_approval": lambda store: asking(store)[0],
    "waiting_question": question,
    "waiting_timer": timer,
    "plan": plan,
    "unknown_and_late": unknown_and_late,
    "queued_messages": queued,
    "stopped_with_queue": stopped,
    "mid_retry": mid_retry,
    "running": running,
}


# --- how it is kept


def contents(client: redis.Redis, name: str | bytes) -> JsonValue:
    """What a key holds, whatever the order and encoding that the server keeps it in."""
    match client.type(name):
        case b"hash":
            table = cast("dict[bytes, bytes]", client.hgetall(name))
            return {"hash": {_text(key): _text(table[key]) for key in sorted(table)}}
        case b"list":
            return {"list": [_text(raw) for raw in cast("list[bytes]", client.lrange(name, 0, -1))]}
        case b"set":
            return {
                "set": [_text(raw) for raw in sorted(cast("set[bytes]", client.smembers(name)))]
            }
        case b"zset":
            scores = cast("list[tuple[bytes, float]]", client.zrange(name, 0, -1, withscores=True))
            return {"zset": {_text(member): str(score) for member, score in scores}}
        case b"stream":
            entries = cast("list[tuple[bytes, dict[bytes, bytes]]]", client.xrange(name))
            return {"stream": [[_text(one), _text(table[b"e"])] for one, table in entries]}
        case _:
            return None


def take(store: SessionStore, session_id: str) -> Kept:
    """Take a session out of a store, with its places in the indexes, and what people see of it."""
    client = store.client
    keys = SessionKeys.of(session_id)
    places: dict[str, JsonValue] = {}
    prefix = keys.session.removesuffix("s:" + session_id)
    for name in sorted(cast("list[bytes]", client.keys(prefix + "*"))):
        content = contents(client, name)
        table = content.get("zset") if isinstance(content, dict) else None
        if isinstance(table, dict):
            mine = {member: score for member, score in table.items() if session_id in member}
            places |= {name.decode(): mine} if mine else {}
    own = {name.removeprefix(keys.session): contents(client, name) for name in keys.lasting}
    return {
        "session_id": session_id,
        "keys": {name: content for name, content in own.items() if content is not None},
        "places": places,
        "seen": seen(store, session_id),
    }


def put(client: redis.Redis, kept: Kept) -> str:
    """Put a kept session into a store; return its id."""
    session_id = str(kept["session_id"])
    base = SessionKeys.of(session_id).session
    for suffix, content in cast("dict[str, dict[str, JsonValue]]", kept["keys"]).items():
        ((kind, value),) = content.items()
        if kind == "hash":
            table = cast("dict[str, str]", value)
            client.hset(base + suffix, mapping={_raw(key): _raw(table[key]) for key in table})
        elif kind == "list":
            client.rpush(base + suffix, *map(_raw, cast("list[str]", value)))
        else:
            client.sadd(base + suffix, *map(_raw, cast("list[str]", value)))
    for name, scores in cast("dict[str, dict[str, str]]", kept["places"]).items():
        client.zadd(name, {member: float(score) for member, score in scores.items()})
    return session_id


def seen(store: SessionStore, session_id: str) -> JsonValue:
    """What people see of a session, in few words."""
    sessions = SessionClient(store, store.settings)
    shown = sessions.snapshot(session_id)
    page = sessions.messages(session_id, limit=10_000)
    return {
        "status": shown.status.value,
        "title": shown.title,
        "messages": [[one.role.value, one.text] for one in page.messages],
        "calls": {one.id: [one.status.value, one.arguments, one.result] for one in page.calls},
        "unknown": list(shown.unknown_calls),
        "queue": [[one.id, one.text] for one in shown.queue],
        "plan": shown.plan.model_dump(mode="json") if shown.plan else None,
        "steps": [[one.name.value, one.status] for one in sessions.steps(session_id)],
    }


_BASE64 = "base64:"


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return _BASE64 + base64.b64encode(raw).decode()


def _raw(text: str) -> bytes:
    is_binary = text.startswith(_BASE64)
    return base64.b64decode(text.removeprefix(_BASE64)) if is_binary else text.encode()


def main() -> None:
    """Write what is not kept yet."""
    folder = FOLDER / f"v{SCHEMA_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as data,
        EmbeddedStore(Path(data), appendfsync="everysec") as server,
        closing(connect(server.url)) as client,
    ):
        settings = Settings(redis_url=server.url)
        store = SessionStore(client, RecordingDispatcher(), settings)
        for name, build in SHAPES.items():
            path = folder / f"{name}.json"
            if not path.exists():
                kept = take(store, build(store))
                path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
