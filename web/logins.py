"""One-time login codes: how whoever started the server gets a browser in without a password.

The code is a file that only this user can read. Whoever deletes it has used it up, and a file can be
deleted once.
"""

from __future__ import annotations

import hmac
import secrets
from pathlib import Path

from celeriac.sessions.errors import ConfigurationError
from celeriac.sessions.settings import Settings
from celeriac.web.keys import write_private_file

__all__ = ["CODE_FILE", "consume_login_code", "issue_login_code", "login_address"]

CODE_FILE = "login.code"


def issue_login_code(settings: Settings) -> str:
    """Make a code that logs one browser in; it replaces an earlier one that nobody used.

    Args:
        settings: Holds `data_dir`, where the code waits.

    Returns:
        The code, to be shown to the person who started the server and to nobody else.

    Raises:
        ConfigurationError: The data directory cannot be written.
    """
    path = settings.data_dir / CODE_FILE
    code = secrets.token_urlsafe(24)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private_file(path, code).replace(path)
    except OSError as error:
        raise ConfigurationError(
            f"CELERIAC_DATA_DIR {str(settings.data_dir)!r} cannot be written ({error})."
        ) from error
    return code


def login_address(settings: Settings, code: str) -> str:
    """Return the link that a person opens to log in with `code`."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}/login?code={code}"


def consume_login_code(settings: Settings, code: str) -> bool:
    """Use a code up.

    Args:
        settings: Holds `data_dir`.
        code: What the browser sent.

    Returns:
        Whether the code was right and this request is the one that used it.
    """
    path = settings.data_dir / CODE_FILE
    stored = _read(path)
    if not stored or not hmac.compare_digest(stored.encode(), code.encode("utf-8", "replace")):
        return False
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""
