"""Pack an idle session: move what no step will read again into compressed chunks.

All of it is one commit, guarded by the session's version: a message that arrives meanwhile wins, and the
session is packed after its next turn. What a step reads stays where it is: messages of the active context,
and calls whose outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import cast

import redis

from celeriac.sessions.codec import read_images, read_record
from celeriac.sessions.messages import Message
from celeriac.sessions.store import chunks
from celeriac.sessions.store.commit import Writes
from celeriac.sessions.store.connection import store_errors
from celeriac.sessions.store.keys import SessionKeys, call_fields
from celeriac.sessions.store.loaded import Loaded
from celeriac.sessions.store.reader import SNAPSHOT_MESSAGES
from celeriac.sessions.store.sessions import SessionStore

__all__ = ["pack_session"]

_MESSAGE_IDS_IN_SET = 128
"""So many the store keeps in little space; each one of a larger set takes some 70 bytes."""


def pack_session(
    store: SessionStore,
    session_id: str,
    deletes_summarised: Callable[[str], bool] = lambda _: False,
) -> bool:
    """Pack a session if it is idle, and take it off the index of those to be packed.

    Args:
        store: The session store.
        session_id: The session.
        deletes_summarised: Says of an agent, by name, whether older messages that a summary stands for are
            deleted instead, with the records of their calls.

    Returns:
        Whether it was packed; not so when it is not idle, or something happened to it meanwhile.

    Raises:
        NotFound: There is no such session.
        StoreUnavailable: The store did not answer.
    """
    loaded = store.load(session_id)
    if loaded.state.busy:
        return False
    with store_errors():
        packing = _Packing(store, loaded)
        if deletes_summarised(loaded.state.agent):
            packing.delete_messages()
        else:
            packing.pack_messages()
        packing.pack_calls()
        packing.pack_steps()
        packing.pack_message_ids()
        packing.drop_images()
        return store.write(loaded, packing.finish())


class _Fields:
    """The session's `chunks` hash, with what is to be written to it."""

    def __init__(self, client: redis.Redis, key: str) -> None:
        self._client = client
        self._key = key
        self._names = {name.decode() for name in cast("list[bytes]", client.hkeys(key))}
        self._old: dict[str, bytes] = {}
        self._new: dict[str, bytes] = {}

    def numbers(self, letter: str) -> list[int]:
        """Return the numbers of the chunks of one kind, as they were."""
        return chunks.chunk_numbers(self._names, letter)

    def get(self, name: str) -> bytes:
        """Return a field, empty if there is none."""
        if name in self._new:
            return self._new[name]
        if name in self._names and name not in self._old:
            self._old[name] = cast("bytes", self._client.hget(self._key, name))
        return self._old.get(name, b"")

    def lines(self, name: str) -> chunks.Chunk:
        """Return the lines of a chunk."""
        return chunks.unpack_lines(self.get(name))

    def put(self, name: str, raw: bytes) -> None:
        """Write a field, or delete it if it is empty."""
        self.get(name)
        self._new[name] = raw

    def put_lines(self, name: str, lines: chunks.Chunk) -> None:
        """Write a chunk, or delete it if it has no lines."""
        self.put(name, chunks.pack_lines(lines) if lines else b"")

    def finish(self, writes: Writes) -> int:
        """List the writes; return by how many bytes the hash grows."""
        for name, raw in self._new.items():
            if raw:
                writes.add("HSET", self._key, name, raw)
            elif name in self._names:
                writes.add("HDEL", self._key, name)
        return sum(len(raw) - len(self._old.get(name, b"")) for name, raw in self._new.items())


