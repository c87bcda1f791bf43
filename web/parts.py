"""What one web application is made of, and how a request finds it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from flask import current_app

from celeriac.sessions.client import SessionClient
from celeriac.sessions.settings import Settings
from celeriac.web.assets import Assets
from celeriac.web.keys import WebKey
from celeriac.web.operators import Operators
from celeriac.web.proxies import Proxies
from celeriac.web.stream import Streams

__all__ = ["EXTENSION", "Parts", "parts"]

EXTENSION = "celeriac"


@dataclass
class Parts:
    """Everything a view needs besides its request."""

    settings: Settings
    key: WebKey
    operators: Operators
    proxies: Proxies
    streams: Streams
    assets: Assets
    given_client: SessionClient | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def client(self) -> SessionClient:
        """The session client, opened by the first request: a connection must not cross a fork."""
        if self.given_client is None:
            with self._lock:
                if self.given_client is None:
                    # Celery takes a while to load; what only shows routes or serves a test does without.
                    from celeriac.tasks.dispatch import open_client  # noqa: PLC0415

                    self.given_client = open_client(self.settings)
        return self.given_client


def parts() -> Parts:
    """Return the parts of the application that answers this request."""
    here: Parts = current_app.extensions[EXTENSION]
    return here
