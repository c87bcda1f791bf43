"""The file that ``CELERIAC_CONNECTOR_CONFIG_FILE`` names: YAML, or JSON, which is YAML as well.

It holds credentials, so it must be a plain file (never reached through a link) that nobody but the worker's user, or
root, can read or change.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from celeriac.connectors.sdk.raw_connection import RawConnection
from celeriac.connectors.sdk.secrets import Secret
from celeriac.sessions.errors import ConfigurationError

__all__ = ["CONNECTION_NAME_PATTERN", "ConnectionFile"]

CONNECTION_NAME_PATTERN = r"[a-z][a-z0-9_]{0,39}"

_LARGEST_BYTES = 1024 * 1024


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    connector: Annotated[str, Field(min_length=1)]
    configuration: dict[str, JsonValue] = Field(default_factory=dict)
    credentials: dict[str, str] = Field(default_factory=dict)


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    connections: dict[Annotated[str, Field(pattern=rf"^{CONNECTION_NAME_PATTERN}$")], _Entry]


class ConnectionFile:
    """The connections of a file; what it says is read again when the file changed.

    Args:
        path: The file.

    Raises:
        ConfigurationError: It cannot be used; the message says why, and shows nothing that it holds.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._entries: Mapping[str, _Entry] = {}
        self._look()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its connections."""
        return tuple(self._look())

    def read(self, name: str) -> RawConnection | None:
        """Return a connection as the file says now.

        Raises:
            ConfigurationError: The file cannot be used any more.
        """
        entry = self._look().get(name)
        if entry is None:
            return None
        secrets = {field: Secret(value) for field, value in entry.credentials.items()}
        return RawConnection(str(self._path), entry.connector, entry.configuration, secrets)

    def _look(self) -> Mapping[str, _Entry]:
        with self._lock:
            try:
                descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            except OSError as error:
                raise self._unusable(_why_not_opened(error)) from error
            try:
                status = os.fstat(descriptor)
                self._require_private(status)
                seen = (status.st_ino, status.st_mtime_ns, status.st_size)
                if seen != self._seen:
                    with os.fdopen(descriptor, "rb", closefd=False) as file:
                        self._entries = self._parsed(file.read(_LARGEST_BYTES + 1))
                    self._seen = seen
            finally:
                os.close(descriptor)
            return self._entries

    def _require_private(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise self._unusable("it is no plain file")
        if status.st_uid not in {os.geteuid(), 0}:
            raise self._unusable("it belongs to another user; give it to the worker's own")
        if status.st_mode & 0o077:
            mode = stat.S_IMODE(status.st_mode)
            raise self._unusable(f"others can read or change it (mode {mode:04o}); chmod 600 it")

    def _parsed(self, data: bytes) -> Mapping[str, _Entry]:
        if len(data) > _LARGEST_BYTES:
            raise self._unusable("it is larger than 1 MiB")
        try:
            from celeriac.connectors.strict_yaml import load_yaml  # noqa: PLC0415 - of an extra
        except ImportError as error:
            raise ConfigurationError(
                f"A connection file needs an extra, e.g. pip install 'celeriac[stripe]' ({error})"
            ) from error
        try:
            return _File.model_validate(load_yaml(data.decode())).connections
        except ValidationError as error:
            item = error.errors(include_url=False, include_input=False, include_context=False)[0]
            where = ".".join(str(part) for part in item["loc"]) or "file"
            raise self._unusable(f"{where}: {item['msg']}") from None
        except ValueError as error:
            raise self._unusable(f"no YAML: {_position(error)}") from None

    def _unusable(self, why: str) -> ConfigurationError:
        return ConfigurationError(f"CELERIAC_CONNECTOR_CONFIG_FILE: {self._path}: {why}")


def _why_not_opened(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if error.errno == errno.ELOOP:
        return "it is a link; name the file itself"
    return error.strerror or type(error).__name__


def _position(error: ValueError) -> str:
    """Say where YAML is broken, without its text: that may be a credential."""
    cause = error.__cause__
    mark = getattr(cause, "problem_mark", None)
    problem = getattr(cause, "problem", None) or type(cause or error).__name__
    return f"line {mark.line + 1}: {problem}" if mark is not None else str(problem)
