"""Find what a session has stored, be it live or packed: messages, call records, step history, message ids.

Packing moves records from their live place into chunks and never back. So a reader that looks at the live
place first finds every record, whenever it was packed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import redis

from celeriac.sessions.calls import CallOutcome, CallRequest, LateResult
from celeriac.sessions.codec import read_record
from celeriac.sessions.errors import NotFound
from celeriac.sessions.ids import CALL_ID_PATTERN
from celeriac.sessions.messages import Message
from celeriac.sessions.snapshot import StepRecord
from celeriac.sessions.store import chunks, scripts
from celeriac.sessions.store.connection import DirectConnections, store_errors
from celeriac.sessions.store.keys import SessionKeys, call_fields
from celeriac.sessions.store.loaded import Loaded, loaded_from

__all__ = ["MessageRange", "Records", "StoredCall"]


@dataclass(frozen=True, slots=True)
class MessageRange:
    """A stretch of the conversation."""

    loaded: Loaded
    """The session at the moment of reading."""
    messages: tuple[Message, ...]
    has_older: bool


@dataclass(frozen=True, slots=True)
class StoredCall:
    """What is stored of a call."""

    request: CallRequest
    outcome: CallOutcome | None
    late: LateResult | None = None


class Records:
    """Reads records of sessions.

    Every method may raise `StoreUnavailable`.

    Args:
        client: Connection of this process.
        direct: Quick connections to the same store, for scripts.
    """

    def __init__(self, client: redis.Redis, direct: DirectConnections) -> None:
        self._client = client
        self._direct = direct

    # --- messages

    def messages(self, session_id: str, before: int | None, limit: int) -> MessageRange:
        """Read messages, oldest first.

        Args:
            session_id: The session.
            before: Seq that the last one comes before; None reads the latest.
            limit: Most messages to read.

        Raises:
            NotFound: There is no such session.
        """
        keys = SessionKeys.of(session_id)
        arguments = ["" if before is None else before, limit]
        with store_errors():
            reply = scripts.MESSAGES.run(self._direct, [keys.session, keys.log], arguments)
            now, fields, begin, end, raw = cast(
                "tuple[int, list[bytes], int, int, list[bytes]]", reply
            )
            if not fields:
                raise NotFound(f"There is no session {session_id!r}.", code="unknown_session")
            loaded = loaded_from(now, fields)
            in_log = [read_record(Message, entry) for entry in raw]
            packed = self._packed_messages(keys, begin, min(end, loaded.log_from))
        messages = (*packed, *in_log)
        oldest = messages[0].seq if messages else end
        return MessageRange(loaded, messages, has_older=oldest > loaded.oldest_seq)

    def _packed_messages(self, keys: SessionKeys, begin: int, end: int) -> list[Message]:
        if begin >= end:
            return []
        names = [name.decode() for name in cast("list[bytes]", self._client.hkeys(keys.chunks))]
        numbers = chunks.chunk_numbers(names, "m")
        fields = [
            chunks.message_field(number)
            for number, after in zip(numbers, [*numbers[1:], end], strict=True)
            if number < end and after > begin
        ]
        lines = self._lines(keys, fields)
        messages = (read_record(Message, line) for line in lines)
        return [message for message in messages if begin <= message.seq < end]

    # --- calls

    def calls(
        self, session_id: str, call_ids: Sequence[str], messages: Iterable[Message] = ()
    ) -> dict[str, StoredCall]:
        """Read call records.

        Args:
            session_id: The session.
            call_ids: The calls; those that do not exist are left out.
            messages: Messages that were read already: results that they have are not read again.

        Returns:
            The records by Call ID, in the order asked for.
        """
        # Any other text could name the field of an outcome.
        call_ids = [call_id for call_id in call_ids if CALL_ID_PATTERN.fullmatch(call_id)]
        if not call_ids:
            return {}
        keys = SessionKeys.of(session_id)
        names = [name for call_id in call_ids for name in call_fields(call_id)]
        with store_errors():
            raw = cast("list[bytes | None]", self._client.hmget(keys.calls, names))
            parts = dict(
                zip(call_ids, zip(raw[::3], raw[1::3], raw[2::3], strict=True), strict=True)
            )
            missing = [call_id for call_id in call_ids if parts[call_id][0] is None]
            packed = self._packed_calls(session_id, missing, messages) if missing else {}
        found = {}
        for call_id, (request, outcome, late) in parts.items():
            after = read_record(LateResult, late) if late else None
            if request is not None:
                settled = read_record(CallOutcome, outcome) if outcome else None
                found[call_id] = StoredCall(read_record(CallRequest, request), settled, after)
            elif call_id in packed:
                call = packed[call_id]
                found[call_id] = StoredCall(call.request, call.outcome, after or call.late)
        return found

    def _packed_calls(
        self, session_id: str, call_ids: Sequence[str], messages: Iterable[Message]
    ) -> dict[str, chunks.PackedCall]:
        keys = SessionKeys.of(session_id)
        wanted = {call_id.encode() for call_id in call_ids}
        index = cast("bytes | None", self._client.hget(keys.chunks, chunks.INDEX))
        places = chunks.places_in(index or b"", wanted)
        lines = self._lines(keys, [chunks.call_field(number) for number in sorted(places)])
        calls = [
            chunks.PackedCall.read(line) for line in lines if chunks.call_id_of(line) in wanted
        ]
        texts = self._result_texts(session_id, calls, messages)
        # A result whose message is gone was deleted with its call, since the chunk was read.
        return {
            call.id: call if call.result_seq is None else call.with_result(texts[call.result_seq])
            for call in calls
            if call.result_seq is None or call.result_seq in texts
        }

    def _result_texts(
        self, session_id: str, calls: Iterable[chunks.PackedCall], known: Iterable[Message]
    ) -> Mapping[int, str]:
        """Return the texts of the tool messages that hold results; those of one response are neighbours."""
        wanted = {call.result_seq for call in calls if call.result_seq is not None}
        texts = {message.seq: message.text for message in known if message.seq in wanted}
        missing = wanted - texts.keys()
        if missing:
            before = max(missing) + 1
            found = self.messages(session_id, before, before - min(missing)).messages
            texts |= {message.seq: message.text for message in found if message.seq in missing}
        return texts

    # --- the rest

    def steps(self, session_id: str) -> tuple[StepRecord, ...]:
        """Read the step history, oldest first."""
        keys = SessionKeys.of(session_id)
        with store_errors():
            pipe = self._client.pipeline(transaction=True)
            pipe.hget(keys.chunks, chunks.STEPS)
            pipe.lrange(keys.steps, 0, -1)
            packed, live = cast("tuple[bytes | None, list[bytes]]", pipe.execute())
        return tuple(read_record(StepRecord, raw) for raw in (*chunks.unpack_lines(packed), *live))

    def message_known(self, session_id: str, message_id: str) -> bool:
        """Say whether a client message id was taken before."""
        keys = SessionKeys.of(session_id)
        with store_errors():
            pipe = self._client.pipeline(transaction=True)
            pipe.sismember(keys.ids, message_id)
            pipe.hget(keys.chunks, chunks.IDS)
            live, packed = cast("tuple[int, bytes | None]", pipe.execute())
        return bool(live) or chunks.holds_message_id(packed or b"", message_id)

    def _lines(self, keys: SessionKeys, fields: Sequence[str]) -> list[bytes]:
        if not fields:
            return []
        raw = cast("list[bytes | None]", self._client.hmget(keys.chunks, fields))
        return [line for chunk in raw for line in chunks.unpack_lines(chunk)]
