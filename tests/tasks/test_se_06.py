"""SE-06: a session's token is in the answer that issued it, and nowhere else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import cast

import httpx
import pytest
import redis

from tests.tasks.cluster import PATIENCE, Cluster

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("se-06")]

_SESSION_KEY = "a key that only the processes of this test know"
_READS = {
    "string": ("GET",),
    "list": ("LRANGE", "0", "-1"),
    "set": ("SMEMBERS",),
    "zset": ("ZRANGE", "0", "-1"),
    "hash": ("HGETALL",),
    "stream": ("XRANGE", "-", "+"),
}


def everything_in(client: redis.Redis) -> Iterator[str]:
    """Every key and what is in it: sessions, events, indexes, and Celery's messages with their headers."""
    for key in client.scan_iter(count=1000):
        command, *arguments = _READS[cast("bytes", client.type(key)).decode()]
        yield f"{key!r} {client.execute_command(command, key, *arguments)!r}"  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_se_06_the_token_is_in_no_log_page_key_or_message(
    cluster: Cluster, log_format: str
) -> None:
    cluster.restore(0)
    env = {
        "CELERIAC_SESSION_KEY": _SESSION_KEY,
        "CELERIAC_LOG_FORMAT": log_format,
        "CELERIAC_LOG_LEVEL": "DEBUG",
    }
    cluster.env["CELERIAC_OPERATORS"] = f"ana:operator:{hashlib.sha256(b'ana').hexdigest()}"
    cluster.env.update(env)
    worker = cluster.start_worker("--loglevel", "DEBUG")
    web, base = cluster.start_web()
    with httpx.Client(base_url=base, timeout=PATIENCE) as client:
        ana = {"Authorization": "Bearer ana"}
        issued = client.post("/api/sessions", json={"message": "/tool look {}"}, headers=ana).json()
        token, sid = issued["session_token"], issued["session_id"]
        held = {"X-Agent-Session-Token": token}
        cluster.idle(sid)
        read = [
            client.get(f"/api/sessions/{sid}{path}", headers=held)
            for path in ("", "/messages", "/steps")
        ]
        with client.stream("GET", f"/api/sessions/{sid}/events", headers=held) as stream:
            read.append(stream)
            assert next(stream.iter_lines())
        in_address = client.get(f"/api/sessions/{sid}", params={"session_token": token})
        assert in_address.status_code == 403
        wrong = client.get(f"/api/sessions/{sid}", headers={"X-Agent-Session-Token": token[:-1]})
        assert wrong.status_code == 403
        browser = client.get("/login")
        csrf = browser.text.split('name="csrf-token" content="', 1)[1].split('"', 1)[0]
        client.post("/login", data={"csrf_token": csrf, "operator_token": "ana"})
        pages = [
            client.get(path) for path in (f"/sessions/{sid}", "/sessions", "/approvals", "/audit")
        ]
        # Its message waits in the broker, where no worker takes it.
        assert worker.stop() == 0
        sent = client.post(f"/api/sessions/{sid}/messages", json={"text": "again"}, headers=held)
        assert sent.status_code == 202
    answers = [*read, in_address, wrong, browser, *pages, sent]
    assert {page.headers["Referrer-Policy"] for page in pages} == {"same-origin"}
    web.stop()
    stored = "".join(everything_in(cluster.redis))
    assert sid in stored
    assert "celeriac.run_model" in stored
    places = {
        "the worker's log": worker.output(),
        "the web's log": web.output(),
        "the store": stored,
        "headers and addresses": "".join(
            f"{one.url} {one.headers}" for one in answers if one is not in_address
        ),
        "pages": "".join(page.text for page in pages),
        "answers": "".join(one.text for one in (*read[:3], wrong, in_address, sent)),
    }
    for place, text in places.items():
        assert text, place
        for secret in (token, token[:-1], _SESSION_KEY):
            assert secret not in text, f"{secret} is in {place}"
