"""The audit log and the rate limits of the in-memory client."""

from __future__ import annotations

from collections import Counter

from celeriac.sessions.audit import Actor, AuditEntry, AuditPage
from celeriac.sessions.client import SessionClient
from celeriac.sessions.errors import InvalidRequest, RateLimited, StoreUnavailable
from celeriac.sessions.store.limits import Limited
from tests.web.fake_operations import FakeOperations


class FakeAudit(SessionClient):
    def __init__(self) -> None:
        self.down = False
        self.actor = Actor()
        self.recorded: list[AuditEntry] = []
        self.counted: Counter[tuple[Limited, str]] = Counter()
        self.most: dict[Limited, int] = {}
        self.operations: FakeOperations = FakeOperations(self._known)

    def acting_as(self, actor: Actor) -> SessionClient:
        self.actor = actor
        return self

    def record(self, entry: AuditEntry) -> None:
        self._check()
        self.recorded.append(entry)

    def audit(
        self, *, session_id: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> AuditPage:
        self._check()
        if cursor is not None:
            raise InvalidRequest("That is no cursor.", code="invalid_cursor")
        named = [one for one in self.recorded if session_id in {None, one.session_id}]
        return AuditPage(entries=tuple(reversed(named))[:limit], cursor=None)

    def check_rate(self, what: Limited, who: str) -> None:
        self._check()
        self.counted[what, who] += 1
        if self.counted[what, who] > self.most.get(what, 1_000_000):
            raise RateLimited(f"Too many {what.value}.", retry_after_seconds=17)

    def _known(self, session_id: str | None) -> None:
        self._check()
        if session_id is not None:
            self.snapshot(session_id)

    def _check(self) -> None:
        if self.down:
            raise StoreUnavailable("no answer", retry_after_seconds=3)
