"""Small images of every kind that is taken, made by hand."""

from __future__ import annotations

import struct
import zlib

__all__ = ["GIF", "JPEG", "SVG", "WEBP", "png"]

GIF = b"GIF89a\x03\x00\x02\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff,\x00\x00\x00\x00\x03\x00\x02\x00\x00\x02\x03\x84\x7f\x05\x00;"
JPEG = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
    b"\xff\xc0\x00\x11\x08\x00\x02\x00\x03\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01\xff\xd9"
)
WEBP = b"RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00/\x02\x40\x00\x00\x07\x10\x11\x11\x88\x88\xfe\x07\x00"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


def png(width: int = 3, height: int = 2, *, padding: int = 0) -> bytes:
    """A black picture; `padding` makes it larger by about so many bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = b"".join(b"\x00" + b"\x00" * width for _ in range(height))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
        + (chunk(b"tEXt", b"c\x00" + b"x" * padding) if padding else b"")
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
