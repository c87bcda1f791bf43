"""Turn whatever a tool returns into strict JSON, without ever failing a write that happened.

Strict means: UTF-8 with no lone surrogates and no NUL, finite numbers, string keys. The visible text of an
escape (a backslash, a ``u`` and four zeros, say) is ordinary text and stays as it is: values are cleaned,
never serialised JSON.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import re
from collections.abc import Mapping, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from uuid import UUID

from pydantic import BaseModel, JsonValue

__all__ = ["bounded_value", "clean_text", "dump_json", "to_json_value", "truncate_text"]

_UNSTORABLE = re.compile("[\ud800-\udfff\x00]")
_CUT_NOTE = re.compile(r"\n\[cut here: ([\d,]+) bytes in full, [\d,]+ shown\]\Z")
_CUT_NOTE_LENGTH = 80
_MAX_DEPTH = 64
_MAX_INTEGER_BITS = 8_192
# Kept: json.dumps would make a new one at each call.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def clean_text(text: str) -> str:
    """Replace NUL and lone surrogates by U+FFFD; a surrogate pair becomes its character."""
    if text.isascii():
        return text.replace("\x00", "\ufffd") if "\x00" in text else text
    if _UNSTORABLE.search(text) is None:
        return text
    paired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _UNSTORABLE.sub("\ufffd", paired)


def dump_json(value: JsonValue) -> str:
    """Serialise compactly and strictly (no NaN, no ASCII escapes)."""
    return _ENCODER.encode(value)


def to_json_value(value: object) -> JsonValue:
    """Convert any Python value to a JSON value.

    Args:
        value: Whatever a tool returned. Models, dataclasses, dates, decimals, bytes, sets, enums and
            numbers that JSON lacks have documented forms; anything else becomes its ``str()``.

    Returns:
        A value that `dump_json` accepts. Never raises: the tool has run, so its result must be kept.
    """
    return _convert(value, 0)


def _convert(value: object, depth: int) -> JsonValue:
    try:
        return _convert_value(value, depth)
    except Exception:  # noqa: BLE001 - a value that breaks when it is read must not lose the rest
        return _text_of(value)


def _convert_value(value: object, depth: int) -> JsonValue:
    if isinstance(value, Enum):
        return _convert(value.value, depth)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, int | float):
        return _number(value)
    if depth >= _MAX_DEPTH:
        return _text_of(value)
    if isinstance(value, Mapping):
        return {_key(key): _convert(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_convert(item, depth + 1) for item in value]
    return _convert_object(value, depth)


def _number(value: float) -> JsonValue:
    if isinstance(value, int):
        # Python refuses to print longer integers in decimal (4,300 digits by default).
        return int(value) if value.bit_length() <= _MAX_INTEGER_BITS else hex(value)
    return float(value) if math.isfinite(value) else str(value)


def _convert_object(value: object, depth: int) -> JsonValue:
    if isinstance(value, Set):
        items = [_convert(item, depth + 1) for item in value]
        return sorted(items, key=dump_json)
    if isinstance(value, BaseModel):
        return _convert(value.model_dump(mode="python"), depth + 1)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _convert(getattr(value, field.name), depth + 1)
            for field in dataclasses.fields(value)
        }
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes(bytes(value))
    if isinstance(value, Decimal | UUID | PurePath):
        return str(value)
    return _text_of(value)


def _bytes(value: bytes) -> JsonValue:
    try:
        return clean_text(value.decode())
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}


def _key(key: object) -> str:
    return clean_text(key if isinstance(key, str) else str(to_json_value(key)))


def _text_of(value: object) -> str:
    try:
        return clean_text(str(value))
    except Exception as error:  # noqa: BLE001 - a broken __str__ must not lose the outcome
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


def truncate_text(text: str, limit_bytes: int) -> str:
    """Cut text at a size, on a character boundary, and say how long it was.

    Args:
        text: The full text.
        limit_bytes: Most bytes of UTF-8 to keep, the note not counted.

    Returns:
        The text itself when it fits, else its beginning and a note with the full size. That of a text which
        was cut before is the size it had at first.
    """
    encoded = text.encode()
    if len(encoded) <= limit_bytes:
        return text
    kept = encoded[:limit_bytes].decode(errors="ignore")
    cut_before = _CUT_NOTE.search(text[-_CUT_NOTE_LENGTH:])
    full = cut_before[1] if cut_before else f"{len(encoded):,}"
    return f"{kept}\n[cut here: {full} bytes in full, {limit_bytes:,} shown]"


def bounded_value(value: JsonValue, limit_bytes: int) -> JsonValue:
    """Keep a value whole if its text or JSON fits, else the beginning of it as text.

    Args:
        value: A result.
        limit_bytes: Most bytes of UTF-8 to keep.
    """
    text = value if isinstance(value, str) else dump_json(value)
    return value if len(text.encode()) <= limit_bytes else truncate_text(text, limit_bytes)
