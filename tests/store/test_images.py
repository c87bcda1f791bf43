"""Images of messages: kept once beside the conversation, with the message or not at all, and not for ever."""

from __future__ import annotations

import pytest
import redis

from celeriac.sessions.client import SessionClient
from celeriac.sessions.errors import NotFound
from celeriac.sessions.images import Image, read_image
from celeriac.sessions.settings import Settings
from celeriac.sessions.store import packing, reader
from celeriac.sessions.store.keys import SessionKeys
from celeriac.sessions.store.lists import SessionLists
from celeriac.sessions.store.packing import pack_session
from celeriac.sessions.store.reader import SessionReader
from celeriac.sessions.store.sessions import SessionStore
from tests.pictures import GIF, png
from tests.store.announced import AGENTS, WORKER
from tests.store.asking_client import refused
from tests.store.driving import answer, claim, compact, new_session

PNG = read_image(png(), "a.png", max_bytes=10_000)
OTHER = read_image(GIF, "b.gif", max_bytes=10_000)


def kept(redis_client: redis.Redis, session_id: str) -> set[str]:
    return {name.decode() for name in redis_client.hkeys(SessionKeys.of(session_id).images)}  # type: ignore[union-attr]


def ids(*images: Image) -> set[str]:
    return {image.reference.id for image in images}


@pytest.fixture
def session_id(session_store: SessionStore) -> str:
    """An idle session."""
    return new_session(session_store, None)


def test_an_image_is_kept_once_and_read_back(
    session_client: SessionClient,
    session_store: SessionStore,
    redis_client: redis.Redis,
    session_id: str,
) -> None:
    before = session_store.load(session_id).stored_bytes
    session_client.send_message(session_id, "look", images=[PNG, PNG, OTHER])
    shown = session_client.snapshot(session_id).messages[-1]
    assert [image.id for image in shown.images] == [PNG.reference.id, OTHER.reference.id]
    assert shown.images[0] == PNG.reference
    assert session_client.image(session_id, PNG.reference.id) == png()
    assert kept(redis_client, session_id) == ids(PNG, OTHER)
    grown = session_store.load(session_id).stored_bytes - before
    assert grown > len(PNG.data) + len(OTHER.data)


def test_a_session_may_begin_with_images_alone(
    session_client: SessionClient,
    session_store: SessionStore,
    settings: Settings,
    redis_client: redis.Redis,
) -> None:
    lists = SessionLists(session_store, SessionReader(session_store, settings), settings)
    lists.announce(WORKER, AGENTS)
    created = session_client.create_session(images=[PNG])
    message = session_client.snapshot(created.session_id).messages[0]
    assert (message.text, message.images) == ("", (PNG.reference,))
    assert kept(redis_client, created.session_id) == ids(PNG)


def test_the_model_step_gets_them_and_a_missing_one_is_left_out(
    session_client: SessionClient, session_store: SessionStore, session_id: str
) -> None:
    session_client.send_message(session_id, "look", images=[PNG])
    asked = claim(session_store, session_id)
    assert [m.images for m in asked.messages] == [(PNG.reference,)]
    assert session_store.images(session_id, [PNG.reference.id, "img_" + "0" * 32]) == {
        PNG.reference.id: png()
    }


def test_a_queued_message_shows_its_images_and_brings_them_into_its_turn(
    session_client: SessionClient, session_store: SessionStore, session_id: str
) -> None:
    session_client.send_message(session_id, "first")
    sent = session_client.send_message(session_id, "", message_id="m2", images=[PNG])
    assert sent.queued
    assert session_client.snapshot(session_id).queue[0].images == (PNG.reference,)
    answer(session_store, session_id)
    shown = session_client.snapshot(session_id)
    assert shown.queue == ()
    assert shown.messages[-1].images == (PNG.reference,)
    answer(session_store, session_id)


def test_images_that_no_message_shows_any_more_go_when_the_session_is_packed(
    session_client: SessionClient,
    session_store: SessionStore,
    redis_client: redis.Redis,
    session_id: str,
) -> None:
    session_client.send_message(session_id, "first", images=[OTHER])
    session_client.send_message(session_id, "not this", message_id="m2", images=[PNG, OTHER])
    session_client.delete_queued(session_id, "m2")
    assert redis_client.hgetall(SessionKeys.of(session_id).queue) == {}
    answer(session_store, session_id)
    assert pack_session(session_store, session_id)
    assert kept(redis_client, session_id) == ids(OTHER)
    assert (
        refused(lambda: session_client.image(session_id, PNG.reference.id)).code == "unknown_image"
    )


@pytest.mark.parametrize("deletes", [False, True])
def test_images_of_packed_messages_stay_and_of_deleted_ones_go(
    session_client: SessionClient,
    session_store: SessionStore,
    redis_client: redis.Redis,
    session_id: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    deletes: bool,
) -> None:
    for module in (packing, reader):
        monkeypatch.setattr(module, "SNAPSHOT_MESSAGES", 2)
    for number in range(6):
        session_client.send_message(
            session_id, f"message {number}", images=[PNG] if number == 0 else []
        )
        answer(session_store, session_id)
    compact(redis_client, session_id, 10)
    assert pack_session(session_store, session_id, lambda _: deletes)
    assert kept(redis_client, session_id) == (set() if deletes else ids(PNG))
    # Once more, when all of it is in chunks.
    session_client.send_message(session_id, "again")
    answer(session_store, session_id)
    assert pack_session(session_store, session_id, lambda _: deletes)
    assert kept(redis_client, session_id) == (set() if deletes else ids(PNG))


def test_what_is_too_much_is_refused_and_nothing_is_stored(
    session_client: SessionClient, redis_client: redis.Redis, session_id: str
) -> None:
    many = [read_image(png(1, n), max_bytes=10_000) for n in range(1, 12)]
    error = refused(lambda: session_client.send_message(session_id, "x", images=many))
    assert (error.code, "11 images; the limit is 10" in str(error)) == ("too_many_images", True)
    large = [
        read_image(png(1, n, padding=5 * 2**20 - 500), max_bytes=5 * 2**20) for n in (1, 2, 3, 4, 5)
    ]
    error = refused(lambda: session_client.send_message(session_id, "x", images=large))
    assert error.code == "image_too_large"
    assert refused(lambda: session_client.send_message(session_id, " ")).code == "blank_message"
    assert session_client.snapshot(session_id).messages == ()
    assert kept(redis_client, session_id) == set()
    with pytest.raises(NotFound):
        session_client.image(session_id, PNG.reference.id)


def test_the_same_message_again_changes_nothing(
    session_client: SessionClient,
    session_store: SessionStore,
    redis_client: redis.Redis,
    session_id: str,
) -> None:
    first = session_client.send_message(session_id, "look", message_id="m1", images=[PNG])
    taken = session_store.load(session_id).stored_bytes
    assert session_client.send_message(session_id, "look", message_id="m1", images=[OTHER]) == first
    assert kept(redis_client, session_id) == ids(PNG)
    assert session_store.load(session_id).stored_bytes == taken
