"""Reading for people: snapshots, older messages, step history and live events of one session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from celeriac.sessions.calls import CallRecord, CallStatus
from celeriac.sessions.codec import read_images, read_record
from celeriac.sessions.errors import NotFound
from celeriac.sessions.events import EventBatch, StoredEvent
from celeriac.sessions.messages import Message
from celeriac.sessions.settings import Settings
from celeriac.sessions.snapshot import MessagePage, QueuedMessageView, Snapshot, StepRecord
from celeriac.sessions.state import SessionState
from celeriac.sessions.store import scripts
from celeriac.sessions.store.connection import store_errors
from celeriac.sessions.store.keys import SessionKeys, queue_fields
from celeriac.sessions.store.loaded import loaded_from
from celeriac.sessions.store.sessions import SessionStore
from celeriac.sessions.store.watch import wait_for_entries
from celeriac.sessions.views import call_record, turn_view

__all__ = ["SNAPSHOT_MESSAGES", "SessionReader"]

SNAPSHOT_MESSAGES = 200
"""How many of the latest messages a snapshot shows; older ones page."""

_SNAPSHOT_TRIES = 10
"""Each needs a commit of that session between two round trips of ours."""

_NO_EVENTS = "0-0"


class SessionReader:
    """Reads sessions for pages, API and CLI.

    Args:
        store: The session store.
        settings: Sizes.
    """

    def __init__(self, store: SessionStore, settings: Settings) -> None:
        self._store = store
        self._client = store.client
        self._settings = settings

    def snapshot(self, session_id: str) -> Snapshot:
        """Read everything a page needs.

        Raises:
            NotFound: There is no such session.
        """
        shown, state = self._snapshot(session_id)
        for _ in range(_SNAPSHOT_TRIES):
            if not _torn(shown, state):
                break
            shown, state = self._snapshot(session_id)
        return shown

    def _snapshot(self, session_id: str) -> tuple[Snapshot, SessionState]:
        """Read a snapshot whose calls may be a moment newer than the rest."""
        keys = SessionKeys.of(session_id)
        with store_errors():
            reply = scripts.SNAPSHOT.run(
                self._store.direct,
                [keys.session, keys.log, keys.queue, keys.events],
                [SNAPSHOT_MESSAGES],
            )
        now, fields, log, queue, position = cast(
            "tuple[int, list[bytes], list[bytes], list[bytes], bytes]", reply
        )
        if not fields:
            raise NotFound(f"There is no session {session_id!r}.", code="unknown_session")
        loaded = loaded_from(now, fields)
        state = loaded.state
        messages = tuple(read_record(Message, raw) for raw in log)
        texts = dict(zip(queue[::2], queue[1::2], strict=True))
        shown = Snapshot(
            session_id=state.session_id,
            agent=state.agent,
            model=state.model,
            title=state.title,
            status=state.status,
            created_at=state.created_at,
            updated_at=state.updated_at,
            turn=turn_view(state),
            messages=messages,
            has_older=bool(messages) and messages[0].seq > loaded.oldest_seq,
            oldest_seq=loaded.oldest_seq,
            calls=self._calls_of(state, messages),
            unknown_calls=tuple(entry.id for entry in state.unknown),
            queue=tuple(
                QueuedMessageView(
                    **dict(item),
                    text=texts.get(item.id.encode(), b"").decode(),
                    images=read_images(texts.get(queue_fields(item.id)[1].encode())),
                )
                for item in state.queue
            ),
            plan=state.plan,
            usage=state.usage,
            resume_token=position.decode(),
            version=int(loaded.version),
        )
        return shown, state

    def messages(self, session_id: str, before: int | None, limit: int) -> MessagePage:
        """Read older messages: the `limit` ones before seq `before` (None: the latest)."""
        found = self._store.records.messages(session_id, before, limit)
        return MessagePage(
            messages=found.messages,
            calls=self._calls_of(found.loaded.state, found.messages),
            has_older=found.has_older,
            oldest_seq=found.loaded.oldest_seq,
        )

    def call(self, session_id: str, call_id: str) -> CallRecord:
        """Read one call.

        Raises:
            NotFound: The session has no such call.
        """
        state = self._store.load(session_id).state
        records = self.calls(state, [call_id])
        if not records:
            raise NotFound(f"Session {session_id} has no call {call_id!r}.", code="unknown_call")
        return records[0]

    def calls(
        self, state: SessionState, call_ids: Sequence[str], messages: Sequence[Message] = ()
    ) -> tuple[CallRecord, ...]:
        """Read several calls of a session; those that do not exist are left out.

        Args:
            state: The session.
            call_ids: The calls.
            messages: Messages that were read already, to save reading them again for their results.
        """
        stored = self._store.records.calls(state.session_id, call_ids, messages)
        return tuple(
            call_record(one.request, one.outcome, state, one.late) for one in stored.values()
        )

    def _calls_of(self, state: SessionState, messages: Sequence[Message]) -> tuple[CallRecord, ...]:
        call_ids = [ref.id for message in messages for ref in message.calls]
        return self.calls(state, call_ids, messages)

    def steps(self, session_id: str) -> tuple[StepRecord, ...]:
        """Read the step history, oldest first."""
        self._store.load(session_id)
        return self._store.records.steps(session_id)

    def events(self, session_id: str, after: str, block_ms: int, limit: int) -> EventBatch:
        """Read live events after a position, waiting a while for the first."""
        key = SessionKeys.of(session_id).events
        with store_errors():
            pipe = self._client.pipeline(transaction=True)
            pipe.xrange(key, count=1)
            pipe.xrevrange(key, count=1)
            pipe.xlen(key)
            pipe.xrange(key, min=f"({after}", count=limit)
            first, last, length, entries = pipe.execute()
            if self._has_gap(after, first, last, length):
                return EventBatch(reload=True)
            if not entries and block_ms > 0:
                found = wait_for_entries(self._client, {key: after}, block_ms=block_ms, count=limit)
                entries = found.get(key, [])
        return EventBatch(
            events=tuple(
                StoredEvent(id=entry_id.decode(), json=fields[b"e"].decode())
                for entry_id, fields in entries
            )
        )

    def _has_gap(
        self,
        after: str,
        first: list[tuple[bytes, object]],
        last: list[tuple[bytes, object]],
        length: int,
    ) -> bool:
        if not first:
            return after != _NO_EVENTS
        if after == _NO_EVENTS:
            return length >= self._settings.events_max
        position = _position(after)
        too_old = position < _position(first[0][0].decode())
        return too_old or position > _position(last[0][0].decode())


def _torn(shown: Snapshot, state: SessionState) -> bool:
    """Say whether a call was settled or reconciled between the two reads of a snapshot."""
    unknown = set(shown.unknown_calls)
    for record in shown.calls:
        call = state.call(record.id)
        if call is not None and record.status.settled and not call.status.settled:
            return True
        if record.id in unknown and record.status is not CallStatus.OUTCOME_UNKNOWN:
            return True
    return False


def _position(entry_id: str) -> tuple[int, int]:
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence or 0)
