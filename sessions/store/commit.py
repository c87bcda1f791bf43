"""What one change writes: its messages, records, events, indexes and wake-up, as a list of commands."""

from __future__ import annotations

from collections.abc import Mapping

from celeriac.sessions.codec import write_images, write_record, write_state, write_timing
from celeriac.sessions.draft import Change
from celeriac.sessions.rates import counted
from celeriac.sessions.settings import Settings
from celeriac.sessions.state import SessionState, StepName
from celeriac.sessions.store.keys import (
    SessionKeys,
    call_fields,
    queue_fields,
    rate_place,
    step_field,
)
from celeriac.sessions.store.scripts import Argument

__all__ = ["Writes", "commit_writes"]

_TRIM_EVERY = 64
"""The step history is trimmed at every so many steps, so that it costs nothing in between."""

_RATES_SECONDS = 3 * 3600
"""So long after its first count an hour's counts are forgotten; they are read for two hours."""

_MOST_ARGUMENTS = 4_000
"""Lua cannot pass on 8,000 values at once, and a script that fails midway has written half. Only commands
that take any number of values, or of pairs, ever have so many."""


class Writes:
    """A list of commands for the commit script, each with its key as an index into `keys`."""

    def __init__(self, *first_keys: str) -> None:
        self.keys: list[str] = list(first_keys)
        self.arguments: list[Argument] = []
        self.kept = 0
        """Bytes that the session takes more by what was given to `keep`; packing counts exactly."""

    def keep(self, command: str, key: str, *texts: str | bytes) -> None:
        """Append a command that adds something to what the session keeps."""
        self.kept += sum(len(text.encode() if isinstance(text, str) else text) for text in texts)
        self.add(command, key, *texts)

    def add(self, command: str, key: str, *arguments: Argument) -> None:
        """Append one command; one with very many values becomes several."""
        try:
            index = self.keys.index(key) + 1
        except ValueError:
            self.keys.append(key)
            index = len(self.keys)
        if len(arguments) <= _MOST_ARGUMENTS:
            self.arguments += (len(arguments), command, index, *arguments)
            return
        for begin in range(0, len(arguments), _MOST_ARGUMENTS):
            part = arguments[begin : begin + _MOST_ARGUMENTS]
            self.arguments += (len(part), command, index, *part)


def commit_writes(
    before: SessionState | None,
    change: Change,
    settings: Settings,
    images: Mapping[str, bytes] | None = None,
) -> Writes:
    """List everything that one change stores.

    Args:
        before: The state that it replaces; None for a new session.
        change: The change, with all texts filled in.
        settings: Sizes and times.
        images: Bytes of the images that its messages bring, by id.

    Returns:
        The commands, the session hash being the first key.
    """
    keys = SessionKeys.of(change.state.session_id)
    writes = Writes(keys.session)
    _write_state(writes, keys, before, change.state)
    _write_conversation(writes, keys, change)
    for image_id, data in (images or {}).items():
        writes.keep("HSET", keys.images, image_id, data)
    if change.snapshot is not None:
        # It replaces another, so it is not counted here: it has a limit of its own.
        values = [change.snapshot] if change.snapshot else []
        writes.add("SET" if values else "DEL", keys.harness, *values)
    _write_records(writes, keys, change)
    _write_history(writes, keys, before, change, settings)
    _write_rates(writes, keys, change)
    if writes.kept:
        writes.add("HINCRBY", keys.session, "bytes", writes.kept)
    _write_events(writes, keys, change, settings)
    _write_indexes(writes, keys, before, change, settings)
    return writes


def _write_state(
    writes: Writes, keys: SessionKeys, before: SessionState | None, state: SessionState
) -> None:
    fields: list[Argument] = ["state", write_state(state)]
    if before is None:
        fields += ["fence", 0]
    if before is None or before.context_from != state.context_from:
        fields += ["context_from", state.context_from]
    old = {step.id: step for step in before.steps} if before else {}
    for step in state.steps:
        known = old.pop(step.id, None)
        if known is None or (known.timing is not step.timing and known.timing != step.timing):
            fields += [step_field(step.id), write_timing(step.timing)]
    writes.add("HSET", keys.session, *fields)
    if old:
        writes.add("HDEL", keys.session, *(step_field(step_id) for step_id in old))


