"""Part 3: what people's waits cost: an approval over HTTP, and very many approvals that nobody gives."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

import redis

from benchmarks.bench_agent import Order
from benchmarks.machinery import Row, cpu_seconds, ms, percentile, stop
from benchmarks.sessions import Sessions, wait_for
from celeriac.sessions.ids import new_session_id
from celeriac.sessions.state import SessionStatus
from celeriac.sessions.store.keys import PARTITIONS, PartitionKeys, SessionKeys

__all__ = ["http_rows", "waiting_rows"]

_GUARDED: Order = {"guarded": True}
_WATCH_SECONDS = 10.0


def http_rows(sessions: Sessions, *, count: int) -> list[Row]:
    """Approve over real HTTP: from the request to the moment the tool is entered.

    Args:
        sessions: The sessions under test.
        count: How often.
    """
    sent: list[tuple[str, float]] = []
    with _web(sessions) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for _ in range(count):
            created = _post(
                connection, "/api/sessions", {"agent": "bench", "message": json.dumps(_GUARDED)}
            )
            session_id = str(created["session_id"])
            sessions.until(session_id, SessionStatus.WAITING)
            [call] = sessions.client.snapshot(session_id).calls
            sent.append((session_id, time.monotonic()))
            _post(
                connection,
                f"/api/sessions/{session_id}/calls/{call.id}/decision",
                {"decision": "approve", "digest": call.digest},
                token=str(created["session_token"]),
            )
            sessions.place.bell.wait(1)
        connection.close()
    marks = sessions.marks([session_id for session_id, _ in sent])
    waits = [
        next(one.at for one in found if one.kind == "tool") - at
        for (_, at), found in zip(sent, marks, strict=True)
    ]
    p50 = percentile(waits, 0.5)
    return [
        Row("approve over HTTP to tool start, p50", ms(p50), "≤ 5.00 ms", p50 <= 0.005),
        Row("approve over HTTP to tool start, p99", ms(percentile(waits, 0.99))),
    ]


def _post(
    connection: http.client.HTTPConnection,
    path: str,
    body: Mapping[str, str | None],
    *,
    token: str | None = None,
) -> dict[str, object]:
    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["X-Agent-Session-Token"] = token
    connection.request("POST", path, json.dumps(body), headers)
    answer = connection.getresponse()
    raw = answer.read()
    if answer.status >= 300:
        raise RuntimeError(f"{path} answered {answer.status}: {raw.decode()}")
    return cast("dict[str, object]", json.loads(raw))


@contextmanager
def _web(sessions: Sessions) -> Iterator[int]:
    """Run the web server for the time of the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    environment = {
        **os.environ,
        **sessions.environment,
        "CELERIAC_PORT": str(port),
        "CELERIAC_LIMIT_SESSIONS_PER_MINUTE": "0",
        "CELERIAC_SESSION_KEY": "benchmarks-have-nothing-to-hide-here",
    }
    log = (sessions.place.directory / "web.log").open("ab")
    process = subprocess.Popen(
        [sys.executable, "-m", "celeriac.web.serve"],
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT,
    )

    def answers() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return True

    try:
        wait_for(answers)
        yield port
    finally:
        stop(process)
        log.close()


# --- very many


