from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from celeriac.sessions.context import message_tokens
from celeriac.sessions.errors import InvalidRequest
from celeriac.sessions.images import IMAGE_TOKENS, image_words, media_type_of, read_image
from celeriac.sessions.inputs import MessageSent
from celeriac.sessions.messages import Message, Role
from tests.pictures import GIF, JPEG, SVG, WEBP, png
from tests.unit.world import World

KINDS = {"image/png": png(), "image/jpeg": JPEG, "image/gif": GIF, "image/webp": WEBP}


@pytest.mark.parametrize(("kind", "data"), KINDS.items(), ids=KINDS.keys())
def test_an_image_is_told_by_its_bytes_whatever_its_name(kind: str, data: bytes) -> None:
    image = read_image(data, "photo.txt", max_bytes=1000)
    assert image.reference.media_type == kind
    assert (image.reference.width, image.reference.height) == (3, 2)
    assert (image.reference.bytes, image.reference.name) == (len(data), "photo.txt")


@pytest.mark.parametrize(
    "data", [SVG, b"", b"BM\x00\x00", b"%PDF-1.7", b"RIFF\x00\x00\x00\x00WAVE"]
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match=r"'a.png' is no PNG") as refused:
        read_image(data, "a.png", max_bytes=1000)
    assert refused.value.code == "not_an_image"


def test_a_large_one_is_refused_with_its_size() -> None:
    with pytest.raises(InvalidRequest, match=r"2,0\d\d bytes; the limit is 1,000") as refused:
        read_image(png(padding=2000), max_bytes=1000)
    assert refused.value.code == "image_too_large"


def test_the_same_image_has_the_same_id_under_any_name() -> None:
    one, other = (read_image(png(), name, max_bytes=1000) for name in ("a.png", "b.png"))
    assert one.reference.id == other.reference.id != read_image(GIF, max_bytes=1000).reference.id


@given(st.sampled_from([png(), GIF, JPEG, WEBP]), st.integers(0, 80), st.binary(max_size=40))
def test_a_damaged_header_is_no_crash(data: bytes, cut: int, tail: bytes) -> None:
    damaged = data[:cut] + tail
    if media_type_of(damaged) is None:
        return
    read_image(damaged, max_bytes=1000)


def test_a_message_of_images_alone_has_a_title_and_counts_for_the_context() -> None:
    image = read_image(png(), "a.png", max_bytes=1000).reference
    world = World()
    world.apply(MessageSent("m1", "", images=(image,)))
    assert world.state.title == "Image"
    assert world.log[-1].images == (image,)
    message = Message(seq=0, role=Role.USER, images=(image,) * 2, created_at=0)
    assert message_tokens(message) >= 2 * IMAGE_TOKENS


def test_a_queued_message_keeps_its_images_until_its_turn() -> None:
    image = read_image(png(), "a.png", max_bytes=1000).reference
    world = World()
    world.send("first")
    world.apply(MessageSent("m2", "and this", images=(image,)))
    assert [m.images for m in world.log] == [()]
    world.reply()
    assert world.log[-1].images == (image,)


def test_words_stand_for_images_that_are_not_sent() -> None:
    image = read_image(png(), "a.png", max_bytes=1000).reference
    assert image_words([image], "not shown to you") == (
        f"[image 'a.png', image/png, {len(png())} bytes, 3 x 2 pixels; not shown to you]"
    )
