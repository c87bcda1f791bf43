"""Lists over all sessions: sessions by activity, calls that wait for a person, agents and workers."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from celeriac.sessions.codec import read_record, write_record
from celeriac.sessions.errors import InvalidRequest, NotFound
from celeriac.sessions.settings import Settings
from celeriac.sessions.snapshot import (
    AgentInfo,
    ApprovalItem,
    SessionPage,
    SessionSummary,
    WorkerInfo,
)
from celeriac.sessions.state import SessionState, SessionStatus
from celeriac.sessions.store.connection import store_errors
from celeriac.sessions.store.keys import (
    AGENTS,
    PARTITIONS,
    WORKERS,
    PartitionKeys,
)
from celeriac.sessions.store.reader import SessionReader
from celeriac.sessions.store.sessions import SessionStore
from celeriac.sessions.views import session_summary

__all__ = ["Counts", "SessionLists"]

WORKER_SEEN_MS = 15_000
"""A worker not seen for so long is no longer listed."""
_FORGET_WORKER_MS = 3_600_000
_FORGET_AGENT_MS = 24 * 3_600_000
"""An agent that no worker has announced for a day is no longer offered; its sessions stay."""

_OVERDUE_MS = 10_000
"""So much later than its time a session is looked at only where no worker looks at all."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many sessions and waiting calls there are."""

    sessions: dict[SessionStatus, int]
    approvals: int
    unknown: int
    overdue: int


_Position = tuple[float, str]
"""Last activity and session id: a place in the list, the greatest first, as the indexes are read."""


