from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from celeriac.web.keys import WebKey
from celeriac.web.parts import EXTENSION
from celeriac.web.stream import StreamTiming, stream_cap
from tests.web.conftest import MakeApp, content
from tests.web.fake_client import FakeClient


@dataclass
class Frame:
    id: str = ""
    event: str = ""
    data: str = ""
    comment: str = ""


@dataclass
class Reader:
    """Opens a session's stream as its holder and reads it frame by frame."""

    web: FlaskClient
    sid: str
    headers: dict[str, str]

    def open(self, query: str = "", last_id: str | None = None) -> TestResponse:
        headers = dict(self.headers)
        if last_id is not None:
            headers["Last-Event-ID"] = last_id
        return self.web.get(
            f"/api/sessions/{self.sid}/events{query}", headers=headers, buffered=False
        )

    def texts(self, query: str = "", last_id: str | None = None, count: int = 1) -> list[str]:
        response = self.open(query, last_id)
        assert response.status_code == 200, response.text
        found = [
            json.loads(f.data)["text"] for f in take(response, count) if f.event == "text.delta"
        ]
        response.close()
        return found


def frames(response: TestResponse) -> Iterator[Frame]:
    for block in response.iter_encoded():
        frame = Frame()
        for line in block.decode().splitlines():
            name, _, value = line.partition(": ")
            setattr(frame, name or "comment", value)
        yield frame


def take(response: TestResponse, count: int) -> list[Frame]:
    """The first frames that carry an event."""
    found: list[Frame] = []
    for frame in frames(response):
        if frame.event:
            found.append(frame)
        if len(found) == count:
            break
    return found


@pytest.fixture
def reader(make_app: MakeApp, sid: str, held: dict[str, str]) -> Reader:
    app = make_app()
    app.extensions[EXTENSION].streams.timing = StreamTiming(block=0.01)
    return Reader(app.test_client(), sid, held)


@pytest.fixture
def token(reader: Reader) -> str:
    snapshot = reader.web.get(f"/api/sessions/{reader.sid}", headers=reader.headers)
    return str(content(snapshot)["resume_token"])


def test_events_have_the_stored_type_data_and_a_resumable_id(
    reader: Reader, fake: FakeClient, token: str
) -> None:
    fake.delta(reader.sid, "one\nline")
    response = reader.open(f"?resume_token={token}")
    assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert response.headers["X-Accel-Buffering"] == "no"
    assert response.headers["Cache-Control"] == "no-store"
    (frame,) = take(response, 1)
    assert frame.event == "text.delta"
    assert json.loads(frame.data) == {"step_id": "s1", "attempt": 1, "text": "one\nline"}
    fake.delta(reader.sid, "two")
    assert reader.texts(last_id=frame.id) == ["two"]


def test_the_first_frame_moves_the_cursor_before_any_event(reader: Reader, token: str) -> None:
    response = reader.open(f"?resume_token={token}")
    assert next(response.iter_encoded()) == f"retry: 2000\nid: {token}\n\n".encode()


def test_ss_02_a_stream_dropped_before_its_first_event_resumes_with_the_same_suffix(
    reader: Reader, fake: FakeClient, token: str
) -> None:
    reader.open(f"?resume_token={token}").close()
    fake.delta(reader.sid, "a")
    fake.delta(reader.sid, "b")
    assert reader.texts(f"?resume_token={token}", count=2) == ["a", "b"]
    assert reader.texts(last_id=token, count=2) == ["a", "b"]


def test_ss_02_a_token_older_than_the_stream_says_reload_and_ends(
    reader: Reader, fake: FakeClient, token: str
) -> None:
    fake.trimmed_before = 5
    answer = reader.open(f"?resume_token={token}").text
    assert answer.endswith("event: reload\ndata: {}\n\n")


def test_ss_02_a_token_from_the_future_says_reload_and_ends(reader: Reader, key: WebKey) -> None:
    answer = reader.open(f"?resume_token={key.resume_token(reader.sid, '99-0')}").text
    assert answer.endswith("event: reload\ndata: {}\n\n")


