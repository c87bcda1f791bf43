"""How the web is started: ``python -m celeriac.web.serve`` checks the settings and becomes gunicorn."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from celeriac.sessions.errors import ConfigurationError
from celeriac.sessions.settings import Settings, load_settings
from celeriac.web.keys import load_web_key
from celeriac.web.logins import issue_login_code, login_address
from celeriac.web.operators import load_operators
from celeriac.web.proxies import load_proxies

__all__ = ["LOGIN_LINK", "command", "main"]

LOGIN_LINK = "login link: "
"""How the line begins that holds the link, on standard output."""


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


def main(arguments: list[str] | None = None) -> NoReturn:
    """Check what the web needs, then become gunicorn.

    Args:
        arguments: Those of the command line; ``--login-link`` prints a link that logs one browser in.

    Raises:
        SystemExit: A setting cannot be used; standard error says which.
    """
    parser = argparse.ArgumentParser(prog="celeriac.web.serve", description="Serve API and pages.")
    parser.add_argument("--login-link", action="store_true", help="print a one-time login link")
    chosen = parser.parse_args(arguments)
    try:
        settings = _checked_settings()
        if chosen.login_link:
            link = login_address(settings, issue_login_code(settings))
            sys.stdout.write(f"{LOGIN_LINK}{link}\n")
            sys.stdout.flush()
    except ConfigurationError as error:
        sys.stderr.write(f"celeriac web: {error}\n")
        sys.exit(2)
    argv = command(settings)
    os.execv(argv[0], argv)  # noqa: S606 - our own command, without a shell


def _checked_settings() -> Settings:
    """Find out here what is wrong: one line, and not a traceback from each process."""
    settings = load_settings()
    load_web_key(settings)
    load_operators(settings)
    load_proxies(settings)
    return settings


if __name__ == "__main__":
    main()
