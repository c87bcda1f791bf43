"""The web application, made before gunicorn forks, its connections watched as in `forked_agents`."""

from __future__ import annotations

from celeriac.web import create_app
from tests.tasks import forked_agents

__all__ = ["app", "forked_agents"]

app = create_app()
