"""A connection as it is written down, and what can read it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pydantic import JsonValue

from celeriac.connectors.sdk.secrets import Secret

__all__ = ["ConnectionReader", "RawConnection"]


@dataclass(frozen=True, slots=True)
class RawConnection:
    """A connection as it is written down, not checked yet."""

    place: str
    """Where it stands, for messages."""
    connector: str
    configuration: Mapping[str, JsonValue]
    credentials: Mapping[str, Secret]


class ConnectionReader(Protocol):
    """A place where connections are written down."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its connections."""

    def read(self, name: str) -> RawConnection | None:
        """Return a connection as it is written down now, if it is.

        Raises:
            ConfigurationError: What is written there cannot be used.
        """
