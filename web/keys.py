"""The web's one secret and what is signed with it: session tokens, resume tokens, the login cookie.

Each use signs text of a shape of its own (``ses_…``, ``ses_…|position``, a fixed label), so a signature
made for one can never pass for another.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
from pathlib import Path

from celeriac.sessions.errors import ConfigurationError
from celeriac.sessions.settings import Settings

__all__ = ["KEY_FILE", "WebKey", "load_web_key", "write_private_file"]

_log = logging.getLogger(__name__)

KEY_FILE = "session.key"
_RESUME_TOKEN = re.compile(r"([A-Za-z0-9_:-]{1,64})\.([0-9a-f]{16})")


class WebKey:
    """Signs and checks with the session key.

    Args:
        secret: The key itself; it is never shown, not even in a repr.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def _sign(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()

    def session_token(self, session_id: str) -> str:
        """Return the token that opens this session, and no other."""
        return self._sign(session_id)

    def opens(self, session_id: str, token: str) -> bool:
        """Say whether `token` opens the session, in constant time and whatever the two look like."""
        expected = self.session_token(session_id.encode("utf-8", "replace").decode())
        return hmac.compare_digest(expected.encode(), token.encode("utf-8", "replace"))

    def resume_token(self, session_id: str, position: str) -> str:
        """Return a position in the session's event stream, signed for this session only."""
        return f"{position}.{self._sign(f'{session_id}|{position}')[:16]}"

    def position(self, session_id: str, token: str) -> str | None:
        """Return the stream position in a resume token, or None when we did not make it for this session."""
        match = _RESUME_TOKEN.fullmatch(token)
        if match is None:
            return None
        expected = self.resume_token(session_id, match[1])
        return match[1] if hmac.compare_digest(expected, token) else None

    def cookie_secret(self) -> str:
        """Return the key of the signed login cookie."""
        return self._sign("celeriac login cookie")

    def fingerprint(self, token_digest: str) -> str:
        """Return what a login cookie keeps of an operator's token, so that a changed token ends the login."""
        return self._sign(f"operator token {token_digest}")[:16]


def load_web_key(settings: Settings) -> WebKey:
    """Take the key from the settings, else from a file that is made at the first start.

    Args:
        settings: Holds `session_key` and `data_dir`.

    Returns:
        The key; the same one in every web process that shares the settings.

    Raises:
        ConfigurationError: The setting is empty, or the file cannot be made or read.
    """
    if settings.session_key is not None:
        secret = settings.session_key.get_secret_value()
        if not secret.strip():
            raise ConfigurationError(
                "CELERIAC_SESSION_KEY is set but empty; unset it or give it a long random text."
            )
        if len(secret) < 16:
            _log.warning(
                "CELERIAC_SESSION_KEY is short (%d characters); use 32 or more.", len(secret)
            )
        return WebKey(secret.encode())
    return WebKey(_key_from_file(settings.data_dir / KEY_FILE))


def _key_from_file(path: Path) -> bytes:
    try:
        if not path.exists():
            _make_key_file(path)
        secret = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"The session key file {str(path)!r} cannot be used ({error}); fix it or set CELERIAC_SESSION_KEY."
        ) from error
    if len(secret) < 32:
        raise ConfigurationError(
            f"The session key file {str(path)!r} is damaged; delete it to get a new key (session tokens "
            "made with the old one end), or set CELERIAC_SESSION_KEY."
        )
    return secret.encode()


def _make_key_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = write_private_file(path, secrets.token_hex(32))
    try:
        # A link fails when the name exists: of several web processes that start together one wins,
        # and nobody ever reads a half-written key.
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        draft.unlink()
    _log.warning(
        "CELERIAC_SESSION_KEY is not set; made a key for session tokens in %s. Web processes elsewhere "
        "need the same key.",
        path,
    )


def write_private_file(path: Path, text: str) -> Path:
    """Write `text` to a new file beside `path` that only this user can read.

    Args:
        path: The file that the new one will become.
        text: What it holds.

    Returns:
        The new file, for the caller to link or rename into place.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
    return draft
