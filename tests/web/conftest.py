from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from pydantic import SecretStr
from werkzeug.test import TestResponse

from celeriac.sessions.settings import Settings
from celeriac.web import create_app
from celeriac.web.keys import WebKey
from tests.web.fake_client import FakeClient

KEY = "a key that only tests know, and long"
MakeApp = Callable[..., Flask]


def operators(*entries: str) -> str:
    """``name:role:token`` with the token hashed, as the setting wants it."""
    parts = [entry.split(":") for entry in entries]
    return ",".join(f"{n}:{r}:{hashlib.sha256(t.encode()).hexdigest()}" for n, r, t in parts)


def content(answer: TestResponse) -> dict[str, Any]:
    """The JSON object that was answered."""
    value = answer.get_json()
    assert isinstance(value, dict)
    return value


@pytest.fixture
def fake() -> FakeClient:
    return FakeClient()


@pytest.fixture
def make_app(fake: FakeClient, tmp_path: Path) -> MakeApp:
    def make(**fields: object) -> Flask:
        given = {"data_dir": tmp_path, "session_key": SecretStr(KEY), **fields}
        if isinstance(given.get("operators"), str):
            given["operators"] = SecretStr(str(given["operators"]))
        return create_app(fake, Settings.model_validate(given))

    return make


@pytest.fixture
def web(make_app: MakeApp) -> FlaskClient:
    """A browser or program on this machine, where no operators are configured."""
    return make_app().test_client()


@pytest.fixture
def key() -> WebKey:
    return WebKey(KEY.encode())


@pytest.fixture
def sid(fake: FakeClient) -> str:
    return fake.create_session().session_id


@pytest.fixture
def held(key: WebKey, sid: str) -> dict[str, str]:
    """Headers of the session's holder."""
    return {"X-Agent-Session-Token": key.session_token(sid)}
