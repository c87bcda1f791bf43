"""The server as it is really started: gunicorn with our configuration."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from celeriac.sessions.settings import Settings
from celeriac.web.keys import load_web_key
from celeriac.web.serve import command
from tests.web.served import SESSION_ID

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Served:
    process: subprocess.Popen[str]
    settings: Settings
    log: Path

    def open(self) -> httpx.Client:
        return httpx.Client(base_url=f"http://127.0.0.1:{self.settings.port}", timeout=20)

    @property
    def headers(self) -> dict[str, str]:
        key = load_web_key(self.settings)
        return {"X-Agent-Session-Token": key.session_token(SESSION_ID)}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def served(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Served]:
    settings = Settings(port=_free_port(), data_dir=tmp_path, web_processes=1, web_threads=8)
    environment = {
        **os.environ,
        "CELERIAC_PORT": str(settings.port),
        "CELERIAC_DATA_DIR": str(tmp_path),
        "CELERIAC_WEB_PROCESSES": "1",
        "CELERIAC_WEB_THREADS": "8",
        "PYTHONUNBUFFERED": "1",
        **getattr(request, "param", {}),
    }
    log = tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [*command(settings)[:-1], "tests.web.served:make()"],
            cwd=ROOT,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            text=True,
        )
        # A request that comes before the worker is up waits in the socket; before that it is refused.
        with httpx.Client(transport=httpx.HTTPTransport(retries=8)) as probe:
            probe.get(f"http://127.0.0.1:{settings.port}/healthz", timeout=20)
        yield Served(process, settings, log)
    if process.poll() is None:
        process.kill()
    process.wait()


def test_a_stopping_server_ends_its_streams_and_leaves(served: Served) -> None:
    with (
        served.open() as web,
        web.stream("GET", f"/api/sessions/{SESSION_ID}/events", headers=served.headers) as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines) == "retry: 2000"
        served.process.send_signal(signal.SIGTERM)
        assert [line for line in lines if line.startswith(("event", "data"))] == []
    assert served.process.wait(timeout=30) == 0


def test_se_06_no_token_or_login_code_reaches_the_access_log(served: Served) -> None:
    token = served.headers["X-Agent-Session-Token"]
    with served.open() as web:
        web.get(f"/api/sessions/{SESSION_ID}", headers=served.headers)
        web.get(f"/api/sessions/{SESSION_ID}?session_token={token}")
        web.get("/login?code=a-login-code", headers={"Referer": "http://x/?code=a-login-code"})
        web.get("/healthz")
    served.process.send_signal(signal.SIGTERM)
    served.process.wait(timeout=30)
    log = served.log.read_text()
    assert f'"GET /api/sessions/{SESSION_ID}" 200' in log
    assert f'"GET /api/sessions/{SESSION_ID}" 403' in log
    assert '"GET /login" 200' in log
    assert "/healthz" not in log
    assert token not in log
    assert "a-login-code" not in log
    assert (served.settings.data_dir / "session.key").read_text() not in log


@pytest.mark.parametrize("served", [{"CELERIAC_LOG_FORMAT": "json"}], indirect=True)
def test_every_line_is_json_when_asked_for_and_requests_carry_their_id(served: Served) -> None:
    with served.open() as web:
        found = web.get(f"/api/sessions/{SESSION_ID}", headers=served.headers)
        given = web.get("/login", headers={"X-Request-ID": "proxy-1234"})
        forged = web.get("/login", headers={"X-Request-ID": 'x" injected'})
    served.process.send_signal(signal.SIGTERM)
    served.process.wait(timeout=30)
    lines = [json.loads(line) for line in served.log.read_text().splitlines()]
    requests = {line["request_id"]: line for line in lines if line["logger"] == "gunicorn.access"}
    assert given.headers["X-Request-ID"] == "proxy-1234"
    assert "injected" not in forged.headers["X-Request-ID"]
    about = requests[found.headers["X-Request-ID"]]
    assert (about["method"], about["path"], about["status"]) == (
        "GET",
        f"/api/sessions/{SESSION_ID}",
        200,
    )
    assert "proxy-1234" in requests
    assert any("Listening at" in line["message"] for line in lines)


_PROXIED = {
    "CELERIAC_TRUSTED_PROXIES": "127.0.0.1",
    "CELERIAC_PROXY_USER_HEADER": "X-Remote-User",
    "CELERIAC_PROXY_ROLES": "ana:operator,bo:client",
}


@pytest.mark.parametrize("served", [_PROXIED], indirect=True)
def test_a_header_that_only_looks_like_the_proxys_names_nobody(served: Served) -> None:
    """WSGI writes `-` and `_` alike: gunicorn must drop what would pass a proxy that removes the true name."""
    with served.open() as web:
        assert web.get("/api/sessions", headers={"X-Remote-User": "ana"}).status_code == 200
        assert web.get("/api/sessions", headers={"X_Remote_User": "ana"}).status_code == 401
        both = [("X_Remote_User", "ana"), ("X-Remote-User", "bo")]
        assert web.get("/api/sessions", headers=both).status_code == 403
        twice = [("X-Remote-User", "ana"), ("X-Remote-User", "bo")]
        assert web.get("/api/sessions", headers=twice).status_code == 401


def test_a_wrong_setting_is_one_line_and_no_server(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "CELERIAC_DATA_DIR": str(tmp_path),
        "CELERIAC_OPERATORS": "ana:boss:s3cret",
    }
    done = subprocess.run(
        [sys.executable, "-m", "celeriac.web.serve"],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "CELERIAC_OPERATORS, entry 1 ('ana')" in done.stderr
    assert "s3cret" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2


def test_the_web_process_loads_no_model_client_and_no_step(tmp_path: Path) -> None:
    program = (
        "import sys; from celeriac.web import create_app; create_app();"
        "import celeriac.tasks.dispatch;"
        "print([n for n in sys.modules if n.split('.')[0] in {'litellm', 'mcp'}"
        " or n.startswith('celeriac.connectors.') and n != 'celeriac.connectors.redaction'"
        " or n in {'celeriac.tasks.run_model', 'celeriac.tasks.call_tool', 'celeriac.tasks.step'}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "CELERIAC_DATA_DIR": str(tmp_path)},
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
