"""Part 6: event streams held by one web process, and what other requests notice of them."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.machinery import Bench, Row, bench, ms, percentile
from celeriac.sessions.events import EventType, LiveEvent
from celeriac.sessions.ids import new_session_id
from celeriac.sessions.settings import Settings
from celeriac.sessions.store.sessions import SessionStore
from celeriac.tasks.dispatch import open_store
from celeriac.web.keys import load_web_key
from celeriac.web.serve import command

__all__ = ["measure"]

_STREAMS = 900
_OTHERS_TARGET = 0.050
_STOP_TARGET = 2.0
_TOLD = 40
_OPENING = 50


@dataclass
class _Stream:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    heard_at: list[float] = field(default_factory=list)


def measure(*, scale: float) -> list[Row]:
    """Measure one gthread process.

    Args:
        scale: How many of the streams to open.
    """
    with bench("everysec") as place:
        return _measure(place, scale)


def _measure(place: Bench, scale: float) -> list[Row]:
    count = max(50, round(_STREAMS * scale))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Inherited by the server: both ends need a descriptor for each stream.
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8 * _STREAMS), most))
    settings = Settings(
        redis_url=place.url,
        port=_free_port(),
        data_dir=place.directory,
        web_processes=1,
        web_threads=count + 50,
    )
    environment = {
        **os.environ,
        "CELERIAC_REDIS_URL": place.url,
        "CELERIAC_PORT": str(settings.port),
        "CELERIAC_DATA_DIR": str(place.directory),
        "CELERIAC_WEB_PROCESSES": "1",
        "CELERIAC_WEB_THREADS": str(settings.web_threads),
    }
    store = open_store(settings)
    session_ids = [new_session_id() for _ in range(count)]
    for session_id in session_ids:
        store.create(session_id, "bench", "bench", None, {})
    with (place.directory / "web.log").open("wb") as log:
        server = subprocess.Popen(command(settings), env=environment, stdout=log, stderr=log)
    try:
        return asyncio.run(_rows(settings, store, session_ids, server))
    finally:
        server.kill()
        server.wait()


async def _rows(
    settings: Settings,
    store: SessionStore,
    session_ids: Sequence[str],
    server: subprocess.Popen[bytes],
) -> list[Row]:
    await _until_up(settings.port)
    streams = []
    for start in range(0, len(session_ids), _OPENING):
        some = session_ids[start : start + _OPENING]
        streams += await asyncio.gather(*(_open(settings, one) for one in some))
    quiet = await _others(settings, session_ids[0])
    listening = [asyncio.create_task(_listen(stream)) for stream in streams]
    telling = asyncio.create_task(asyncio.to_thread(_tell, store, session_ids))
    busy = await _others(settings, session_ids[0])
    told_at = await telling
    await _all_heard([streams[number] for number in range(_TOLD)])
    delivery = [streams[number].heard_at[0] - told for number, told in enumerate(told_at)]
    connections = len(store.client.client_list())
    memory = _memory(server.pid)
    began = time.monotonic()
    server.send_signal(signal.SIGTERM)
    await asyncio.gather(*listening)
    await asyncio.to_thread(server.wait, 30)
    stop = time.monotonic() - began
    return [
        Row("streams held", str(len(streams)), str(len(session_ids)), reached=True),
        _others_row("other requests, streams quiet, p99", quiet),
        _others_row("other requests, events flowing, p99", busy),
        Row("an event reaches its stream, p50", ms(percentile(delivery, 0.5))),
        Row("an event reaches its stream, p99", ms(percentile(delivery, 0.99))),
        Row("connections to the store, ours included", str(connections)),
        Row("memory of the process", f"{memory // 1024} MB"),
        Row("SIGTERM to the end", ms(stop), ms(_STOP_TARGET), stop < _STOP_TARGET),
    ]


def _others_row(name: str, seconds: Sequence[float]) -> Row:
    worst = percentile(seconds, 0.99)
    note = f"p50 {ms(percentile(seconds, 0.5))}"
    return Row(name, ms(worst), ms(_OTHERS_TARGET), worst < _OTHERS_TARGET, note)


async def _until_up(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionError:
            await asyncio.sleep(0.05)
            continue
        writer.close()
        return
    raise TimeoutError("the web does not listen")


async def _request(settings: Settings, path: str, session_id: str) -> _Stream:
    reader, writer = await asyncio.open_connection("127.0.0.1", settings.port, limit=2**20)
    token = load_web_key(settings).session_token(session_id)
    request = f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nX-Agent-Session-Token: {token}\r\n\r\n"
    writer.write(request.encode())
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head.splitlines()[0]:
        raise RuntimeError(f"{path} was answered with {head.splitlines()[0]!r}")
    return _Stream(reader, writer)


async def _open(settings: Settings, session_id: str) -> _Stream:
    stream = await _request(settings, f"/api/sessions/{session_id}/events", session_id)
    await stream.reader.readuntil(b"\n\n")
    return stream


async def _listen(stream: _Stream) -> None:
    while line := await stream.reader.readline():
        if line.startswith(b"data: "):
            stream.heard_at.append(time.monotonic())
    stream.writer.close()


async def _others(settings: Settings, session_id: str) -> list[float]:
    took = []
    for _ in range(100):
        began = time.monotonic()
        answer = await _request(settings, f"/api/sessions/{session_id}", session_id)
        await answer.reader.read()
        took.append(time.monotonic() - began)
        answer.writer.close()
    return took


def _tell(store: SessionStore, session_ids: Sequence[str]) -> list[float]:
    """Publish one event each to the first sessions, and to all others between them."""
    told = []
    share = max(1, len(session_ids) // _TOLD)
    event = LiveEvent(EventType.TEXT_DELTA, {"step_id": "s1", "attempt": 1, "text": "word " * 10})
    for number in range(_TOLD):
        told.append(time.monotonic())
        store.publish(session_ids[number], [event])
        for other in session_ids[_TOLD + number * share : _TOLD + (number + 1) * share]:
            store.publish(other, [event])
    return told


async def _all_heard(streams: Sequence[_Stream]) -> None:
    deadline = time.monotonic() + 20
    while not all(stream.heard_at for stream in streams):
        if time.monotonic() > deadline:
            raise TimeoutError("an event did not arrive")
        await asyncio.sleep(0.01)


def _memory(pid: int) -> int:
    """Return the resident kibibytes of a server's worker."""
    child = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    status = Path(f"/proc/{child}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