def waiting_rows(sessions: Sessions, *, count: int) -> list[Row]:
    """Let very many sessions wait for an approval, and see what that costs.

    Args:
        sessions: The sessions under test.
        count: How many. A hundredth of them get there by themselves, the others are copies in the store.
    """
    with redis.Redis.from_url(sessions.place.url) as client:
        # What other rows left is packed a minute later: that must not count as the cost of waiting.
        wait_for(lambda: not _to_pack(client), seconds=180)
    idle = _cpu_shares(sessions)
    real = max(20, count // 100)
    started = time.monotonic()
    names = [sessions.start(_GUARDED) for _ in range(real)]
    for name in names:
        sessions.until(name, SessionStatus.WAITING)
    rate = real / (time.monotonic() - started)
    with redis.Redis.from_url(sessions.place.url) as client:
        _copy(client, names[0], count - real)
        # The copies themselves make work: the store rewrites its log, and grows its tables in passing.
        wait_for(lambda: _is_calm(client))
    shares = _cpu_shares(sessions)
    pages = []
    for _ in range(20):
        begun = time.monotonic()
        sessions.client.approvals(limit=50)
        pages.append(time.monotonic() - begun)
    more = max(0.0, sum(shares) - sum(idle))
    return [
        Row("sessions that come to wait for approval", f"{rate:,.0f} a second"),
        Row(
            f"{count:,} waiting approvals, both workers",
            f"{sum(shares):.2%} of a core",
            "< 1 % more than none",
            more < 0.01,
            f"{_in_words(shares)}; with none waiting: {_in_words(idle)}",
        ),
        Row(f"first page of the inbox, {count:,} waiting", ms(percentile(pages, 0.5))),
    ]


def _cpu_shares(sessions: Sessions) -> list[float]:
    """Return how much of a core each worker, and last the store, uses while nothing happens."""
    before = [cpu_seconds([pid]) for pid in sessions.processes]
    begun = time.monotonic()
    wait_for(lambda: time.monotonic() - begun >= _WATCH_SECONDS)
    seconds = time.monotonic() - begun
    after = [cpu_seconds([pid]) for pid in sessions.processes]
    return [(then - now) / seconds for now, then in zip(before, after, strict=True)]


def _in_words(shares: Sequence[float]) -> str:
    *workers, store = shares
    return f"workers {' and '.join(f'{one:.2%}' for one in workers)}, store {store:.2%}"


def _to_pack(client: redis.Redis) -> int:
    """Return how many idle sessions are still to be packed."""
    with client.pipeline(transaction=False) as pipe:
        for number in range(PARTITIONS):
            pipe.zcard(PartitionKeys(number).pack)
        return sum(cast("list[int]", pipe.execute()))


def _is_calm(client: redis.Redis) -> bool:
    told = cast("dict[str, int]", client.info("persistence"))
    return not (told["aof_rewrite_in_progress"] or told["aof_pending_bio_fsync"])


def _copy(client: redis.Redis, session_id: str, count: int) -> None:
    """Copy a waiting session, with its entries in the indexes."""
    keys = SessionKeys.of(session_id)
    partition = keys.partition
    indexes = (partition.wake, partition.approvals, partition.status(SessionStatus.WAITING))
    dumps = {name: client.dump(getattr(keys, name)) for name in ("log", "calls", "steps", "ids")}
    fields = cast("dict[bytes, bytes]", client.hgetall(keys.session))
    entries = [_entries(client, index, session_id) for index in indexes]
    for begin in range(0, count, 1000):
        with client.pipeline(transaction=False) as pipe:
            for _ in range(min(1000, count - begin)):
                new_id = new_session_id()
                new = SessionKeys.of(new_id)
                old, fresh = session_id.encode(), new_id.encode()
                pipe.hset(
                    new.session,
                    mapping={name: value.replace(old, fresh) for name, value in fields.items()},
                )
                for name, dump in dumps.items():
                    if dump is not None:
                        pipe.restore(getattr(new, name), 0, dump)
                there = (
                    new.partition.wake,
                    new.partition.approvals,
                    new.partition.status(SessionStatus.WAITING),
                )
                for index, members in zip(there, entries, strict=True):
                    for member, score in members.items():
                        pipe.zadd(index, {member.replace(session_id, new_id): score})
            pipe.execute()


def _entries(client: redis.Redis, index: str, session_id: str) -> dict[str, float]:
    found = cast("list[tuple[bytes, float]]", client.zrange(index, 0, -1, withscores=True))
    return {
        member.decode(): score for member, score in found if member.startswith(session_id.encode())
    }
