"""Any Python value becomes strict JSON, and no text is damaged on the way."""

from __future__ import annotations

import json
import math
from collections import UserDict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from pathlib import PurePosixPath
from typing import NoReturn
from uuid import UUID

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, TypeAdapter

from celeriac.sessions.calls import CallOutcome, CallStatus
from celeriac.sessions.codec import read_record, write_record
from celeriac.sessions.jsonsafe import clean_text, dump_json, to_json_value, truncate_text

TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=40)


class Colour(Enum):
    RED = "red"
    TUPLE = (1, 2)


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    YES = "yes"


class Point(BaseModel):
    x: int
    label: str = "p\x00"
    at: date = date(2026, 1, 2)


@dataclass
class Pair:
    left: object
    right: object = None


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no words")


class BrokenMapping(UserDict[str, int]):
    def items(self) -> NoReturn:
        raise RuntimeError("no items")


class BrokenList(list[int]):
    def __iter__(self) -> NoReturn:
        raise RuntimeError("no items")


class BrokenModel(BaseModel):
    x: int = 1

    def model_dump(self, **_: object) -> NoReturn:
        raise RuntimeError("no dump")


def strict(value: object) -> object:
    """Convert, store and read back, as strictly as every reader; return what is read."""
    converted = to_json_value(value)
    text = dump_json(converted)
    assert "\x00" not in text
    outcome = CallOutcome(status=CallStatus.SUCCEEDED, result=converted, settled_at=1)
    stored = read_record(CallOutcome, write_record(outcome))
    assert json.loads(text.encode("utf-8")) == converted == stored.result
    return converted


# --- text


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("ok\ud83d", "ok\ufffd"),
        ("\ud83dok", "\ufffdok"),
        ("\ude00hm", "\ufffdhm"),
        ("a\x00b", "a\ufffdb"),
        ("\ud83d\ude00", "😀"),
        ("\ud83d\x00\ude00", "\ufffd\ufffd\ufffd"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        (r"\u0000 and \ud83d", r"\u0000 and \ud83d"),
        ("é😀", "é😀"),
        ("", ""),
        ("tab\tnewline\n", "tab\tnewline\n"),
    ],
)
def test_mh_08_nul_and_lone_surrogates_are_replaced_and_visible_escapes_are_not(
    text: str, cleaned: str
) -> None:
    assert clean_text(text) == cleaned
    assert strict({text: [text]}) == {cleaned: [cleaned]}


def test_mh_08_an_emoji_written_as_two_escapes_becomes_one_character() -> None:
    assert clean_text(json.loads(r'"\ud83d\ude00"')) == "😀"


@given(TEXT)
def test_clean_text_is_encodable_idempotent_and_keeps_everything_else(text: str) -> None:
    cleaned = clean_text(text)
    cleaned.encode()
    assert "\x00" not in cleaned
    assert clean_text(cleaned) == cleaned
    kept = [character for character in text if character != "\x00" and not _surrogate(character)]
    assert [c for c in cleaned if c in kept] == [c for c in kept if c in cleaned]
    if not any(_surrogate(character) for character in text):
        assert cleaned == text.replace("\x00", "\ufffd")


def _surrogate(character: str) -> bool:
    return 0xD800 <= ord(character) <= 0xDFFF


# --- values


