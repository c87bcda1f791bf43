"""When work runs: the Celery app (``celery -A celeriac.tasks worker``), the steps, the wake loop, the CLI."""

from __future__ import annotations

from celery import Celery

__all__ = ["app"]


def __getattr__(name: str) -> Celery:
    """Make the app when it is asked for, so that importing a sibling module stays light."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from celeriac.tasks.celery import app  # noqa: PLC0415
    from celeriac.tasks.worker import install  # noqa: PLC0415

    install(app)
    return app
