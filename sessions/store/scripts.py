"""The Lua scripts, loaded once and called by digest."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from redis.exceptions import NoScriptError

from celeriac.sessions.store.connection import DirectConnections

__all__ = [
    "CLAIM",
    "COMMIT",
    "LOAD",
    "MESSAGES",
    "MISSING_LIVES",
    "RENEW",
    "SNAPSHOT",
    "TAKE_DUE",
    "Argument",
    "Script",
]

Argument = str | bytes | int

_FOLDER = Path(__file__).parent / "lua"


class Script:
    """A script of this package.

    Args:
        name: Its file name in ``lua/``, without the suffix.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.source = (_FOLDER / f"{name}.lua").read_text()
        self._digest = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    def run(
        self,
        connections: DirectConnections,
        keys: Sequence[str],
        arguments: Sequence[Argument] = (),
    ) -> object:
        """Run it; the first time on a server its source is sent along."""
        try:
            return connections.run("EVALSHA", self._digest, len(keys), *keys, *arguments)
        except NoScriptError:
            return connections.run("EVAL", self.source, len(keys), *keys, *arguments)


LOAD = Script("load")
CLAIM = Script("claim")
COMMIT = Script("commit")
RENEW = Script("renew")
TAKE_DUE = Script("take_due")
SNAPSHOT = Script("snapshot")
MISSING_LIVES = Script("missing_lives")
MESSAGES = Script("messages")
