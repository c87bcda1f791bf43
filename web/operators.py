"""Operators: people and programs with a name, a role and a bearer token, as CELERIAC_OPERATORS lists them."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from celeriac.sessions.errors import ConfigurationError
from celeriac.sessions.settings import Settings

__all__ = ["Operator", "Operators", "Role", "load_operators"]

_NAME = re.compile(r"[^\s:,]{1,64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Role(IntEnum):
    """What somebody may do; each role may also do what the ones before it may."""

    NOBODY = 0
    CLIENT = 1
    """May start sessions."""
    VIEWER = 2
    """May read every session."""
    APPROVER = 3
    """May decide about calls."""
    OPERATOR = 4
    """May send messages, stop turns and settle unknown outcomes."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One entry of the setting."""

    name: str
    role: Role
    token_digest: str = field(repr=False)


class Operators:
    """The operators that are configured.

    Args:
        entries: The parsed entries; none means that nobody is configured.
    """

    def __init__(self, entries: Sequence[Operator] = ()) -> None:
        self._entries = tuple(entries)

    def __bool__(self) -> bool:
        """Whether anybody is configured."""
        return bool(self._entries)

    def __iter__(self) -> Iterator[Operator]:
        """Every entry."""
        return iter(self._entries)

    def find(self, token: str) -> Operator | None:
        """Return whose token this is; every entry is compared, each in constant time."""
        digest = hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
        found = None
        for entry in self._entries:
            if hmac.compare_digest(entry.token_digest, digest):
                found = entry
        return found


def load_operators(settings: Settings) -> Operators:
    """Read the operators setting.

    Args:
        settings: Holds `operators`: ``name:role:sha256-of-token``, several with commas.

    Returns:
        The operators; empty when the setting is unset.

    Raises:
        ConfigurationError: An entry is malformed; the message names the entry and never its token.
    """
    if settings.operators is None:
        return Operators()
    entries = settings.operators.get_secret_value().split(",")
    parsed = [
        _parse(number, text.strip()) for number, text in enumerate(entries, 1) if text.strip()
    ]
    return Operators(parsed)


def _parse(number: int, text: str) -> Operator:
    parts = [part.strip() for part in text.split(":")]
    if len(parts) != 3:
        # Without its three parts nobody knows which one is the token, so none is shown.
        raise ConfigurationError(
            f"CELERIAC_OPERATORS, entry {number}: must be name:role:sha256-of-token, "
            f"but has {len(parts)} part(s)."
        )
    name, role_name, digest = parts
    where = f"CELERIAC_OPERATORS, entry {number} ({name!r})"
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError(f"{where}: the name must be 1 to 64 characters without spaces.")
    roles = {role.name.lower(): role for role in Role if role is not Role.NOBODY}
    if role_name not in roles:
        raise ConfigurationError(f"{where}: the role must be one of {', '.join(roles)}.")
    if _DIGEST.fullmatch(digest.lower()) is None:
        raise ConfigurationError(
            f"{where}: the third part must be the SHA-256 of the token in 64 hex digits, "
            "never the token itself."
        )
    return Operator(name=name, role=roles[role_name], token_digest=digest.lower())
