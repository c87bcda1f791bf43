"""How the web is started."""

from __future__ import annotations

import sys
from pathlib import Path

from celeriac.sessions.settings import Settings

__all__ = ["command"]


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
