"""Event streams as they are served: gunicorn with two processes, a real store, raw sockets."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import redis

from celeriac.sessions.client import SessionClient
from celeriac.sessions.settings import Settings
from celeriac.sessions.store.connection import connect
from celeriac.sessions.store.embedded import EmbeddedStore
from celeriac.sessions.store.sessions import SessionStore
from celeriac.web.keys import load_web_key
from celeriac.web.serve import command
from tests.store.dispatcher import RecordingDispatcher
from tests.store.driving import new_session
from tests.store.test_events import delta
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
THREADS = 16
CAP = 8


@dataclass
class Product:
    """A running web over a store of its own."""

    settings: Settings
    store: SessionStore
    embedded: EmbeddedStore
    process: subprocess.Popen[bytes]

    @property
    def client(self) -> SessionClient:
        return SessionClient(self.store, self.settings)

    def get(self, path: str, sid: str) -> httpx.Response:
        address = f"http://127.0.0.1:{self.settings.port}/api/sessions/{sid}{path}"
        token = load_web_key(self.settings).session_token(sid)
        return httpx.get(address, headers={"X-Agent-Session-Token": token}, timeout=20)

    def token(self, sid: str) -> str:
        position = self.client.snapshot(sid).resume_token
        return load_web_key(self.settings).resume_token(sid, position)

    def say(self, sid: str, *texts: str) -> None:
        for text in texts:
            self.store.publish(sid, [delta(text)])

    def open(self, sid: str, resume_token: str, buffer: int | None = None) -> Stream:
        return Stream(self, sid, resume_token, buffer)


class Stream:
    """A stream read from a raw socket, byte for byte."""

    def __init__(self, product: Product, sid: str, token: str, buffer: int | None) -> None:
        self.received = b""
        self._socket = socket.socket()
        if buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self._socket.settimeout(20)
        self._socket.connect(("127.0.0.1", product.settings.port))
        access = load_web_key(product.settings).session_token(sid)
        # HTTP/1.0: no chunks, so that each byte is one of the stream.
        self._socket.sendall(
            f"GET /api/sessions/{sid}/events HTTP/1.0\r\nHost: 127.0.0.1\r\n"
            f"X-Agent-Session-Token: {access}\r\nLast-Event-ID: {token}\r\n\r\n".encode()
        )

    @property
    def body(self) -> bytes:
        return self.received.partition(b"\r\n\r\n")[2]

    @property
    def status(self) -> int:
        return int(self.received.split(b" ", 2)[1])

    def read(self) -> bytes:
        piece = self._socket.recv(65536)
        self.received += piece
        return piece

    def until(self, wanted: bytes) -> Stream:
        while wanted not in self.received:
            assert self.read(), f"ended before {wanted!r}: {self.received[-500:]!r}"
        return self

    def to_the_end_of_the_event(self) -> Stream:
        while not self.body.endswith(b"\n\n"):
            assert self.read()
        return self

    def to_the_end(self) -> Stream:
        while self.read():
            pass
        self.close()
        return self

    def close(self) -> None:
        self._socket.close()


def taken(body: bytes, token: str) -> tuple[list[str], str]:
    """What an EventSource has of a stream that was cut: the texts of whole events, and the last id."""
    texts = []
    *whole, _ = body.split(b"\n\n")
    for block in whole:
        fields = dict(line.split(": ", 1) for line in block.decode().split("\n"))
        token = fields.get("id", token)
        if "event" in fields:
            texts.append(json.loads(fields["data"])["text"])
    return texts, token


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    with EmbeddedStore(tmp_path / "store", appendfsync="always") as embedded:
        settings = Settings(redis_url=embedded.url, port=_free_port(), data_dir=tmp_path)
        load_web_key(settings)
        given = {key: value for key, value in os.environ.items() if not key.startswith("CELERIAC_")}
        environment = {
            **given,
            "CELERIAC_REDIS_URL": embedded.url,
            "CELERIAC_PORT": str(settings.port),
            "CELERIAC_DATA_DIR": str(tmp_path),
            "CELERIAC_WEB_PROCESSES": "2",
            "CELERIAC_WEB_THREADS": str(THREADS),
        }
        with (tmp_path / "web.log").open("wb") as log:
            process = subprocess.Popen(
                command(settings), cwd=ROOT, env=environment, stdout=log, stderr=log
            )
        store = SessionStore(connect(embedded.url), RecordingDispatcher(), settings)
        try:
            with httpx.Client(transport=httpx.HTTPTransport(retries=8)) as probe:
                probe.get(f"http://127.0.0.1:{settings.port}/healthz", timeout=30)
            yield Product(settings, store, embedded, process)
        finally:
            store.client.close()
            if process.poll() is None:
                process.kill()
            process.wait()


def test_ss_02_a_cut_at_any_byte_loses_and_repeats_nothing(product: Product) -> None:
    sid = new_session(product.store, None)
    start = product.token(sid)
    said = [f"{number} é☃\n" * (number % 3 + 1) for number in range(9)]
    product.say(sid, *said)
    whole = product.open(sid, start).until(b'"8 ')
    whole.to_the_end_of_the_event().close()
    texts, _ = taken(whole.body, start)
    assert texts == said
    body = whole.body
    assert texts == said or texts == said[: len(texts)]
    # Resuming needs a request, so the server is asked once for each id that a cut can leave, and every
    # byte position is held against what it then sent.
    rest: dict[str, list[str]] = {}
    for cut in range(len(body) + 1):
        before, token = taken(body[:cut], start)
        if token not in rest:
            after = said[len(before) :]
            stream = product.open(sid, token)
            stream.until(b"\n\n")
            while len(found := taken(stream.body, token)[0]) < len(after):
                assert stream.read()
            stream.close()
            rest[token] = found
        assert before + rest[token] == said, f"cut at byte {cut}"
    assert len(rest) == len(texts) + 1


def test_ss_02_cuts_while_events_are_written(product: Product) -> None:
    sid = new_session(product.store, None)
    token = product.token(sid)
    rng = random.Random(7)
    said = [f"text {number}" for number in range(120)]
    heard: list[str] = []
    told = 0
    while len(heard) < len(said):
        stream = product.open(sid, token)
        stream.until(b"\n\n")
        more = rng.randrange(1, 12)
        product.say(sid, *said[told : told + more])
        told = min(len(said), told + more)
        wanted = len(stream.body) + rng.randrange(1, 900)
        while len(stream.body) < wanted and len(heard) + len(taken(stream.body, token)[0]) < told:
            assert stream.read()
        stream.close()
        # Cut anywhere in what arrived.
        got, token = taken(stream.body[:wanted], token)
        heard += got
    assert heard == said


def test_both_processes_tell_every_stream(product: Product) -> None:
    sids = [new_session(product.store, None) for _ in range(4)]
    streams = [product.open(sid, product.token(sid)).until(b"\n\n") for sid in sids * 2]
    for sid in sids:
        product.say(sid, f"for {sid}")
    for sid, stream in zip(sids * 2, streams, strict=True):
        stream.until(f"for {sid}".encode())
        assert len(taken(stream.body, "")[0]) == 1
        stream.close()


def test_a_process_holds_one_blocked_connection_however_many_streams(product: Product) -> None:
    sids = [new_session(product.store, None) for _ in range(6)]
    streams = [product.open(sid, product.token(sid)).until(b"\n\n") for sid in sids]
    info: redis.Redis = product.store.client
    wait_until(lambda: 1 <= int(info.info("clients")["blocked_clients"]) <= 2, "the hubs wait")
    assert len(info.client_list()) < 2 * len(sids)
    for stream in streams:
        stream.close()


def test_a_reader_that_does_not_read_holds_nobody(product: Product) -> None:
    sid = new_session(product.store, None)
    start = product.token(sid)
    slow = product.open(sid, start, buffer=4096)
    quick = product.open(sid, start).until(b"\n\n")
    big = [f"{number}:" + "x" * 50_000 for number in range(30)]
    for number, text in enumerate(big):
        product.say(sid, text)
        quick.until(f'"{number}:'.encode())
    slow.until(b'"29:')  # what waited for it is still there
    slow.to_the_end_of_the_event()
    assert taken(slow.body, start)[0] == big
    slow.close()
    quick.close()


def test_ss_02_a_store_that_restarts_loses_nothing(product: Product) -> None:
    sid = new_session(product.store, None)
    start = product.token(sid)
    stream = product.open(sid, start)
    product.say(sid, "before")
    stream.until(b'"before"')
    os.kill(product.embedded.pid or 0, signal.SIGKILL)
    stream.to_the_end()
    texts, token = taken(stream.body, start)
    product.embedded.start()
    product.say(sid, "after")
    wait_until(lambda: product.get("", sid).status_code == 200, "the web has found the store again")
    again = product.open(sid, token).until(b'"after"')
    again.to_the_end_of_the_event().close()
    assert texts + taken(again.body, token)[0] == ["before", "after"]


def test_ss_06_more_streams_than_places_hold_no_other_request(product: Product) -> None:
    sids = [new_session(product.store, None) for _ in range(5)]
    tokens = {sid: product.token(sid) for sid in sids}
    wanted = 2 * THREADS + 4
    streams = [product.open(sid, tokens[sid]) for sid in (sids * wanted)[:wanted]]
    for stream in streams:
        stream.until(b"\r\n\r\n")
    refused = [stream for stream in streams if stream.status == 503]
    served = [stream for stream in streams if stream.status == 200]
    assert len(served) <= 2 * CAP
    assert len(refused) + len(served) == wanted
    for stream in refused:
        assert re.search(rb"Retry-After: \d+", stream.received)
        assert b'"streams_full"' in stream.to_the_end().body
    for stream in streams[::2]:
        stream.close()
    assert [product.get("", sid).status_code for sid in sids] == [200] * len(sids)
    # A dead reader is noticed when something is written to it.
    for _ in range(2):
        for sid in sids:
            product.say(sid, "is anybody there?")

    def is_free() -> bool:
        stream = product.open(sids[0], tokens[sids[0]]).until(b"\r\n\r\n")
        stream.close()
        return stream.status == 200

    wait_until(is_free, "a place is free again", timeout_seconds=30)
    for stream in streams:
        stream.close()


def test_a_stop_ends_streams_and_the_server_soon(product: Product) -> None:
    sids = [new_session(product.store, None) for _ in range(6)]
    streams = [product.open(sid, product.token(sid)).until(b"\n\n") for sid in sids]
    product.process.send_signal(signal.SIGTERM)
    for stream in streams:
        stream.to_the_end()
    assert product.process.wait(timeout=15) == 0
