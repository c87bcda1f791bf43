"""Request ids, in answers and logs, and how gunicorn writes its logs."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Mapping

from flask import Flask, Response, g, request

from celeriac.sessions.ids import is_session_id
from celeriac.tasks.logs import JsonFormatter, LogFormat, TextFormatter, set_log_facts

__all__ = ["about_request", "log_config", "register_request_ids", "request_id"]

REQUEST_ID_HEADER = "X-Request-ID"
_GIVEN = re.compile(r"[A-Za-z0-9_.:-]{8,64}")
_QUIET_PATHS = ("/healthz", "/readyz", "/metrics", "/static/", "/favicon.ico")


def register_request_ids(app: Flask) -> None:
    """Give every request of `app` an id: the proxy's, or a new one. It is in the answer and in the logs.

    Args:
        app: The application.
    """
    app.before_request(_begin)
    app.after_request(_tell)


def _begin() -> None:
    given = request.headers.get(REQUEST_ID_HEADER, "")
    g.request_id = given if _GIVEN.fullmatch(given) else secrets.token_hex(8)
    facts: dict[str, object] = {"request_id": g.request_id}
    session_id = (request.view_args or {}).get("sid", "")
    if is_session_id(session_id):
        facts["session_id"] = session_id
    set_log_facts(facts)


def _tell(response: Response) -> Response:
    response.headers[REQUEST_ID_HEADER] = request_id()
    return response


def request_id() -> str:
    """Return the id of this request."""
    found: str = g.get("request_id", "")
    return found


def about_request(record: logging.LogRecord) -> bool:
    """Give gunicorn's record of a request its facts, and keep probes and static files out.

    Args:
        record: Its arguments are gunicorn's mapping of fields.

    Returns:
        Whether it is worth reading.
    """
    fields = record.args
    if not isinstance(fields, Mapping):
        return True
    record.facts = {
        "client": fields["h"],
        "method": fields["m"],
        "path": fields["U"],
        "status": int(str(fields["s"])),
        "bytes": fields["B"],
        "duration_ms": fields["M"],
        "request_id": fields["{x-request-id}o"],
    }
    return not str(fields["U"]).startswith(_QUIET_PATHS)


def _text(pattern: str, dates: str | None = None) -> TextFormatter:
    return TextFormatter(logging.Formatter(pattern, dates))


def log_config(log_format: LogFormat, level: str) -> dict[str, object]:
    """Return gunicorn's logging configuration.

    Args:
        log_format: How lines are written.
        level: From which level on our own lines are.
    """
    json = log_format == "json"
    line = "%(asctime)s [%(process)d] [%(levelname)s] %(message)s"
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"about_request": {"()": lambda: about_request}},
        "formatters": {
            "line": {
                "()": JsonFormatter if json else lambda: _text(line, "[%Y-%m-%d %H:%M:%S %z]")
            },
            "request": {"()": JsonFormatter if json else lambda: _text("%(message)s")},
        },
        "handlers": {
            "errors": {"class": "logging.StreamHandler", "formatter": "line"},
            "requests": {
                "class": "logging.StreamHandler",
                "formatter": "request",
                "filters": ["about_request"],
                "stream": "ext://sys.stdout",
            },
        },
        "root": {"level": "WARNING", "handlers": ["errors"]},
        "loggers": {
            "celeriac": {"level": level},
            "gunicorn.error": {"level": "INFO", "handlers": ["errors"], "propagate": False},
            "gunicorn.access": {"level": "INFO", "handlers": ["requests"], "propagate": False},
        },
    }
