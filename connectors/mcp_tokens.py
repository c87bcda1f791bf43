"""Where the OAuth tokens for MCP servers are kept: one file for each server, on the machine of the worker.

They are never in the session store. All workers of a machine share the files; whoever renews a token holds the
file's lock meanwhile, because a refresh token may often be used only once.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from celeriac.connectors.mcp_config import HttpServer
from celeriac.sessions.errors import ConfigurationError
from celeriac.sessions.settings import Settings

__all__ = ["TokenFile", "TokenRecord", "token_file", "token_files_of", "token_folder"]

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.02
_MARGIN_SECONDS = 30.0
"""A token is renewed so long before it expires, or a tenth of its life if that is less."""


class TokenRecord(BaseModel):
    """What is known of one server's authorisation."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    access_token: str | None = None
    refresh_token: str | None = None
    obtained_at: float = 0.0
    """Unix time in seconds."""
    expires_at: float | None = None
    """Unix time in seconds; None is not known."""
    scope: str | None = None
    """What was granted, with spaces between."""
    wanted_scope: str | None = None
    """What the server wanted in addition, since; the next login asks for it."""
    client: dict[str, JsonValue] | None = None
    """The client as it was registered, if that was done here."""
    authorization_server: dict[str, JsonValue] | None = None
    """Its metadata."""
    protected_resource: dict[str, JsonValue] | None = None
    """The server's metadata."""

    def is_stale(self) -> bool:
        """Whether the access token is to be renewed before it is used."""
        if self.access_token is None:
            return True
        if self.expires_at is None:
            return False
        margin = min(_MARGIN_SECONDS, (self.expires_at - self.obtained_at) / 10)
        return time.time() >= self.expires_at - margin

    def is_expired(self) -> bool:
        """Whether the access token cannot be used any more."""
        return self.access_token is None or (
            self.expires_at is not None and time.time() >= self.expires_at
        )

    def secrets(self) -> set[str]:
        """Return what must not be shown."""
        secret = (self.client or {}).get("client_secret")
        found = {self.access_token, self.refresh_token, str(secret) if secret else None}
        return {value for value in found if value}

    def __repr__(self) -> str:
        return f"TokenRecord(expires_at={self.expires_at}, scope={self.scope!r})"

    __str__ = __repr__


class TokenFile:
    """One server's record on disk.

    Args:
        path: The file; its folder is made when something is written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[tuple[int, int, int], TokenRecord] | None = None

    def load(self) -> TokenRecord | None:
        """Return the record as it is now; None if there is none.

        Raises:
            ConfigurationError: The file cannot be read.
        """
        try:
            found = self.path.stat()
            mark = (found.st_ino, found.st_mtime_ns, found.st_size)
            if self._read is None or self._read[0] != mark:
                text = self.path.read_bytes()
                self._read = (mark, TokenRecord.model_validate_json(text))
        except FileNotFoundError:
            self._read = None
            return None
        except ValidationError:
            # Without pydantic's words: they may show a token.
            raise ConfigurationError(
                f"{self.path} holds no tokens that can be read: delete it, and log in again"
            ) from None
        except OSError as error:
            raise ConfigurationError(f"The tokens in {self.path} cannot be read: {error}") from None
        return self._read[1]

    def save(self, record: TokenRecord) -> None:
        """Replace the record, as a whole and for good. Call it with the lock held.

        Raises:
            ConfigurationError: It cannot be written.
        """
        text = json.dumps(record.model_dump(mode="json", exclude_none=True), indent=1)
        new = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
        try:
            _make_folder(self.path.parent)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                new.replace(self.path)
            except BaseException:
                new.unlink(missing_ok=True)
                raise
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise ConfigurationError(
                f"The tokens cannot be written to {self.path}: {error}"
            ) from None

    def delete(self) -> bool:
        """Delete the record; call it with the lock held.

        Returns:
            Whether there was one.
        """
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True

    @asynccontextmanager
    async def locked(self, seconds: float) -> AsyncIterator[None]:
        """Keep every other process, and every other task of this one, from renewing the tokens.

        Args:
            seconds: How long to wait for it.

        Raises:
            TimeoutError: Somebody else holds it for longer.
            ConfigurationError: The lock cannot be taken.
        """
        # Never deleted: whoever waits for it must wait for the same file as who comes later.
        path = self.path.with_name(f"{self.path.name}.lock")
        try:
            _make_folder(path.parent)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be opened: {error}") from None
        try:
            async with asyncio.timeout(seconds):
                while not _lock(descriptor):
                    await asyncio.sleep(_LOOK_SECONDS)
            yield
        finally:
            os.close(descriptor)  # which unlocks it, as the end of the process does


def _lock(descriptor: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        if folder.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            _log.warning("%s holds tokens, and others may enter it: chmod 700 %s", folder, folder)
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)


def token_folder(settings: Settings) -> Path:
    """Return the folder with the files of all servers.

    Args:
        settings: The settings.
    """
    return (settings.mcp_token_dir or settings.data_dir / "mcp-tokens").resolve()


def token_file(folder: Path, name: str, server: HttpServer, values: Mapping[str, str]) -> TokenFile:
    """Return the file of one server.

    What the tokens are for is part of its name, so that a token is never sent to another address, nor used in the
    name of another client, because the configuration changed.

    Args:
        folder: The folder of all.
        name: The server's name.
        server: The server; it has `oauth`.
        values: The values by variable of the worker.
    """
    oauth = server.oauth
    if oauth is None:
        raise ConfigurationError(f"MCP server {name} has no `oauth`")
    client = values[oauth.client_id_env] if oauth.client_id_env else oauth.client_metadata_url
    what = [server.url, oauth.grant, oauth.issuer, client, sorted(oauth.scopes)]
    digest = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]
    return TokenFile(folder / f"{name}-{digest}.json")


def token_files_of(folder: Path, name: str) -> list[TokenFile]:
    """Return all files of a server's name, those of an earlier configuration included."""
    pattern = re.compile(rf"{re.escape(name)}-[0-9a-f]{{16}}\.json")
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return [TokenFile(path) for path in found if pattern.fullmatch(path.name)]
