"""How the web is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from celeriac.sessions.errors import CeleriacError
from celeriac.sessions.settings import Settings, load_settings
from celeriac.web.logins import issue_login_code

__all__ = ["command", "login_link", "main"]

LOGIN_LINK_PREFIX = "login link: "
"""How the line begins that `main` prints with ``--login-link``; `celeriac dev` waits for it."""


def command(settings: Settings) -> list[str]:
    """Return the command that serves the web; it reads the same settings from its environment.

    Args:
        settings: Says where to listen.

    Returns:
        The arguments, the program first: gunicorn of this very Python.
    """
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return [
        sys.executable,
        "-m",
        "gunicorn",
        "--config",
        str(Path(__file__).resolve().parent / "gunicorn_conf.py"),
        "--bind",
        f"{host}:{settings.port}",
        "celeriac.web:create_app()",
    ]


def login_link(settings: Settings) -> str:
    """Return a link that logs one browser in, once."""
    host = "127.0.0.1" if settings.host in {"127.0.0.1", "0.0.0.0", "localhost"} else settings.host  # noqa: S104
    return f"http://{host}:{settings.port}/login?code={issue_login_code(settings)}"


def main() -> None:
    """Become the web server; with ``--login-link`` print a link first that logs the browser in."""
    try:
        settings = load_settings()
        if "--login-link" in sys.argv[1:]:
            sys.stdout.write(f"{LOGIN_LINK_PREFIX}{login_link(settings)}\n")
            sys.stdout.flush()
    except CeleriacError as error:
        sys.exit(f"celeriac: the web cannot start: {error}")
    argv = command(settings)
    os.execv(argv[0], argv)  # noqa: S606 - our own Python with fixed arguments


if __name__ == "__main__":
    main()
