"""Where the audit log is kept: one capped stream in each partition, and two for what is of no session.

Refused logins and tokens have a stream of their own, so that a flood of them pushes no decision out.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import cast

import redis

from celeriac.sessions.audit import AuditEntry, AuditPage
from celeriac.sessions.codec import read_record, write_record
from celeriac.sessions.errors import InvalidRequest
from celeriac.sessions.settings import Settings
from celeriac.sessions.store.commit import Writes
from celeriac.sessions.store.connection import store_errors
from celeriac.sessions.store.keys import (
    AUDIT_ACCESS,
    AUDIT_REFUSED,
    PARTITIONS,
    PartitionKeys,
    partition_of,
)

__all__ = ["AuditLog", "write_entry"]

_ACCESS = PARTITIONS
_REFUSED = PARTITIONS + 1
_BATCH = 16
_CURSOR = re.compile(r"([0-9]{1,15})-([0-9]{1,9})-([0-9]{1,2})")

_Place = tuple[int, int, int]
"""Milliseconds, number in that millisecond, and part of the log; the greatest is the newest."""
_Raw = tuple[bytes, dict[bytes, bytes]]


def _key(part: int) -> str:
    outside = {_ACCESS: AUDIT_ACCESS, _REFUSED: AUDIT_REFUSED}
    return outside.get(part) or PartitionKeys(part).audit


def write_entry(writes: Writes, session_id: str, entry: AuditEntry, settings: Settings) -> None:
    """Add an entry about a session to the writes of the commit that it is about.

    Args:
        writes: The commit.
        session_id: The session.
        entry: The entry.
        settings: How much is kept.
    """
    key = PartitionKeys(partition_of(session_id)).audit
    writes.add("XADD", key, "MAXLEN", "~", settings.audit_max, "*", "e", write_record(entry))


class AuditLog:
    """Reads the audit log, and writes what is part of no commit.

    Args:
        client: The store.
        settings: How much is kept.
    """

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client = client
        self._settings = settings

    def record(self, entry: AuditEntry) -> None:
        """Log something that changes no session: a login, a logout, a refusal.

        Raises:
            StoreUnavailable: It may not have been logged.
        """
        key = _key(_REFUSED if entry.act.refused else _ACCESS)
        with store_errors():
            self._client.xadd(
                key, {"e": write_record(entry)}, maxlen=self._settings.audit_max, approximate=True
            )

    def page(self, session_id: str | None, cursor: str | None, limit: int) -> AuditPage:
        """Read entries, the newest first.

        Args:
            session_id: Only those about this session; None is all of them.
            cursor: From the page before; None begins with the newest.
            limit: Most entries to return.

        Raises:
            InvalidRequest: The cursor is none that this log gave out.
        """
        parts = (
            range(PARTITIONS + 2) if session_id is None else (partition_of(session_id), _REFUSED)
        )
        found: list[AuditEntry] = []
        for _, entry in self._newest(parts, _read_cursor(cursor)):
            if session_id is not None and entry.session_id != session_id:
                continue
            if len(found) == limit:
                return AuditPage(entries=tuple(found), cursor=found[-1].id)
            found.append(entry)
        return AuditPage(entries=tuple(found), cursor=None)

    def _newest(
        self, parts: Sequence[int], before: _Place | None
    ) -> Iterator[tuple[_Place, AuditEntry]]:
        with store_errors():
            pipe = self._client.pipeline(transaction=False)
            for part in parts:
                pipe.xrevrange(_key(part), _end(part, before), "-", count=_BATCH)
            batches = cast("list[list[_Raw]]", pipe.execute())
        found = (
            self._entries(part, batch) for part, batch in zip(parts, batches, strict=True) if batch
        )
        return heapq.merge(*found, key=itemgetter(0), reverse=True)

    def _entries(self, part: int, batch: list[_Raw]) -> Iterator[tuple[_Place, AuditEntry]]:
        """Yield the entries of one part of the log; `batch` is the first of them."""
        while batch:
            for raw_id, fields in batch:
                at, number = map(int, raw_id.split(b"-"))
                entry = read_record(AuditEntry, fields[b"e"])
                place = {"id": f"{at}-{number}-{part}", "at": at}
                yield (at, number, part), entry.model_copy(update=place)
            if len(batch) < _BATCH:
                return
            with store_errors():
                after = "(" + batch[-1][0].decode()
                batch = cast(
                    "list[_Raw]", self._client.xrevrange(_key(part), after, "-", count=_BATCH)
                )


def _end(part: int, before: _Place | None) -> str:
    """Return the newest id of a part that comes after a place in the list."""
    if before is None:
        return "+"
    at, number, its_part = before
    # Of the same moment, the parts with a lower number come after.
    return f"{'' if part < its_part else '('}{at}-{number}"


def _read_cursor(cursor: str | None) -> _Place | None:
    if cursor is None:
        return None
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise InvalidRequest(
            f"{cursor[:64]!r} is no cursor of the audit log; begin without one.",
            code="invalid_cursor",
        )
    at, number, part = map(int, match.groups())
    return at, number, part