class _Packing:
    """The commit in the making. What it reads is as it was when loaded, or else the commit fails."""

    def __init__(self, store: SessionStore, loaded: Loaded) -> None:
        self._client = store.client
        self._settings = store.settings
        self._loaded = loaded
        state = loaded.state
        self._keys = keys = SessionKeys.of(state.session_id)
        self._writes = Writes(keys.session)
        self._fields = _Fields(store.client, keys.chunks)
        self._freed = 0
        """Bytes taken out of keys that stay."""
        self._deleted = 0
        """Messages at the log's beginning that are deleted."""
        self._emptied: set[str] = set()
        self._removed: dict[bytes, bytes] = {}
        """Fields of live calls to delete, with what they held."""
        self._unknown = {entry.id.encode() for entry in state.unknown}
        self._live = cast("dict[bytes, bytes]", store.client.hgetall(keys.calls))
        # What is older than this is read neither by a step nor by a snapshot.
        self._until = min(state.context_from, max(state.next_seq - SNAPSHOT_MESSAGES, 0))

    # --- messages

    def pack_messages(self) -> None:
        """Move messages that are neither in the context nor among the latest into chunks."""
        moved = self._trim_log()
        numbers = self._fields.numbers("m")
        number = numbers[-1] if numbers else self._loaded.log_from
        last = self._fields.lines(chunks.message_field(number))
        for first, lines in chunks.extended(number, last, moved).items():
            self._fields.put_lines(chunks.message_field(first), lines)

    def delete_messages(self) -> None:
        """Delete messages that are neither in the context nor among the latest, and their calls."""
        names = [chunks.message_field(number) for number in self._fields.numbers("m")]
        lines = [line for name in names for line in self._fields.lines(name)]
        trimmed = self._trim_log()
        self._deleted = len(trimmed)
        lines += trimmed
        if not lines:
            return
        for name in names:
            self._fields.put(name, b"")
        self._writes.add("HSET", self._keys.session, "oldest", self._until)
        messages = [read_record(Message, line) for line in lines]
        calls = {call.id.encode() for message in messages for call in message.calls}
        self._delete_calls(calls - self._unknown)

    def _trim_log(self) -> list[bytes]:
        count = self._until - self._loaded.log_from
        if count <= 0:
            return []
        moved = cast("list[bytes]", self._client.lrange(self._keys.log, 0, count - 1))
        self._freed += sum(map(len, moved))
        self._writes.add("LTRIM", self._keys.log, count, -1)
        self._writes.add("HSET", self._keys.session, "log_from", self._until)
        return moved

    # --- calls

    def pack_calls(self) -> None:
        """Move settled calls into chunks; those with an unknown outcome wait until it is known."""
        told = self._told()
        lines = []
        for call_id in [name for name in self._live if name + b":o" in self._live]:
            if call_id not in self._unknown:
                parts = self._remove_call(call_id)
                lines.append(chunks.pack_call(call_id, *parts, told.get(call_id)))
        numbers = self._fields.numbers("c")
        number = numbers[-1] if numbers else 0
        last = self._fields.lines(chunks.call_field(number))
        self._put_calls(chunks.extended(number, last, lines))
        self._fields.put(chunks.PACKED_TO, b"%d" % self._loaded.state.next_seq)

    def _told(self) -> dict[bytes, Message]:
        """Return the tool messages since the last packing, by call."""
        since = int(self._fields.get(chunks.PACKED_TO) or 0)
        begin = max(since - self._loaded.log_from, 0)
        raw = cast("list[bytes]", self._client.lrange(self._keys.log, begin, -1))
        messages = [read_record(Message, entry) for entry in raw if b'"call_id"' in entry]
        return {message.call_id.encode(): message for message in messages if message.call_id}

    def _delete_calls(self, call_ids: Collection[bytes]) -> None:
        for call_id in call_ids:
            self._remove_call(call_id)
        index = self._fields.get(chunks.INDEX)
        changed: dict[int, chunks.Chunk] = {}
        for number in chunks.places_in(index, call_ids):
            lines = self._fields.lines(chunks.call_field(number))
            changed[number] = [line for line in lines if chunks.call_id_of(line) not in call_ids]
        self._put_calls(changed)

    def _remove_call(self, call_id: bytes) -> tuple[bytes, bytes, bytes]:
        """Take a call out of its live place; return its request, outcome and late result."""
        fields = [field.encode() for field in call_fields(call_id.decode())]
        parts = {field: self._live.pop(field) for field in fields if field in self._live}
        self._removed |= parts
        request, outcome, late = (parts.get(field, b"") for field in fields)
        return request, outcome, late

    def _put_calls(self, changed: dict[int, chunks.Chunk]) -> None:
        if changed:
            for number, lines in changed.items():
                self._fields.put_lines(chunks.call_field(number), lines)
            index = self._fields.get(chunks.INDEX)
            self._fields.put(chunks.INDEX, chunks.index_of(index, changed))

    # --- the rest

    def pack_steps(self) -> None:
        """Move the step history into its chunk."""
        live = cast("list[bytes]", self._client.lrange(self._keys.steps, 0, -1))
        if live:
            lines = [*self._fields.lines(chunks.STEPS), *live]
            self._fields.put_lines(chunks.STEPS, lines[-self._settings.history_max_steps :])
            self._empty(self._keys.steps)

    def pack_message_ids(self) -> None:
        """Keep only digests of client message ids, once there are many."""
        if self._client.scard(self._keys.ids) <= _MESSAGE_IDS_IN_SET:
            return
        taken = cast("set[bytes]", self._client.smembers(self._keys.ids))
        packed = chunks.pack_message_ids(self._fields.get(chunks.IDS), taken)
        self._fields.put(chunks.IDS, packed)
        self._empty(self._keys.ids)

    def drop_images(self) -> None:
        """Delete images that no message shows any more: of deleted messages, or of queued ones."""
        kept = {
            name.decode() for name in cast("list[bytes]", self._client.hkeys(self._keys.images))
        }
        gone = sorted(kept - self._shown_images()) if kept else []
        if gone:
            sizes = cast("list[bytes | None]", self._client.hmget(self._keys.images, gone))
            self._freed += sum(len(data or b"") for data in sizes)
            self._writes.add("HDEL", self._keys.images, *gone)

    def _shown_images(self) -> set[str]:
        lines = cast("list[bytes]", self._client.lrange(self._keys.log, self._deleted, -1))
        names = [chunks.message_field(number) for number in self._fields.numbers("m")]
        lines += [
            line for name in names if self._fields.get(name) for line in self._fields.lines(name)
        ]
        shown = [read_record(Message, line).images for line in lines if b'"images"' in line]
        queued = cast("dict[bytes, bytes]", self._client.hgetall(self._keys.queue))
        waiting = [read_images(raw) for field, raw in queued.items() if field.endswith(b":i")]
        return {image.id for images in (*shown, *waiting) for image in images}

    def finish(self) -> Writes:
        """Return all writes, with a true count of what the session takes."""
        if self._removed and not self._live:
            self._empty(self._keys.calls)
        elif self._removed:
            self._writes.add("HDEL", self._keys.calls, *self._removed)
            self._freed += sum(map(len, self._removed.values()))
        kept = [key for key in self._keys.lasting if key not in self._emptied]
        taken = _bytes_taken(self._client, kept) - self._freed + self._fields.finish(self._writes)
        self._writes.add("HSET", self._keys.session, "bytes", taken)
        self._writes.add("ZREM", self._keys.partition.pack, self._loaded.state.session_id)
        return self._writes

    def _empty(self, key: str) -> None:
        self._emptied.add(key)
        self._writes.add("DEL", key)


def _bytes_taken(client: redis.Redis, keys: Iterable[str]) -> int:
    pipe = client.pipeline(transaction=False)
    for key in keys:
        pipe.memory_usage(key, samples=0)
    return sum(size or 0 for size in cast("list[int | None]", pipe.execute()))