class SessionLists:
    """Lists for pages, API and CLI; read from the partitions' indexes.

    Args:
        store: The session store.
        reader: Reads the calls.
        settings: Sizes.
    """

    def __init__(self, store: SessionStore, reader: SessionReader, settings: Settings) -> None:
        self._store = store
        self._client = store.client
        self._reader = reader
        self._settings = settings

    # --- sessions

    def sessions(
        self, status: SessionStatus | None, agent: str | None, cursor: str | None, limit: int
    ) -> SessionPage:
        """List sessions, the last active first.

        Raises:
            InvalidRequest: The cursor is none that this list gave out.
        """
        position = _read_cursor(cursor)
        found: list[SessionSummary] = []
        last: _Position | None = None
        for place, summary in self._newest(status, position):
            if agent is not None and summary.agent != agent:
                continue
            if len(found) == limit:
                return SessionPage(sessions=tuple(found), cursor=_write_cursor(last))
            found.append(summary)
            last = place
        return SessionPage(sessions=tuple(found), cursor=None)

    def _newest(
        self, status: SessionStatus | None, position: _Position | None
    ) -> Iterator[tuple[_Position, SessionSummary]]:
        while True:
            places = self._places(status, position)
            if not places:
                return
            for place, summary in zip(places, self._summaries(places), strict=True):
                if summary is not None:
                    yield place, summary
            position = places[-1]

    def _places(self, status: SessionStatus | None, position: _Position | None) -> list[_Position]:
        """Return the next places in the list, at most a batch."""
        statuses = [status] if status else list(SessionStatus)
        offsets = {
            PartitionKeys(number).status(one): 0 for number in range(PARTITIONS) for one in statuses
        }
        found: set[_Position] = set()
        # The last place of each index that has more: whatever comes after the first of those may
        # still have others before it.
        ends: list[_Position] = []
        while offsets:
            again: dict[str, int] = {}
            for key, places in self._read_indexes(offsets, position).items():
                later = [place for place in places if position is None or place < position]
                found.update(later)
                if len(places) == _BATCH and later:
                    ends.append(later[-1])
                elif len(places) == _BATCH:  # All are of the position's moment, and shown before.
                    again[key] = offsets[key] + _BATCH
            offsets = again
        end = max(ends, default=None)
        return [place for place in heapq.nlargest(_BATCH, found) if end is None or place >= end]

    def _read_indexes(
        self, offsets: Mapping[str, int], position: _Position | None
    ) -> dict[str, list[_Position]]:
        """Read a batch of each index, from an offset into what is not newer than a position."""
        highest = "+inf" if position is None else repr(position[0])
        with store_errors():
            pipe = self._client.pipeline(transaction=False)
            for key, offset in offsets.items():
                pipe.zrange(
                    key,
                    highest,
                    "-inf",
                    desc=True,
                    byscore=True,
                    offset=offset,
                    num=_BATCH,
                    withscores=True,
                )
            replies = pipe.execute()
        return {
            key: [
                (float(score), member.decode())
                for member, score in cast("list[tuple[bytes, float]]", reply)
            ]
            for key, reply in zip(offsets, replies, strict=True)
        }

    def _summaries(self, places: Sequence[_Position]) -> list[SessionSummary | None]:
        states = self._states([session_id for _, session_id in places])
        return [session_summary(state) if state else None for state in states]

    def _states(self, session_ids: Sequence[str]) -> list[SessionState | None]:
        return self._store.peek(session_ids)

    # --- calls that wait for a person

    def approvals(self, limit: int) -> tuple[ApprovalItem, ...]:
        """List the calls that wait for a decision, the oldest first."""
        return self._items([PartitionKeys(number).approvals for number in range(PARTITIONS)], limit)

    def unknown_outcomes(self, limit: int) -> tuple[ApprovalItem, ...]:
        """List the calls whose outcome is unknown, the oldest first."""
        return self._items([PartitionKeys(number).unknown for number in range(PARTITIONS)], limit)

    def _items(self, keys: Sequence[str], limit: int) -> tuple[ApprovalItem, ...]:
        with store_errors():
            pipe = self._client.pipeline(transaction=False)
            for key in keys:
                pipe.zrange(key, 0, limit - 1, withscores=True)
            replies = pipe.execute()
        entries = heapq.nsmallest(
            limit,
            (
                (int(score), member.decode())
                for reply in replies
                for member, score in cast("list[tuple[bytes, float]]", reply)
            ),
        )
        states = self._states([member.partition(":")[0] for _, member in entries])
        items = (
            self._item(state, member.partition(":")[2], since)
            for (since, member), state in zip(entries, states, strict=True)
            if state is not None
        )
        return tuple(item for item in items if item is not None)

    def _item(self, state: SessionState, call_id: str, since: int) -> ApprovalItem | None:
        records = self._reader.calls(state, [call_id])
        if not records:
            return None
        return ApprovalItem(
            session_id=state.session_id,
            agent=state.agent,
            title=state.title,
            call=records[0],
            since=since,
            explanation=self._explanation(state, call_id),
        )

    def _explanation(self, state: SessionState, call_id: str) -> str:
        seq = state.turn.response_seq if state.turn else None
        if seq is None or state.call(call_id) is None:
            return ""
        found = self._store.records.messages(state.session_id, seq + 1, 1).messages
        return found[0].text if found else ""

    # --- how many there are

    def counts(self, now: int) -> Counts:
        """Count sessions and waiting calls; it takes as long for many as for few.

        Args:
            now: Unix milliseconds.
        """
        places = [PartitionKeys(number) for number in range(PARTITIONS)]
        with store_errors():
            pipe = self._client.pipeline(transaction=False)
            for place in places:
                for status in SessionStatus:
                    pipe.zcard(place.status(status))
                pipe.zcard(place.approvals)
                pipe.zcard(place.unknown)
                pipe.zcount(place.wake, "-inf", now - _OVERDUE_MS)
            replies = cast("list[int]", pipe.execute())
        width = len(SessionStatus) + 3
        sums = [sum(replies[column::width]) for column in range(width)]
        *statuses, approvals, unknown, overdue = sums
        return Counts(
            sessions=dict(zip(SessionStatus, statuses, strict=True)),
            approvals=approvals,
            unknown=unknown,
            overdue=overdue,
        )

    def longest_at_work(self, limit: int) -> list[SessionState]:
        """Return sessions at work, those first that have not moved for the longest time, with timings."""
        keys = [PartitionKeys(number).status(SessionStatus.RUNNING) for number in range(PARTITIONS)]
        with store_errors():
            pipe = self._client.pipeline(transaction=False)
            for key in keys:
                pipe.zrange(key, 0, limit - 1, withscores=True)
            replies = cast("list[list[tuple[bytes, float]]]", pipe.execute())
        found = [(score, member.decode()) for reply in replies for member, score in reply]
        states = []
        for _, session_id in heapq.nsmallest(limit, found):
            # It may be gone by now.
            with suppress(NotFound):
                states.append(self._store.load(session_id).state)
        return states

    # --- agents and workers

    def agents(self) -> tuple[AgentInfo, ...]:
        """List the agents that workers announced, in the order of their names."""
        with store_errors():
            raw = cast("dict[bytes, bytes]", self._client.hgetall(AGENTS))
        return tuple(sorted((read_record(AgentInfo, entry) for entry in raw.values()), key=_name))

    def workers(self, now: int) -> tuple[WorkerInfo, ...]:
        """List the workers seen lately."""
        with store_errors():
            raw = cast("dict[bytes, bytes]", self._client.hgetall(WORKERS))
        workers = (read_record(WorkerInfo, entry) for entry in raw.values())
        return tuple(
            sorted((one for one in workers if one.seen_at > now - WORKER_SEEN_MS), key=_name)
        )

    def announce(self, worker: WorkerInfo, agents: Sequence[AgentInfo]) -> None:
        """Tell everybody that a worker is there and which agents it knows; forget what is long gone."""
        with store_errors():
            pipe = self._client.pipeline(transaction=False)
            pipe.hset(WORKERS, worker.name, write_record(worker))
            for agent in agents:
                pipe.hset(AGENTS, agent.name, write_record(agent))
            pipe.hgetall(WORKERS)
            pipe.hgetall(AGENTS)
            workers, announced = cast("list[dict[bytes, bytes]]", pipe.execute()[-2:])
            seen = {
                one.name: one.seen_at
                for one in (read_record(WorkerInfo, raw) for raw in workers.values())
            }
            told = {
                one.name: one.announced_at
                for one in (read_record(AgentInfo, raw) for raw in announced.values())
            }
            self._forget(WORKERS, seen, before=worker.seen_at - _FORGET_WORKER_MS)
            self._forget(AGENTS, told, before=worker.seen_at - _FORGET_AGENT_MS)

    def _forget(self, key: str, times: Mapping[str, int], *, before: int) -> None:
        gone = [name for name, at in times.items() if at < before]
        if gone:
            self._client.hdel(key, *gone)


_BATCH = 100


def _name(item: AgentInfo | WorkerInfo) -> str:
    return item.name


def _write_cursor(place: _Position | None) -> str | None:
    return None if place is None else f"{int(place[0])}-{place[1]}"


def _read_cursor(cursor: str | None) -> _Position | None:
    if cursor is None:
        return None
    activity, _, session_id = cursor.partition("-")
    if not (activity.isascii() and activity.isdigit()) or not session_id:
        raise InvalidRequest(
            f"{cursor!r} is no cursor of this list; begin without one.", code="invalid_cursor"
        )
    return float(activity), session_id
