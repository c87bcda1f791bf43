"""What an MCP server's tools are called where a model reads them.

The rule, which never depends on other servers, on their order or on the number of tools:

1. ``<server>__<tool>``, each character outside ``[A-Za-z0-9_-]`` replaced by ``_``.
2. Where a character was replaced, or the name would be longer than 64, it is cut to 55 characters and ``_`` and
   8 hexadecimal digits of the server's and the tool's original name are appended.
3. A tool whose name another tool of the agent has gets the digits too (`suffixed_name`).

A server's name holds no ``__`` and does not end with ``_``, so two servers never share a name.
"""

from __future__ import annotations

import hashlib
import re

__all__ = ["SERVER_NAME_PATTERN", "suffixed_name", "tool_name"]

SERVER_NAME_PATTERN = re.compile(r"(?=.{1,32}\Z)[A-Za-z][A-Za-z0-9-]*(?:_[A-Za-z0-9-]+)*")

_LONGEST = 64
_DIGITS = 8


def tool_name(server: str, original: str) -> str:
    """Return the name a model reads.

    Args:
        server: The server's name in the configuration.
        original: The tool's name there; any text.

    Returns:
        A name that every provider takes, the same at every start.
    """
    name = _readable(server, original)
    if name == f"{server}__{original}" and len(name) <= _LONGEST:
        return name
    return suffixed_name(server, original)


def suffixed_name(server: str, original: str) -> str:
    """Return the name with digits that only this tool has."""
    digest = hashlib.sha256(f"{server}\0{original}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{_readable(server, original)[: _LONGEST - _DIGITS - 1]}_{digest[:_DIGITS]}"


def _readable(server: str, original: str) -> str:
    return f"{server}__" + re.sub(r"[^A-Za-z0-9_-]", "_", original)
