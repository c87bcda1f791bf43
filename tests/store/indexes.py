"""The partitions' indexes must say the same as the sessions themselves (invariant 2)."""

from __future__ import annotations

import re
from collections import Counter
from typing import cast

import redis

from celeriac.sessions.calls import CallStatus
from celeriac.sessions.state import SessionState
from celeriac.sessions.store.keys import SessionKeys, partition_of
from celeriac.sessions.store.loaded import loaded_from

Entry = tuple[str, str, float]
"""Key, member, score."""


def check_indexes(client: redis.Redis, *, wake_scores: bool = True) -> None:
    """Compare every index entry with the sessions.

    Args:
        client: The store.
        wake_scores: Whether the wake entries must also be at their exact times; not so for a moment
            after somebody has taken a session to look at it.
    """
    expected = Counter(
        entry
        for state in stored_sessions(client)
        for entry in [*_expected(state, wake_scores), *_packing(client, state, wake_scores)]
    )
    found = Counter(_found(client, wake_scores))
    assert found == expected, f"missing {expected - found}, in vain {found - expected}"


def stored_sessions(client: redis.Redis) -> list[SessionState]:
    names = [
        name
        for name in client.scan_iter(count=1000)
        if re.fullmatch(rb"celeriac:\{\d+\}:s:[^:]+", name)
    ]
    states = []
    for name in names:
        table = cast("dict[bytes, bytes]", client.hgetall(name))
        fields = [part for item in table.items() for part in item]
        states.append(loaded_from(0, fields).state)
        assert name.decode() == (
            f"celeriac:{{{partition_of(states[-1].session_id)}}}:s:{states[-1].session_id}"
        )
    return states


def _expected(state: SessionState, wake_scores: bool) -> list[Entry]:
    sid = state.session_id
    base = f"celeriac:{{{partition_of(sid)}}}:"
    entries = [(f"{base}index:{state.status.value}", sid, float(state.updated_at))]
    if state.busy:
        at = float("inf") if state.wake_at is None else float(state.wake_at)
        entries.append((base + "wake", sid, at if wake_scores else 0.0))
    if state.turn is not None:
        entries += [
            (base + "approvals", f"{sid}:{call.id}", 0.0)
            for call in state.turn.calls
            if call.status is CallStatus.AWAITING_APPROVAL
        ]
    entries += [(base + "unknown", f"{sid}:{call.id}", 0.0) for call in state.unknown]
    return entries


def _packing(client: redis.Redis, state: SessionState, wake_scores: bool) -> list[Entry]:
    """An idle session is in the pack index exactly until what its turns left behind is packed."""
    keys = SessionKeys.of(state.session_id)
    settled = {
        name.removesuffix(b":o").decode()
        for name in cast("list[bytes]", client.hkeys(keys.calls))
        if name.endswith(b":o")
    }
    left = settled - {call.id for call in state.unknown}
    if state.busy or state.turns == 0 or not (left or client.exists(keys.steps)):
        return []
    at = state.updated_at + 60_000.0
    return [(keys.partition.pack, state.session_id, at if wake_scores else 0.0)]


def _found(client: redis.Redis, wake_scores: bool) -> list[Entry]:
    entries = []
    for name in client.scan_iter("celeriac:{*}:*", count=1000, _type="zset"):
        kind = name.decode().rpartition(":")[2]
        exact = wake_scores if kind in {"wake", "pack"} else kind not in {"approvals", "unknown"}
        for member, score in cast(
            "list[tuple[bytes, float]]", client.zrange(name, 0, -1, withscores=True)
        ):
            entries.append((name.decode(), member.decode(), score if exact else 0.0))
    return entries
