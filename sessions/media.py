"""Images and sounds in a tool's result: the model reads a placeholder, never their bytes as text. Pure.

Recognised are content blocks with base64 data, as MCP, Anthropic and OpenAI write them; ``data:`` URLs, alone or
within a text; and images that were returned as bytes.
"""

from __future__ import annotations

import re

from pydantic import JsonValue

__all__ = ["without_media"]

_MEDIA_TYPE = r"(?:image|audio|video)/[\w.+-]+"
_DATA_URL = re.compile(rf"data:({_MEDIA_TYPE})(?:;[\w.+=-]+)*;base64,([A-Za-z0-9+/_=\s-]*)")
_MAGIC = {
    "iVBORw0KGgo": "image/png",
    "/9j/": "image/jpeg",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
}
"""How the base64 of an image begins."""
_LEAST_CHARACTERS = 64
"""Shorter data costs no more than its placeholder."""


def without_media(value: JsonValue) -> JsonValue:
    """Replace images and sounds by what they are: their type and their size in bytes.

    Args:
        value: A tool's result.

    Returns:
        The same value with a placeholder, a text, in the place of each.
    """
    if isinstance(value, str):
        return _DATA_URL.sub(_of_url, value) if "data:" in value else value
    if isinstance(value, list):
        return [without_media(item) for item in value]
    if isinstance(value, dict):
        return _of_block(value) or {key: without_media(item) for key, item in value.items()}
    return value


def _of_url(found: re.Match[str]) -> str:
    return _placeholder(found[1], found[2])


def _of_block(block: dict[str, JsonValue]) -> str | None:
    """Return the placeholder of a block that is an image or a sound, and nothing else."""
    kind = block.get("type")
    source = block.get("source")
    if isinstance(source, dict) and kind == "image":
        return _named(source.get("media_type"), source.get("data"))
    if kind == "image" or kind == "audio":  # noqa: PLR1714 - it may be anything, also not hashable
        return _named(block.get("mimeType") or str(kind), block.get("data"))
    if "blob" in block:
        return _named(block.get("mimeType"), block["blob"])
    if set(block) == {"base64"}:
        data = block["base64"]
        magic = (name for begin, name in _MAGIC.items() if str(data).startswith(begin))
        return _named(next(magic, None), data)
    return None


def _named(media_type: JsonValue, data: JsonValue) -> str | None:
    if not isinstance(data, str) or not isinstance(media_type, str):
        return None
    if len(data) < _LEAST_CHARACTERS or not media_type.startswith(("image", "audio", "video")):
        return None
    return _placeholder(media_type, data)


def _placeholder(media_type: str, data: str) -> str:
    size = len(data.rstrip("=\n")) * 3 // 4
    kind = media_type.split("/", maxsplit=1)[0]
    return f"[{kind}: {media_type}, {size:,} bytes; not shown to the model]"
