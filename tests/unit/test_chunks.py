"""Chunks: what is compressed together comes back as it was."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from pydantic import JsonValue

from celeriac.sessions.calls import CallOutcome, CallRequest, CallStatus, ToolEffect, result_text
from celeriac.sessions.codec import write_record
from celeriac.sessions.ids import new_message_id
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.store import chunks
from celeriac.sessions.store.chunks import PackedCall, pack_call

LINES = st.lists(st.binary().map(lambda line: line.replace(b"\n", b"")), min_size=1)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
REQUEST = CallRequest(
    id="call_a",
    tool="t",
    arguments={"a": "\t\n"},
    effect=ToolEffect.READ,
    turn_id="t1",
    created_at=1,
)


def raw(record: CallRequest | CallOutcome) -> bytes:
    return write_record(record).encode()


def tool_message(text: str) -> Message:
    return Message(seq=7, role=Role.TOOL, text=text, created_at=1, call_id="call_a", tool="t")


@given(LINES)
def test_lines_come_back(lines: list[bytes]) -> None:
    assert chunks.unpack_lines(chunks.pack_lines(lines)) == lines


def test_a_chunk_that_does_not_exist_has_no_lines() -> None:
    assert chunks.unpack_lines(None) == chunks.unpack_lines(b"") == []


@given(st.lists(LINES), st.integers(0, 10**6))
def test_lines_are_appended_in_order_whatever_their_sizes(parts: list[list[bytes]], n: int) -> None:
    stored: dict[int, list[bytes]] = {}
    for part in parts:
        number = max(stored, default=n)
        padded = [line + b"x" * (len(line) % 3 * 40_000) for line in part[:4]]
        stored |= chunks.extended(number, stored.get(number, []), padded)
    at = n
    for number in sorted(stored):
        assert number == at, "a chunk is named after the place of its first line"
        at += len(stored[number])
    sizes = [sum(map(len, stored[number][:-1])) for number in stored]
    assert all(size < 64 * 1024 for size in sizes)
    assert at == n + sum(len(part[:4]) for part in parts)


def test_appending_nothing_changes_nothing() -> None:
    assert chunks.extended(5, [b"a"], []) == {}


@given(JSON)
def test_a_result_that_its_message_says_is_not_kept_twice_and_comes_back(result: JsonValue) -> None:
    outcome = CallOutcome(status=CallStatus.SUCCEEDED, result=result, attempts=1, settled_at=5)
    message = tool_message(result_text("t", outcome))
    line = pack_call(b"call_a", raw(REQUEST), raw(outcome), b"", message)
    call = PackedCall.read(line)
    assert chunks.call_id_of(line) == b"call_a"
    assert (call.id, call.request) == ("call_a", REQUEST)
    restored = call.outcome if call.result_seq is None else call.with_result(message.text).outcome
    assert raw(restored) == raw(outcome)


@pytest.mark.parametrize("result", ["é" * 500, {"rows": [[n, None, 1.0, True] for n in range(50)]}])
def test_a_long_result_is_kept_once(result: JsonValue) -> None:
    outcome = CallOutcome(status=CallStatus.SUCCEEDED, result=result, settled_at=5)
    message = tool_message(result_text("t", outcome))
    line = pack_call(b"call_a", raw(REQUEST), raw(outcome), b"", message)
    assert len(line) < 250
    assert PackedCall.read(line).result_seq == 7


@pytest.mark.parametrize(
    "outcome",
    [
        CallOutcome(status=CallStatus.SUCCEEDED, result="x" * 100, settled_at=5),
        CallOutcome(status=CallStatus.FAILED, error="y" * 100, settled_at=5),
        CallOutcome(status=CallStatus.SUCCEEDED, reconciled_by="Ana", settled_at=5),
    ],
    ids=["cut", "failed", "reconciled"],
)
def test_what_the_message_says_otherwise_is_kept_with_the_call(outcome: CallOutcome) -> None:
    message = tool_message("x" * 90 + " [cut]")
    call = PackedCall.read(pack_call(b"call_a", raw(REQUEST), raw(outcome), b"", message))
    assert call.result_seq is None
    assert call.outcome == outcome


def test_calls_are_found_in_the_chunks_that_the_index_names() -> None:
    def line(name: str) -> bytes:
        return name.encode() + b"\trequest\toutcome\t\t"

    index = chunks.index_of(b"", {0: [line("a"), line("b")], 2: [line("c")]})
    assert chunks.places_in(index, [b"a"]) == {0}
    assert chunks.places_in(index, [b"b", b"c"]) == {0, 2}
    assert chunks.places_in(index, [b"d"]) == set()
    index = chunks.index_of(index, {0: [], 2: [line("c"), line("d")]})
    assert chunks.places_in(index, [b"a", b"b"]) == set()
    assert chunks.places_in(index, [b"c", b"d"]) == {2}
    assert len(index) == 16


def test_packed_message_ids_are_known_and_no_others() -> None:
    ids = [new_message_id() for _ in range(300)]
    packed = chunks.pack_message_ids(b"", (one.encode() for one in ids[:150]))
    packed = chunks.pack_message_ids(packed, (one.encode() for one in ids[150:]))
    assert len(packed) == 8 * 300
    assert all(chunks.holds_message_id(packed, one) for one in ids)
    assert not any(chunks.holds_message_id(packed, new_message_id()) for _ in range(300))
    assert not chunks.holds_message_id(b"", "a")


def test_a_digest_across_two_others_is_no_message_id() -> None:
    packed = chunks.pack_message_ids(b"", [b"wanted"])
    shifted = b"1234" + packed + b"5678"
    assert not chunks.holds_message_id(shifted, "wanted")
    assert chunks.holds_message_id(shifted + packed, "wanted")