@pytest.mark.parametrize("garbage", ["", "x", "0-0", "0-0.", "0-0." + "0" * 16, "$", "a" * 9000])
@pytest.mark.parametrize("by_header", [True, False])
def test_ss_02_garbage_is_400(reader: Reader, garbage: str, by_header: bool) -> None:
    query = "" if by_header else f"?resume_token={garbage}"
    answer = reader.open(query, last_id=garbage if by_header else None)
    assert answer.status_code == 400
    assert content(answer)["code"] == "invalid_resume_token"


def test_se_10_another_sessions_resume_token_is_400_and_reads_nothing(
    reader: Reader, fake: FakeClient, key: WebKey
) -> None:
    other = fake.create_session().session_id
    fake.delta(other, "not yours")
    fake.touched.clear()
    stolen = key.resume_token(other, "0-0")
    for answer in (reader.open(f"?resume_token={stolen}"), reader.open(last_id=stolen)):
        assert answer.status_code == 400
        assert "not yours" not in answer.text
    assert fake.touched == []


def test_ss_02_the_header_wins_over_the_query(
    reader: Reader, fake: FakeClient, key: WebKey, token: str
) -> None:
    fake.delta(reader.sid, "a")
    fake.delta(reader.sid, "b")
    assert reader.texts(f"?resume_token={token}", key.resume_token(reader.sid, "1-0")) == ["b"]


def test_without_a_token_the_stream_starts_at_the_snapshot(
    reader: Reader, fake: FakeClient
) -> None:
    fake.delta(reader.sid, "before")
    response = reader.open()
    fake.delta(reader.sid, "after")
    assert [json.loads(frame.data)["text"] for frame in take(response, 1)] == ["after"]


def test_heartbeats_are_comments(reader: Reader) -> None:
    streams = reader.web.application.extensions[EXTENSION].streams
    streams.timing = StreamTiming(heartbeat=0, block=0.001)
    response = reader.open()
    pieces = response.iter_encoded()
    next(pieces)
    assert next(pieces) == b": still here\n\n"


def test_a_stream_ends_after_its_longest_time_and_at_shutdown(
    reader: Reader, fake: FakeClient, token: str
) -> None:
    fake.delta(reader.sid, "a")
    streams = reader.web.application.extensions[EXTENSION].streams
    streams.timing = StreamTiming(longest=0, block=0.001)
    assert "event: text.delta" in reader.open(f"?resume_token={token}").text
    streams.timing = StreamTiming(block=0.001)
    response = reader.open(f"?resume_token={token}")
    streams.close()
    assert "event: text.delta" in response.text
    assert reader.open().status_code == 503


def test_streams_are_capped_and_a_closed_one_frees_its_place(reader: Reader) -> None:
    streams = reader.web.application.extensions[EXTENSION].streams
    streams.cap = 2
    opened = [reader.open(), reader.open()]
    full = reader.open()
    assert (full.status_code, content(full)["code"]) == (503, "streams_full")
    assert full.headers["Retry-After"]
    opened[0].close()
    assert reader.open().status_code == 200


def test_a_refused_stream_takes_no_place(reader: Reader, fake: FakeClient) -> None:
    streams = reader.web.application.extensions[EXTENSION].streams
    fake.down = True
    assert reader.open().status_code == 503
    assert streams.open_streams == 0


def test_a_store_that_goes_away_ends_the_stream(
    reader: Reader, fake: FakeClient, token: str
) -> None:
    fake.delta(reader.sid, "a")
    response = reader.open(f"?resume_token={token}")
    pieces = response.iter_encoded()
    next(pieces)
    fake.down = True
    assert b"text.delta" in b"".join(pieces)


@pytest.mark.parametrize(("threads", "cap"), [(4, 2), (60, 30), (100, 50), (300, 250), (1000, 950)])
def test_some_threads_are_always_left_for_requests(threads: int, cap: int) -> None:
    assert stream_cap(threads) == cap
