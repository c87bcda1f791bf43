"""The session store: load, claim, commit, renew, and the wake index.

A commit is guarded by the session's version, which changes whenever something changes that a decision could
rest on. So reading, deciding in Python and committing is safe without locks: who loses the race decides anew.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

import redis
from redis.typing import EncodableT

from celeriac.sessions.advance import advance, start
from celeriac.sessions.audit import Actor, AuditEntry, creation_entry, entry_of
from celeriac.sessions.calls import CallRequest
from celeriac.sessions.codec import read_record, read_state, read_timing, write_timing
from celeriac.sessions.context import active_context
from celeriac.sessions.draft import Change, Rules
from celeriac.sessions.errors import CeleriacError, NotFound
from celeriac.sessions.events import EventType, LiveEvent
from celeriac.sessions.inputs import Input, SettledCall, StepReport, ToolEnded
from celeriac.sessions.messages import Message
from celeriac.sessions.settings import Settings
from celeriac.sessions.state import SessionState, Step, StepName
from celeriac.sessions.store import scripts
from celeriac.sessions.store.audit import write_entry
from celeriac.sessions.store.commit import Writes, commit_writes
from celeriac.sessions.store.connection import DirectConnections, store_errors
from celeriac.sessions.store.keys import PartitionKeys, SessionKeys, step_field
from celeriac.sessions.store.loaded import Loaded, loaded_from
from celeriac.sessions.store.materialise import fill_in_texts
from celeriac.sessions.store.records import Records

__all__ = [
    "Claim",
    "Dispatcher",
    "SessionStore",
    "Verdict",
    "new_claim_name",
    "rules_from",
]

_TOO_MANY_CONFLICTS = 200
_READ_THE_CONTEXT = frozenset({StepName.RUN_MODEL, StepName.COMPACT_CONTEXT})


class Dispatcher(Protocol):
    """Sends the messages that tell workers about ready steps. A lost message is found by the wake index."""

    def writes(self, session_id: str, steps: Sequence[Step]) -> Sequence[tuple[str, bytes]]:
        """Return (list key, message) pairs to push within the commit; empty when that is not possible."""

    def after_commit(self, session_id: str, steps: Sequence[Step]) -> None:
        """Send the messages that could not be pushed within the commit."""


@dataclass(slots=True)
class Claim:
    """A step that this worker, and nobody else, may run now."""

    loaded: Loaded
    step: Step
    token: int
    request: CallRequest | None
    messages: Sequence[Message]
    """The active context, for a step that asks the model."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a step was not claimed: ``gone``, ``busy``, ``expired`` or ``early``."""

    reason: str


@dataclass(frozen=True, slots=True)
class _MovedOn:
    """Somebody else changed the session meanwhile."""

    now: Loaded | None = None
    """How it is now, if that is known."""


def new_claim_name() -> str:
    """Return a name for one claim, in hexadecimal digits."""
    return secrets.token_hex(4)


def rules_from(settings: Settings) -> Rules:
    """Take the rules' numbers from the settings."""
    return Rules(
        lease_ms=int(settings.lease_seconds * 1000),
        resend_ms=int(settings.resend_seconds * 1000),
        model_attempts=settings.model_attempts,
        retry_base_ms=int(settings.retry_base_seconds * 1000),
        retry_max_ms=int(settings.retry_max_seconds * 1000),
        provider_wait_max_ms=int(settings.provider_wait_max_seconds * 1000),
    )