KINDS: list[tuple[object, object]] = [
    (None, None),
    (True, True),
    (3, 3),
    (1.5, 1.5),
    (math.nan, "nan"),
    (math.inf, "inf"),
    (-math.inf, "-inf"),
    (2**70, 2**70),
    (Decimal("1.10"), "1.10"),
    (Decimal("NaN"), "NaN"),
    (Fraction(1, 3), "1/3"),
    (1 + 2j, "(1+2j)"),
    (date(2026, 1, 2), "2026-01-02"),
    (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05+00:00"),
    (time(3, 4), "03:04:00"),
    (timedelta(minutes=1.5), 90.0),
    (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
    (PurePosixPath("/a/b"), "/a/b"),
    (b"text", "text"),
    (b"\xff\xfe", {"base64": "//4="}),
    (bytearray(b"text"), "text"),
    (memoryview(b"text"), "text"),
    ({3, 1, 2}, [1, 2, 3]),
    (frozenset({"b", "a"}), ["a", "b"]),
    ({1, "a"}, ["a", 1]),
    ((1, (2,)), [1, [2]]),
    (Colour.RED, "red"),
    (Colour.TUPLE, [1, 2]),
    (Level.HIGH, 3),
    ([Level.HIGH], [3]),
    (Word.YES, "yes"),
    (Point(x=1), {"x": 1, "label": "p\ufffd", "at": "2026-01-02"}),
    (Pair(1, Pair("a\x00")), {"left": 1, "right": {"left": "a\ufffd", "right": None}}),
    ({1: "a", None: "b", (1, 2): "c"}, {"1": "a", "None": "b", "[1, 2]": "c"}),
    ({Word.YES: 1}, {"yes": 1}),
    (UserDict({"a": 1}), {"a": 1}),
    (deque([1]), "deque([1])"),
    (ValueError("bad"), "bad"),
]


@pytest.mark.parametrize(
    ("value", "converted"),
    KINDS,
    # Not their repr: it differs between processes.
    ids=[f"{number}-{type(value).__name__}" for number, (value, _) in enumerate(KINDS)],
)
def test_each_kind_of_value_has_its_documented_form(value: object, converted: object) -> None:
    assert strict(value) == converted


HOPELESS: dict[str, object] = {
    "no str": Broken(),
    "no str in a list": [Broken()],
    "no str in a dict": {"a": Broken()},
    "no str as a key": {Broken(): 1},
    "no str in a set": {Broken()},
    "no str in a dataclass": Pair(Broken()),
    "mapping without items": BrokenMapping(a=1),
    "list without items": BrokenList([1]),
    "model without dump": BrokenModel(),
    "more digits than Python prints": 10**5_000,
    "such digits inside": [{"n": -(10**5_000)}],
    "such digits as a key": {10**5_000: 1},
    "object": object(),
    "function": print,
    "iterator": iter([1]),
    "class": Pair,
}


@pytest.mark.parametrize("value", HOPELESS.values(), ids=list(HOPELESS))
def test_a_result_that_cannot_be_shown_never_loses_the_write_that_happened(value: object) -> None:
    strict(value)


def test_a_value_that_contains_itself_ends_somewhere() -> None:
    loop: list[object] = [1]
    loop.append(loop)
    strict(loop)
    tree: dict[str, object] = {}
    tree["self"] = tree
    strict(tree)


@pytest.mark.parametrize("depth", [10, 64, 65, 500, 5_000])
def test_deep_values_are_kept_up_to_a_depth(depth: int) -> None:
    value: object = "bottom"
    for _ in range(depth):
        value = [value]
    strict(value)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXT
    | st.binary(max_size=8)
    | st.decimals()
    | st.datetimes()
    | st.dates()
    | st.timedeltas()
    | st.uuids()
    | st.sampled_from([*Colour, *Level, *Word, Broken()]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(TEXT | st.integers() | st.none(), inner, max_size=4)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_any_value_becomes_strict_json(value: object) -> None:
    converted = strict(value)
    assert to_json_value(converted) == converted, "what is JSON already stays as it is"


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet=st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(PLAIN)
def test_plain_json_is_not_changed_and_any_reader_takes_it(value: object) -> None:
    converted = to_json_value(value)
    assert TypeAdapter(object).validate_json(dump_json(converted)) == converted


@pytest.mark.parametrize("value", [math.nan, math.inf, [math.nan]])
def test_dump_json_refuses_what_is_no_json(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump_json(value)


# --- cutting


@pytest.mark.parametrize("limit", [4, 5, 100])
def test_text_that_fits_is_not_cut(limit: int) -> None:
    assert truncate_text("aé1", limit) == "aé1"


@pytest.mark.parametrize(
    ("limit", "kept"), [(0, ""), (1, "a"), (2, "a"), (3, "aé"), (5, "aé"), (6, "aé"), (7, "aé😀")]
)
def test_text_is_cut_between_characters_and_says_its_full_size(limit: int, kept: str) -> None:
    assert truncate_text("aé😀z", limit) == f"{kept}\n[cut here: 8 bytes in full, {limit} shown]"


@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60),
    st.integers(min_value=0, max_value=200),
)
def test_a_cut_is_a_beginning_of_the_text_within_the_limit(text: str, limit: int) -> None:
    cut = truncate_text(text, limit)
    if len(text.encode()) <= limit:
        assert cut == text
        return
    kept = cut.rsplit("\n[cut here: ", 1)[0]
    assert text.startswith(kept)
    assert limit - 3 <= len(kept.encode()) <= limit


def test_mh_14_a_text_that_is_cut_twice_tells_its_first_size() -> None:
    kept = truncate_text("é" * 2_500_000, 262_144)
    shown = truncate_text(kept, 32_768)
    assert shown.endswith("[cut here: 5,000,000 bytes in full, 32,768 shown]")
    assert shown.count("[cut here") == 1


def test_five_megabytes_are_cut() -> None:
    cut = truncate_text("é" * 2_500_000, 32_768)
    assert cut.endswith("[cut here: 5,000,000 bytes in full, 32,768 shown]")
    assert len(cut) < 17_000
