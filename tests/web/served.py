"""The web over a client that a test can look into, for a server in a process of its own."""

from __future__ import annotations

from flask import Flask

from celeriac.web import create_app
from tests.web.fake_client import FakeClient

SESSION_ID = "ses_" + "0" * 24


def make() -> Flask:
    """An application with one session of a known id."""
    fake = FakeClient()
    session = fake.sessions[fake.create_session().session_id]
    session.id = SESSION_ID
    fake.sessions = {SESSION_ID: session}
    return create_app(fake)
