"""Chunks: many records compressed together. What they hold, and how it is found again. Pure.

A chunk is zstd of lines. Records are JSON, which never has a raw line break or tab in it. The fields of a
session's `chunks` hash are:

=============== ==================================================================================
``m<seq>``      messages from that seq on, one a line
``c<n>``        calls from the n-th packed one on, one a line: id, request, outcome, late result and, where
                the result is not repeated because a tool message says it, which one
``index``       for each packed call 4 bytes of its id's digest and 4 of its chunk's number
``steps``       step history, one entry a line, the oldest first
``ids``         8 bytes of digest for each client message id taken long ago
``packed_to``   seq of the first message that came after the last packing
=============== ==================================================================================
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import zstandard

from celeriac.sessions.calls import CallOutcome, CallRequest, LateResult
from celeriac.sessions.codec import read_record, write_record
from celeriac.sessions.messages import Message

__all__ = [
    "IDS",
    "INDEX",
    "PACKED_TO",
    "STEPS",
    "Chunk",
    "PackedCall",
    "call_field",
    "call_id_of",
    "chunk_numbers",
    "extended",
    "holds_message_id",
    "index_of",
    "message_field",
    "pack_call",
    "pack_lines",
    "pack_message_ids",
    "places_in",
    "unpack_lines",
]

STEPS = "steps"
INDEX = "index"
IDS = "ids"
PACKED_TO = "packed_to"

_FULL = 64 * 1024
"""A chunk of so many bytes, before compression, takes nothing more: pages and packing read whole chunks."""

_WORTH_SHARING = 64
"""Bytes of a text from which on a result is not kept a second time."""

_ID_BYTES = 8
_PLACE = struct.Struct(">4sI")

Chunk = list[bytes]
"""The lines of one chunk."""


def pack_lines(lines: Sequence[bytes]) -> bytes:
    """Compress lines into a chunk."""
    return zstandard.compress(b"\n".join(lines))


def unpack_lines(raw: bytes | None) -> Chunk:
    """Return the lines of a chunk; none for one that does not exist."""
    return zstandard.decompress(raw).split(b"\n") if raw else []


def extended(number: int, lines: Chunk, new: Iterable[bytes]) -> dict[int, Chunk]:
    """Append lines to the last chunk, and begin another one each time that one is full.

    Args:
        number: Number of the last chunk: that of its first line.
        lines: What it holds.
        new: The lines to append.

    Returns:
        The chunks that changed, by number.
    """
    last = list(lines)
    changed: dict[int, Chunk] = {}
    size = sum(map(len, last))
    for line in new:
        if size >= _FULL:
            number += len(last)
            last = []
            size = 0
        last.append(line)
        size += len(line)
        changed[number] = last
    return changed


def message_field(number: int) -> str:
    """Return the field of the chunk whose first message has that seq."""
    return f"m{number}"


def call_field(number: int) -> str:
    """Return the field of the chunk whose first call is the packed one of that number."""
    return f"c{number}"


def chunk_numbers(fields: Iterable[str], letter: str) -> list[int]:
    """Return the numbers of the chunks of one kind (``m`` or ``c``), in order."""
    return sorted(int(field[1:]) for field in fields if field[:1] == letter and field[1:].isdigit())


# --- calls


@dataclass(frozen=True, slots=True)
class PackedCall:
    """A call as it is in a chunk."""

    id: str
    request: CallRequest
    outcome: CallOutcome
    """Without its result, where a message has it."""
    late: LateResult | None = None
    result_seq: int | None = None
    """Seq of the tool message whose text is the result."""
    result_is_json: bool = False

    @staticmethod
    def read(line: bytes) -> PackedCall:
        """Read what `pack_call` wrote."""
        call_id, request, outcome, late, told = line.split(b"\t")
        return PackedCall(
            id=call_id.decode(),
            request=read_record(CallRequest, request),
            outcome=read_record(CallOutcome, outcome),
            late=read_record(LateResult, late) if late else None,
            result_seq=int(told[1:]) if told else None,
            result_is_json=told[:1] == b"j",
        )

    def with_result(self, text: str) -> PackedCall:
        """Return the whole call, given the text of the message that has the result."""
        result = json.loads(text) if self.result_is_json else text
        outcome = self.outcome.model_copy(update={"result": result})
        return replace(self, outcome=outcome, result_seq=None)


def call_id_of(line: bytes) -> bytes:
    """Return the Call ID of a line of a chunk."""
    return line.split(b"\t", 1)[0]


def pack_call(
    call_id: bytes, request: bytes, outcome: bytes, late: bytes, message: Message | None
) -> bytes:
    """Write a settled call as a line of a chunk.

    Args:
        call_id: The call.
        request: Its request, as stored.
        outcome: Its outcome, as stored.
        late: Its late result, as stored; empty when there is none.
        message: The tool message that told the model, if it is known. Where its text is the whole result,
            the line names the message instead of repeating it.

    Returns:
        The line.
    """
    if message is not None and len(message.text) >= _WORTH_SHARING:
        settled = read_record(CallOutcome, outcome)
        kind = "t" if isinstance(settled.result, str) else "j"
        rest = write_record(settled.model_copy(update={"result": None})).encode()
        told = f"{kind}{message.seq}".encode()
        line = b"\t".join((call_id, request, rest, late, told))
        if _holds(line, message.text, outcome):
            return line
    return b"\t".join((call_id, request, outcome, late, b""))


def _holds(line: bytes, text: str, outcome: bytes) -> bool:
    """Whether a line and the text of its message make up an outcome, byte for byte."""
    try:
        restored = PackedCall.read(line).with_result(text).outcome
    except ValueError:  # the text is no JSON
        return False
    return write_record(restored).encode() == outcome


def index_of(old: bytes, chunks: Mapping[int, Chunk]) -> bytes:
    """Bring the index up to date.

    Args:
        old: The index before.
        chunks: The chunks that are written anew, by number; an empty one is gone.

    Returns:
        The index after.
    """
    kept = [_PLACE.pack(*place) for place in _PLACE.iter_unpack(old) if place[1] not in chunks]
    new = [
        _PLACE.pack(_digest(call_id_of(line), 4), number)
        for number, lines in chunks.items()
        for line in lines
    ]
    return b"".join([*kept, *new])


def places_in(index: bytes, call_ids: Iterable[bytes]) -> set[int]:
    """Return the numbers of the chunks that may hold these calls (digests are short: not all do)."""
    wanted = {_digest(call_id, 4) for call_id in call_ids}
    return {number for digest, number in _PLACE.iter_unpack(index) if digest in wanted}


# --- client message ids


def pack_message_ids(old: bytes, message_ids: Iterable[bytes]) -> bytes:
    """Add client message ids to the packed ones."""
    return old + b"".join(_digest(message_id, _ID_BYTES) for message_id in message_ids)


def holds_message_id(packed: bytes, message_id: str) -> bool:
    """Say whether a client message id is among the packed ones."""
    digest = _digest(message_id.encode(), _ID_BYTES)
    at = packed.find(digest)
    while at % _ID_BYTES and at != -1:
        at = packed.find(digest, at + 1)
    return at != -1


def _digest(text: bytes, size: int) -> bytes:
    return blake2b(text, digest_size=size).digest()