class SessionStore:
    """Sessions in Redis or Valkey.

    Args:
        client: Connection of this process.
        dispatcher: Sends the messages of ready steps.
        settings: Sizes and times.
    """

    def __init__(self, client: redis.Redis, dispatcher: Dispatcher, settings: Settings) -> None:
        self.client = client
        self.direct = DirectConnections(client)
        self.records = Records(client, self.direct)
        self.settings = settings
        self.rules = rules_from(settings)
        self._dispatcher = dispatcher

    # --- reading

    def load(self, session_id: str) -> Loaded:
        """Read a session's control state.

        Raises:
            NotFound: There is no such session.
            StoreUnavailable: The store did not answer.
        """
        with store_errors():
            reply = scripts.LOAD.run(self.direct, [SessionKeys.of(session_id).session])
        now, fields = cast("tuple[int, list[bytes]]", reply)
        if not fields:
            raise NotFound(f"There is no session {session_id!r}.", code="unknown_session")
        return loaded_from(now, fields)

    def peek(self, session_ids: Sequence[str]) -> list[SessionState | None]:
        """Read the control states of several sessions, without timings; None for one that is gone."""
        if not session_ids:
            return []
        with store_errors():
            pipe = self.client.pipeline(transaction=False)
            for session_id in session_ids:
                pipe.hget(SessionKeys.of(session_id).session, "state")
            raw = cast("list[bytes | None]", pipe.execute())
        return [None if entry is None else read_state(entry, {}) for entry in raw]

    # --- changing

    def create(
        self,
        session_id: str,
        agent: str,
        model: str,
        first: Input | None,
        images: Mapping[str, bytes] | None = None,
        *,
        actor: Actor | None = None,
    ) -> SessionState:
        """Create a session, with its first message and its images if there is one; all in one commit."""
        with store_errors():
            seconds, micros = self.client.time()
        now = seconds * 1000 + micros // 1000
        change = start(session_id, agent, model, now, self.rules)
        if first is not None:
            begun = change
            change = cast("Change", advance(change.state, first, now, self.rules))
            change.history[:0] = begun.history
        entry = creation_entry(change.state, actor) if actor else None
        if self._commit(None, change, images=images, entry=entry) is not None:
            raise CeleriacError(f"Session id {session_id!r} exists already.")
        return change.state

    def apply(
        self,
        session_id: str,
        event: Input,
        loaded: Loaded | None = None,
        actor: Actor | None = None,
    ) -> tuple[SessionState, bool]:
        """Let something happen to a session; decides again as often as somebody else was quicker.

        Args:
            session_id: The session.
            event: What happened.
            loaded: The session as read before, to save a round trip.
            actor: Who does it, for the audit log; None is a worker.

        Returns:
            The state afterwards, and whether the input changed anything.

        Raises:
            Refused: The input does not fit the state.
            StoreUnavailable: The store did not answer; it is unknown whether the input was stored.
        """
        for _ in range(_TOO_MANY_CONFLICTS):
            if loaded is None:
                loaded = self.load(session_id)
            made = self._try(event, loaded, actor=actor)
            if isinstance(made, SessionState):
                return made, made is not loaded.state
            loaded = made.now
        raise CeleriacError(f"Session {session_id} changes too fast; input {event!r} found no gap.")

    def try_apply(
        self,
        event: Input,
        loaded: Loaded,
        images: Mapping[str, bytes] | None = None,
        actor: Actor | None = None,
    ) -> SessionState | None:
        """Let something happen to a session as it was read; once.

        Args:
            event: What happened.
            loaded: The session.
            images: Bytes of the images that a message brings, by id.
            actor: Who does it, for the audit log; None is a worker.

        Returns:
            The state afterwards (the very same when the input changes nothing), or None when somebody
            else changed the session meanwhile.

        Raises:
            Refused: The input does not fit the state.
        """
        made = self._try(event, loaded, images, actor)
        return made if isinstance(made, SessionState) else None

    def _try(
        self,
        event: Input,
        loaded: Loaded,
        images: Mapping[str, bytes] | None = None,
        actor: Actor | None = None,
    ) -> SessionState | _MovedOn:
        if isinstance(event, ToolEnded) and _is_late(event, loaded.state):
            event = replace(event, settled=self._settled(loaded.state.session_id, event.call_id))
        change = advance(loaded.state, event, loaded.now, self.rules)
        if change is None:
            return loaded.state
        guard = _guard_of(event, loaded.state)
        entry = entry_of(event, loaded.state, actor) if actor else None
        return self._commit(loaded, change, guard, images, entry) or change.state

    def claim(
        self,
        session_id: str,
        step_id: str,
        name: StepName,
        call_id: str | None,
        owner: str,
        *,
        claim_name: str | None = None,
    ) -> Claim | Verdict:
        """Claim a ready step and read what it needs, in one round trip.

        Args:
            session_id: The session.
            step_id: The step.
            name: Its kind, as the message says.
            call_id: Its call, as the message says.
            owner: This worker's name, without spaces and ``#``.
            claim_name: From `new_claim_name`: a claim of that name which was made, but whose answer was
                lost, is given again.

        Returns:
            The claim, or why there is none.

        Raises:
            StoreUnavailable: The store did not answer; it is unknown whether the step was claimed.
            UnknownSchema: A newer version wrote the session; the step is left to workers of that version.
        """
        keys = SessionKeys.of(session_id)
        started = LiveEvent(
            EventType.STEP_STARTED, {"step_id": step_id, "name": name.value, "call_id": call_id}
        )
        with store_errors():
            reply = scripts.CLAIM.run(
                self.direct,
                [keys.session, keys.partition.wake, keys.calls, keys.log, keys.events],
                [
                    session_id,
                    step_field(step_id),
                    owner,
                    self.rules.lease_ms,
                    call_id or "",
                    "1" if name in _READ_THE_CONTEXT else "0",
                    started.encode(),
                    self.settings.events_max,
                    self.settings.events_ttl_seconds,
                    claim_name or new_claim_name(),
                ],
            )
        parts = cast("list[object]", reply)
        verdict = cast("bytes", parts[0]).decode()
        if verdict != "ok":
            return Verdict(verdict)
        try:
            return _claimed(step_id, parts)
        except Exception:
            # A newer version wrote the session, say. Else the step would count as begun by a lost worker.
            self._give_back(keys, step_id, parts)
            raise

    def _give_back(self, keys: SessionKeys, step_id: str, parts: Sequence[object]) -> None:
        """Undo a claim; the step is sent again when the lease would have ended."""
        fields = cast("list[bytes]", parts[3])
        table = dict(zip(fields[::2], fields[1::2], strict=True))
        field = step_field(step_id)
        timing = read_timing(table[field.encode()])
        free = timing.evolve(token=0, claimed_at=0, owner="")
        writes = Writes(keys.session)
        writes.add("HSET", keys.session, field, write_timing(free))
        with store_errors():
            self._run_commit(table[b"version"].decode(), writes, (field, str(timing.token)))

    def _commit(
        self,
        loaded: Loaded | None,
        change: Change,
        guard: tuple[str, str] = ("", ""),
        images: Mapping[str, bytes] | None = None,
        entry: AuditEntry | None = None,
    ) -> _MovedOn | None:
        state = change.state
        before = loaded.state if loaded else None
        with store_errors():
            if not fill_in_texts(self.client, change, self.settings):
                return _MovedOn()
            writes = commit_writes(before, change, self.settings, images)
            if entry is not None:
                write_entry(writes, state.session_id, entry, self.settings)
            pushed = self._dispatcher.writes(state.session_id, change.send) if change.send else ()
            for key, message in pushed:
                writes.add("LPUSH", key, message)
            moved = self._run_commit(loaded.version if loaded else "", writes, guard)
        if moved is None and change.send and not pushed:
            self._dispatcher.after_commit(state.session_id, change.send)
        return moved

    def _run_commit(
        self, version: str, writes: Writes, guard: tuple[str, str] = ("", "")
    ) -> _MovedOn | None:
        """Do some writes, unless the session has moved on from this version."""
        arguments = [version, secrets.token_hex(6), *guard, *writes.arguments]
        reply = scripts.COMMIT.run(self.direct, writes.keys, arguments)
        if reply == 1:
            return None
        now, fields = cast("tuple[int, list[bytes]]", reply)
        return _MovedOn(loaded_from(now, fields) if fields else None)

    def _settled(self, session_id: str, call_id: str) -> SettledCall | None:
        """Read what is recorded of a call that is settled."""
        stored = self.records.calls(session_id, [call_id]).get(call_id)
        if stored is None or stored.outcome is None:
            return None
        return SettledCall(stored.request, stored.outcome, stored.late)

    def images(self, session_id: str, image_ids: Sequence[str]) -> dict[str, bytes]:
        """Read images of a session; those that are gone are left out."""
        if not image_ids:
            return {}
        with store_errors():
            raw = self.client.hmget(SessionKeys.of(session_id).images, list(image_ids))
        pairs = zip(image_ids, cast("list[bytes | None]", raw), strict=True)
        return {image_id: data for image_id, data in pairs if data is not None}

    def harness_snapshot(self, session_id: str) -> str | None:
        """Read the snapshot of the harness; only the holder of a claim of `RunModel` needs it, and writes it."""
        with store_errors():
            raw = cast("bytes | None", self.client.get(SessionKeys.of(session_id).harness))
        return None if raw is None else raw.decode()

    # --- leases and waking

    def renew(self, session_id: str, step_id: str, token: int) -> bool:
        """Lengthen the lease of a claim; say whether it still holds."""
        keys = SessionKeys.of(session_id)
        with store_errors():
            reply = scripts.RENEW.run(
                self.direct,
                [keys.session, keys.partition.wake],
                [session_id, step_field(step_id), token, self.rules.lease_ms],
            )
        return reply == 1

    def take_due(self, partitions: Iterable[int], *, limit: int = 100) -> list[str]:
        """Take the sessions that somebody must look at now, at most so many of each partition."""
        return self._take([PartitionKeys(number).wake for number in partitions], limit)

    def take_idle(self, partitions: Iterable[int], *, limit: int = 1) -> list[str]:
        """Take idle sessions that are to be packed now, at most so many of each partition."""
        return self._take([PartitionKeys(number).pack for number in partitions], limit)

    def _take(self, indexes: Sequence[str], limit: int) -> list[str]:
        # One call for all: on a cluster, partitions of different slots need one each.
        with store_errors():
            reply = scripts.TAKE_DUE.run(self.direct, indexes, [limit, _LOOK_MS])
        return [raw.decode() for raw in cast("list[bytes]", reply)]

    def write(self, loaded: Loaded, writes: Writes) -> bool:
        """Commit writes that are no change of the state; say whether the session had not moved on."""
        with store_errors():
            return self._run_commit(loaded.version, writes) is None

    def leave_unpacked(self, session_id: str) -> None:
        """Do not try to pack an idle session again before its next turn has ended."""
        with store_errors():
            self.client.zrem(SessionKeys.of(session_id).partition.pack, session_id)

    def reindex(self, session_id: str) -> None:
        """Put a session that was looked at too early back to its place in the wake index."""
        loaded = self.load(session_id)
        keys = SessionKeys.of(session_id)
        writes = Writes(keys.session)
        if loaded.state.busy:
            at = loaded.state.wake_at
            writes.add("ZADD", keys.partition.wake, "+inf" if at is None else at, session_id)
        else:
            writes.add("ZREM", keys.partition.wake, session_id)
        self.write(loaded, writes)

    # --- live events

    def publish(self, session_id: str, events: Sequence[LiveEvent]) -> None:
        """Publish live events outside a commit (deltas, progress). Best effort: never raises."""
        keys = SessionKeys.of(session_id)
        try:
            with self.client.pipeline(transaction=False) as pipe:
                for event in events:
                    fields: dict[EncodableT, EncodableT] = {"e": event.encode()}
                    pipe.xadd(
                        keys.events, fields, maxlen=self.settings.events_max, approximate=True
                    )
                pipe.expire(keys.events, self.settings.events_ttl_seconds)
                pipe.execute()
        except redis.RedisError:
            return


_LOOK_MS = 2_000
"""How long a session taken from an index is left to its taker."""


def _guard_of(event: Input, state: SessionState) -> tuple[str, str]:
    """Return the claim that a report rests on, for the commit to check once more (see `advance`).

    The version alone would do, unless the store lost its last second and counted it anew.
    """
    if isinstance(event, StepReport):
        step = state.step(event.step_id)
        if step is not None and step.timing.token == event.token:
            return step_field(step.id), str(event.token)
    return "", ""


def _is_late(event: ToolEnded, state: SessionState) -> bool:
    step = state.step(event.step_id)
    return step is None or step.timing.token != event.token


def _claimed(step_id: str, parts: Sequence[object]) -> Claim:
    loaded = loaded_from(cast("int", parts[1]), cast("list[bytes]", parts[3]))
    step = loaded.state.step(step_id)
    if step is None:
        raise CeleriacError(f"Step {step_id} has a timing but is not in the state.")
    request = cast("bytes | None", parts[4])
    return Claim(
        loaded=loaded,
        step=step,
        token=int(cast("bytes", parts[2])),
        request=read_record(CallRequest, request) if request else None,
        messages=active_context(
            [read_record(Message, raw) for raw in cast("list[bytes]", parts[5])]
        ),
    )