def _write_conversation(writes: Writes, keys: SessionKeys, change: Change) -> None:
    if change.messages:
        writes.keep("RPUSH", keys.log, *(write_record(new.message) for new in change.messages))
    waiting: list[str] = []
    for message_id, text in change.queue_texts.items():
        if message_id not in change.queue_dropped:
            waiting += [message_id, text]
            if images := change.queue_images.get(message_id):
                waiting += [queue_fields(message_id)[1], write_images(images)]
    if waiting:
        writes.keep("HSET", keys.queue, *waiting)
    if change.queue_dropped:
        fields = [field for one in change.queue_dropped for field in queue_fields(one)]
        writes.add("HDEL", keys.queue, *fields)
    if change.message_ids:
        writes.keep("SADD", keys.ids, *change.message_ids)


def _write_records(writes: Writes, keys: SessionKeys, change: Change) -> None:
    records: list[str] = []
    for request in change.requests:
        records += [call_fields(request.id)[0], write_record(request)]
    for call_id, outcome in change.outcomes.items():
        records += [call_fields(call_id)[1], write_record(outcome)]
    for call_id, late in change.late_results.items():
        records += [call_fields(call_id)[2], write_record(late)]
    if records:
        writes.keep("HSET", keys.calls, *records)


def _write_history(
    writes: Writes,
    keys: SessionKeys,
    before: SessionState | None,
    change: Change,
    settings: Settings,
) -> None:
    if change.history:
        writes.keep("RPUSH", keys.steps, *(write_record(entry) for entry in change.history))
    earlier = before.steps_made if before else 0
    if earlier // _TRIM_EVERY != change.state.steps_made // _TRIM_EVERY:
        writes.add("LTRIM", keys.steps, -settings.history_max_steps, -1)


def _write_rates(writes: Writes, keys: SessionKeys, change: Change) -> None:
    for (minute, work, outcome), count in counted(change.history, change.state).items():
        hour, field = rate_place(minute, work, outcome)
        key = keys.partition.rates(hour)
        writes.add("HINCRBY", key, field, count)
        # Only the first one of an hour sets it, so it is not in the append-only file every time.
        writes.add("EXPIRE", key, _RATES_SECONDS, "NX")


def _write_events(writes: Writes, keys: SessionKeys, change: Change, settings: Settings) -> None:
    for event in change.events:
        writes.add(
            "XADD", keys.events, "MAXLEN", "~", settings.events_max, "*", "e", event.encode()
        )
    if change.events:
        writes.add("EXPIRE", keys.events, settings.events_ttl_seconds)


def _write_indexes(
    writes: Writes,
    keys: SessionKeys,
    before: SessionState | None,
    change: Change,
    settings: Settings,
) -> None:
    state = change.state
    partition = keys.partition
    sid = state.session_id
    if state.busy:
        wake_at = state.wake_at
        writes.add("ZADD", partition.wake, "+inf" if wake_at is None else wake_at, sid)
        if before is not None and not before.busy:
            writes.add("ZREM", partition.pack, sid)
    elif before is not None and (before.busy or change.outcomes):
        pack_at = state.updated_at + int(settings.pack_after_seconds * 1000)
        writes.add("ZREM", partition.wake, sid)
        writes.add("ZADD", partition.pack, pack_at, sid)
    if before is None or before.status is not state.status or before.updated_at != state.updated_at:
        if before is not None and before.status is not state.status:
            writes.add("ZREM", partition.status(before.status), sid)
        writes.add("ZADD", partition.status(state.status), state.updated_at, sid)
    _index_calls(writes, partition.approvals, sid, _waiting(before), _waiting(state))
    _index_calls(writes, partition.unknown, sid, _unknown(before, change), _unknown(state, change))


def _index_calls(
    writes: Writes, key: str, session_id: str, old: Mapping[str, int], new: Mapping[str, int]
) -> None:
    gone = [f"{session_id}:{call_id}" for call_id in old if call_id not in new]
    if gone:
        writes.add("ZREM", key, *gone)
    for call_id, since in new.items():
        if call_id not in old:
            writes.add("ZADD", key, since, f"{session_id}:{call_id}")


def _waiting(state: SessionState | None) -> dict[str, int]:
    """Return the calls that wait for a decision, each with the time since when."""
    return {
        step.call_id: step.created_at
        for step in (state.steps if state else ())
        if step.name is StepName.AWAIT_TOOL_APPROVAL and step.call_id is not None
    }


def _unknown(state: SessionState | None, change: Change) -> dict[str, int]:
    """Return the calls with an unknown outcome, the new ones with the time since when."""
    settled = {call_id: outcome.settled_at for call_id, outcome in change.outcomes.items()}
    return {entry.id: settled.get(entry.id, 0) for entry in (state.unknown if state else ())}
