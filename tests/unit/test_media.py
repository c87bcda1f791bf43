"""Image data is never text for a model: each becomes its type and size, and all else stays (MH-14)."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, strategies as st
from pydantic import JsonValue

from celeriac.sessions.jsonsafe import dump_json, to_json_value
from celeriac.sessions.media import without_media

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 16_384
DATA = base64.b64encode(PNG).decode()
SHOWN = "[image: image/png, 4,194,312 bytes; not shown to the model]"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"type": "image", "data": DATA, "mimeType": "image/png"}, SHOWN),
        (
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": DATA},
            },
            SHOWN,
        ),
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
            {"type": "image_url", "image_url": {"url": SHOWN}},
        ),
        ({"uri": "file:///a.png", "mimeType": "image/png", "blob": DATA}, SHOWN),
        (f"Look: ![it](data:image/png;base64,{DATA}) and go on", f"Look: ![it]({SHOWN}) and go on"),
        (to_json_value(PNG), SHOWN),
    ],
    ids=["MCP", "Anthropic", "OpenAI", "MCP resource", "within a text", "bytes"],
)
def test_mh_14_an_image_is_a_placeholder_with_its_type_and_size(
    value: JsonValue, expected: JsonValue
) -> None:
    assert without_media(value) == expected
    assert without_media([{"content": [value, "text"]}]) == [{"content": [expected, "text"]}]


def test_mh_14_a_sound_is_one_too() -> None:
    block: JsonValue = {"type": "audio", "data": "A" * 4_000, "mimeType": "audio/wav"}
    assert without_media(block) == "[audio: audio/wav, 3,000 bytes; not shown to the model]"


@pytest.mark.parametrize(
    "value",
    [
        {"type": "image", "name": "logo.png"},
        {"type": "image", "data": "short"},
        {"type": "file", "data": DATA[:200], "mimeType": "application/pdf"},
        {"base64": "AAAA" * 100},
        "data: 5, image/png",
        {"type": "text", "text": "an image"},
        {"type": {"image": 1}, "data": "x" * 100},
    ],
)
def test_what_is_no_image_stays(value: JsonValue) -> None:
    assert without_media(value) == value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_other_value_stays_as_it_is(value: JsonValue) -> None:
    assert dump_json(without_media(value)) == dump_json(value)
