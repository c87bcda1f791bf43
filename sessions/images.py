"""Images in messages: what is taken, recognised by its bytes alone, and how a message names it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from celeriac.sessions.errors import InvalidRequest
from celeriac.sessions.ids import image_id
from celeriac.sessions.jsonsafe import clean_text

__all__ = [
    "IMAGE_TOKENS",
    "Image",
    "ImageReference",
    "image_words",
    "media_type_of",
    "read_image",
]

IMAGE_TOKENS = 1_600
"""What an image counts for when the size of a context is estimated: Anthropic counts at most about 1,600 (width x
height / 750, scaled down to 1,568 pixels), OpenAI between 85 and about 1,500."""
_NAME_CHARACTERS = 100


class ImageReference(BaseModel):
    """An image of a message; its bytes are kept beside the conversation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    """``img_`` and a digest of the bytes: the same image is kept once in a session."""
    media_type: str
    bytes: int
    width: int | None = None
    """In pixels, as far as its header says so."""
    height: int | None = None
    name: str = ""
    """The file's name as the sender gave it."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image that was sent."""

    reference: ImageReference
    data: bytes


def read_image(data: bytes, name: str = "", *, max_bytes: int) -> Image:
    """Check an image that somebody sent.

    Args:
        data: Its bytes; they alone say what it is.
        name: Its file name, for people.
        max_bytes: Largest size that is taken.

    Returns:
        The image.

    Raises:
        InvalidRequest: Codes ``not_an_image`` and ``image_too_large``.
    """
    label = clean_text(name).strip()[-_NAME_CHARACTERS:]
    shown = f"The image {label!r}" if label else "The image"
    if len(data) > max_bytes:
        raise InvalidRequest(
            f"{shown} has {len(data):,} bytes; the limit is {max_bytes:,}. Send a smaller one.",
            code="image_too_large",
        )
    media_type = media_type_of(data)
    if media_type is None:
        raise InvalidRequest(
            f"{shown} is no PNG, JPEG, GIF or WebP. Convert it to one of these.",
            code="not_an_image",
        )
    width, height = _SIZES[media_type](data) or (None, None)
    reference = ImageReference(
        id=image_id(data),
        media_type=media_type,
        bytes=len(data),
        width=width,
        height=height,
        name=label,
    )
    return Image(reference, data)


def media_type_of(data: bytes) -> str | None:
    """Return the media type that the first bytes of an image say; None for anything else."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return None


def image_words(images: Sequence[ImageReference], why: str) -> str:
    """Return what stands for images that are not sent themselves.

    Args:
        images: The images.
        why: Why they are not.
    """
    return "\n".join(f"[image {_told(one)}; {why}]" for one in images)


def _told(image: ImageReference) -> str:
    size = f", {image.width} x {image.height} pixels" if image.width else ""
    name = f"{image.name!r}, " if image.name else ""
    return f"{name}{image.media_type}, {image.bytes:,} bytes{size}"


def _png_size(data: bytes) -> tuple[int, int] | None:
    if data[12:16] != b"IHDR" or len(data) < 24:
        return None
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def _gif_size(data: bytes) -> tuple[int, int] | None:
    if len(data) < 10:
        return None
    return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")


def _webp_size(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X" and len(data) >= 30:
        wide, high = data[24:27], data[27:30]
        return int.from_bytes(wide, "little") + 1, int.from_bytes(high, "little") + 1
    if kind == b"VP8L" and len(data) >= 25:
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and len(data) >= 30:
        wide, high = data[26:28], data[28:30]
        return int.from_bytes(wide, "little") & 0x3FFF, int.from_bytes(high, "little") & 0x3FFF
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            high, wide = data[at + 5 : at + 7], data[at + 7 : at + 9]
            return int.from_bytes(wide, "big"), int.from_bytes(high, "big")
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


_SIZES: dict[str, Callable[[bytes], tuple[int, int] | None]] = {
    "image/png": _png_size,
    "image/jpeg": _jpeg_size,
    "image/gif": _gif_size,
    "image/webp": _webp_size,
}
