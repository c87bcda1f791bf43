"""Static files under an address that changes with their content, so that browsers may keep them for ever."""

from __future__ import annotations

import hashlib
from pathlib import Path

from flask import Response, abort

__all__ = ["Assets"]

_ROOT = Path(__file__).resolve().parent / "static"
# Fixed types: what the system's own table says differs between machines, and nosniff makes it count.
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Assets:
    """The files in static/, read once: they are small, few and do not change while we run."""

    def __init__(self) -> None:
        self._files = {
            path.relative_to(_ROOT).as_posix(): path.read_bytes()
            for path in sorted(_ROOT.rglob("*"))
            if path.suffix in _TYPES
        }
        hashed = hashlib.sha256()
        for name, content in self._files.items():
            hashed.update(f"{name}\0{len(content)}\0".encode() + content)
        self.digest = hashed.hexdigest()[:16]

    def address(self, name: str) -> str:
        """Return the address of a static file.

        Args:
            name: Its path below static/.

        Returns:
            A path with the digest in it; modules that import each other relatively inherit it.
        """
        return f"/static/{self.digest}/{name}"

    def serve(self, digest: str, name: str) -> Response:
        """Answer a request for a static file.

        Args:
            digest: The digest in the address.
            name: The path below static/.

        Returns:
            The file. One asked for by the digest of another release is not kept by the browser.
        """
        content = self._files.get(name)
        if content is None:
            abort(404)
        response = Response(content, content_type=_TYPES[Path(name).suffix])
        current = digest == self.digest
        response.headers["Cache-Control"] = (
            "public, max-age=31536000, immutable" if current else "no-store"
        )
        return response
