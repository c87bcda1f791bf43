"""The chat stream of one turn, where the store goes away or the stream must end early."""

from __future__ import annotations

import json

import pytest
from flask.testing import FlaskClient

from celeriac.sessions.errors import StoreUnavailable
from celeriac.sessions.events import EventType
from celeriac.sessions.snapshot import Snapshot
from celeriac.web.parts import EXTENSION
from celeriac.web.stream import StreamTiming
from tests.web.conftest import MakeApp
from tests.web.fake_client import FakeClient


@pytest.fixture
def web(make_app: MakeApp) -> FlaskClient:
    app = make_app()
    app.extensions[EXTENSION].streams.timing = StreamTiming(block=0.01, longest=5)
    return app.test_client()


def test_a_stream_whose_store_goes_away_ends_well_formed_and_can_be_resumed(
    web: FlaskClient,
    fake: FakeClient,
    sid: str,
    held: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake.send_message(sid, "hello")
    response = web.get(f"/api/chat/{sid}/stream", headers=held, buffered=False)
    assert response.status_code == 200
    frames = response.iter_encoded()
    assert json.loads(next(frames).removeprefix(b"data: "))["type"] == "start"

    def gone(session_id: str) -> Snapshot:
        raise StoreUnavailable("no answer", retry_after_seconds=1)

    monkeypatch.setattr(fake, "snapshot", gone)
    fake.publish(sid, EventType.MESSAGE_ADDED, {"seq": 1, "role": "assistant"})
    rest = [frame.decode().strip() for frame in frames]
    assert rest[-1] == "data: [DONE]"
    assert json.loads(rest[-2].removeprefix("data: "))["messageMetadata"]["state"] == "unfinished"
    response.close()
    assert web.get(f"/api/chat/{sid}/stream", headers=held).status_code == 503
    monkeypatch.undo()
    assert web.get(f"/api/chat/{sid}/stream", headers=held, buffered=False).status_code == 200
