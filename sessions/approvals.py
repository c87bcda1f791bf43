"""What an approval is bound to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from pydantic import JsonValue

from celeriac.sessions.jsonsafe import dump_json
from celeriac.sessions.tools import ToolDefinition

__all__ = ["approval_digest"]


def approval_digest(definition: ToolDefinition, arguments: Mapping[str, JsonValue]) -> str:
    """Return the digest of all that a person relies on when approving a call.

    Args:
        definition: The tool as it is defined now.
        arguments: The call's exact arguments.

    Returns:
        32 hexadecimal digits; another tool text, schema, effect or argument gives others.
    """
    content = dump_json([definition.digest, dict(arguments)])
    return hashlib.sha256(content.encode()).hexdigest()[:32]
