"""Images over HTTP: in JSON and in forms, bounded, checked by their bytes, and shown to nobody else."""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO

import pytest
from flask.testing import FlaskClient

from celeriac.web.keys import WebKey
from tests.pictures import GIF, SVG, png
from tests.web.conftest import MakeApp, content
from tests.web.fake_client import FakeClient


def sent(data: bytes, name: str = "a.png") -> dict[str, str]:
    return {"data": b64encode(data).decode(), "name": name}


def test_a_message_shows_images_and_they_are_read_back(
    web: FlaskClient, fake: FakeClient, sid: str, held: dict[str, str]
) -> None:
    body = {"text": "look", "images": [sent(png()), sent(GIF, "b.gif")]}
    assert web.post(f"/api/sessions/{sid}/messages", json=body, headers=held).status_code == 202
    shown = content(web.get(f"/api/sessions/{sid}", headers=held))["messages"][-1]["images"]
    assert [one["name"] for one in shown] == ["a.png", "b.gif"]
    answer = web.get(f"/api/sessions/{sid}/images/{shown[0]['id']}", headers=held)
    assert (answer.data, answer.content_type) == (png(), "image/png")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Disposition"] == "inline"
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
    again = {**held, "If-None-Match": answer.headers["ETag"]}
    assert web.get(f"/api/sessions/{sid}/images/{shown[0]['id']}", headers=again).status_code == 304


def test_text_may_be_left_out_where_there_are_images(web: FlaskClient) -> None:
    answer = web.post("/api/sessions", json={"images": [sent(png())]})
    assert answer.status_code == 201
    assert content(answer)["message_id"]


@pytest.mark.parametrize(
    "case",
    [
        ({"data": "no base64!"}, 400, "invalid_body"),
        ({"data": b64encode(SVG).decode(), "name": "a.svg"}, 400, "not_an_image"),
        ({"data": b64encode(png(padding=6000)).decode()}, 413, "image_too_large"),
        ({"name": "a.png"}, 400, "invalid_body"),
        ({"data": "", "url": "http://169.254.169.254/"}, 400, "invalid_body"),
    ],
)
def test_a_wrong_image_refuses_the_whole_message(
    web: FlaskClient,
    fake: FakeClient,
    sid: str,
    held: dict[str, str],
    case: tuple[dict[str, str], int, str],
) -> None:
    image, status, code = case
    body = {"text": "look", "images": [sent(png()), image]}
    answer = web.post(f"/api/sessions/{sid}/messages", json=body, headers=held)
    assert (answer.status_code, content(answer)["code"]) == (status, code)
    assert fake.sessions[sid].messages == []


def test_a_large_body_is_taken_only_from_whoever_may_send_and_only_so_large(
    make_app: MakeApp, fake: FakeClient, key: WebKey, sid: str, held: dict[str, str]
) -> None:
    web = make_app(images_max_bytes=3 * 2**20).test_client()
    url = f"/api/sessions/{sid}/messages"
    body = {"text": "look", "images": [sent(b"\x00" * 2**21)]}
    answer = web.post(url, json=body, headers=held)
    assert content(answer)["code"] == "image_too_large", "it was read"
    assert web.post(url, json=body).status_code == 403
    too_large = {"text": "look", "images": [sent(b"\x00" * 2**22)]}
    answer = web.post(url, json=too_large, headers=held)
    assert (answer.status_code, content(answer)["code"]) == (413, "request_too_large")
    assert web.post(f"/api/sessions/{sid}/steer", json=body, headers=held).status_code == 413


def test_another_sessions_image_and_odd_ids_are_not_there(
    web: FlaskClient, fake: FakeClient, sid: str, held: dict[str, str]
) -> None:
    for image_id in ("img_" + "0" * 32, "x", "img_*", "..%2f"):
        answer = web.get(f"/api/sessions/{sid}/images/{image_id}", headers=held)
        assert answer.status_code in {403, 404}
    assert web.get(f"/api/sessions/{sid}/images/img_{'0' * 32}").status_code == 403


def test_the_ai_sdks_files_are_images_and_addresses_are_never_fetched(
    web: FlaskClient, fake: FakeClient, sid: str, held: dict[str, str]
) -> None:
    data = {"type": "file", "mediaType": "image/png", "filename": "a.png"}
    url = "data:image/png;base64," + b64encode(png()).decode()
    message = {"id": "m1", "role": "user", "parts": [{**data, "url": url}]}
    with web.post("/api/chat", json={"id": sid, "messages": [message]}, headers=held) as answer:
        assert answer.status_code == 200
    assert [image.name for image in fake.sessions[sid].messages[0].images] == ["a.png"]
    for wrong in ("http://127.0.0.1/a.png", "data:image/png,raw", "file:///etc/passwd"):
        message = {"id": "m2", "role": "user", "parts": [{**data, "url": wrong}]}
        answer = web.post("/api/chat", json={"id": sid, "messages": [message]}, headers=held)
        assert (answer.status_code, content(answer)["code"]) == (400, "not_an_image")


def test_a_form_sends_files_without_scripts(web: FlaskClient, fake: FakeClient) -> None:
    page = web.get("/sessions").text
    token = page.split('name="csrf_token" value="')[1].split('"')[0]
    form = {
        "csrf_token": token,
        "message": "look",
        "images": [(BytesIO(png()), "a.png"), (BytesIO(GIF), "b.gif")],
    }
    answer = web.post("/sessions", data=form, content_type="multipart/form-data")
    assert answer.status_code == 303
    shown = web.get(answer.headers["Location"]).text
    (session,) = fake.sessions.values()
    for image in session.messages[0].images:
        assert f'src="/api/sessions/{session.id}/images/{image.id}"' in shown
        assert web.get(f"/api/sessions/{session.id}/images/{image.id}").status_code == 200
