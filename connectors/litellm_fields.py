"""Reads fields of litellm's objects, which are models, mappings or neither, and of any type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, JsonValue

from celeriac.sessions.jsonsafe import to_json_value

__all__ = ["field_of", "items_of", "json_of", "text_of"]


def field_of(holder: object, name: str) -> object:
    """Return a field, or None."""
    if isinstance(holder, Mapping) and not isinstance(holder, BaseModel):
        return holder.get(name)
    return getattr(holder, name, None)


def text_of(holder: object, name: str) -> str | None:
    """Return a field that is a text and not empty, or None."""
    value = field_of(holder, name)
    return value if isinstance(value, str) and value else None


def items_of(holder: object, name: str) -> Sequence[object]:
    """Return a field that is a list, or nothing."""
    value = field_of(holder, name)
    return value if isinstance(value, list) else ()


def json_of(value: object) -> JsonValue:
    """Return a value as the provider sent it: only what it set, nulls and unknown fields included."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", exclude_unset=True)
    return to_json_value(value)
