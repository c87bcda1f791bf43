"""How people and programs reach it.

``create_app`` makes the WSGI application: ``gunicorn 'celeriac.web:create_app()'``. The process that runs it
never loads a model client, a tool or a step.
"""

from __future__ import annotations

from flask import Flask

from celeriac.sessions.client import SessionClient
from celeriac.sessions.settings import Settings, load_settings
from celeriac.web.api_audit import api_audit
from celeriac.web.api_calls import api_calls
from celeriac.web.api_chat import api_chat
from celeriac.web.api_events import api_events
from celeriac.web.api_images import api_images
from celeriac.web.api_inbox import api_inbox
from celeriac.web.api_openapi import api_openapi
from celeriac.web.api_operations import api_operations
from celeriac.web.api_sessions import api_sessions
from celeriac.web.assets import Assets
from celeriac.web.filters import register_filters
from celeriac.web.keys import load_web_key
from celeriac.web.operators import load_operators
from celeriac.web.page_actions import page_actions
from celeriac.web.page_approvals import page_approvals
from celeriac.web.page_audit import page_audit
from celeriac.web.page_login import page_login
from celeriac.web.page_operations import page_operations
from celeriac.web.page_sessions import page_sessions
from celeriac.web.parts import EXTENSION, Parts
from celeriac.web.problems import register_problems
from celeriac.web.proxies import load_proxies
from celeriac.web.request_log import register_request_ids
from celeriac.web.security import register_security
from celeriac.web.stream import Streams, stream_cap

__all__ = ["create_app"]


def create_app(client: SessionClient | None = None, settings: Settings | None = None) -> Flask:
    """Make the web application.

    Args:
        client: Reaches the sessions; by default one is opened by the first request.
        settings: By default they are read from the environment.

    Returns:
        The Flask application, ready for any WSGI server with threads.

    Raises:
        ConfigurationError: A setting cannot be used; the message names it.
    """
    settings = settings or load_settings()
    key = load_web_key(settings)
    app = Flask(__name__, static_folder=None)
    here = Parts(
        settings=settings,
        key=key,
        operators=load_operators(settings),
        proxies=load_proxies(settings),
        streams=Streams(stream_cap(settings.web_threads)),
        assets=Assets(),
        given_client=client,
    )
    app.extensions[EXTENSION] = here
    # Order matters: the checks come before any view, so every blueprint is behind them.
    register_request_ids(app)
    register_security(app, key, host=settings.host, port=settings.port)
    register_problems(app)
    register_filters(app)
    app.add_url_rule("/static/<digest>/<path:name>", "static", here.assets.serve)
    for blueprint in (
        api_sessions,
        api_calls,
        api_events,
        api_inbox,
        api_audit,
        api_operations,
        api_chat,
        api_images,
        api_openapi,
    ):
        app.register_blueprint(blueprint)
    for blueprint in (
        page_sessions,
        page_actions,
        page_approvals,
        page_audit,
        page_operations,
        page_login,
    ):
        app.register_blueprint(blueprint)
    return app
