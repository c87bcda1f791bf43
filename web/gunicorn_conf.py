"""How gunicorn runs the web: threads, because each open event stream holds one (measured)."""

from __future__ import annotations

import logging
import signal
from collections.abc import Mapping
from types import FrameType
from typing import Protocol

from flask import Flask

from celeriac.sessions.settings import load_settings
from celeriac.web.parts import EXTENSION, Parts

_settings = load_settings()
_host = f"[{_settings.host}]" if ":" in _settings.host else _settings.host

bind = [f"{_host}:{_settings.port}"]
worker_class = "gthread"
workers = _settings.web_processes
threads = _settings.web_threads
# Its default of 1000 is a ceiling that streams would meet in silence.
worker_connections = 2 * _settings.web_threads
timeout = 60
graceful_timeout = 20
keepalive = 15
# Its default is one socket per user, over which two servers on a machine would quarrel.
control_socket_disable = True

# Nothing uses gunicorn's control socket, and it would leave a file in the user's home.
control_socket_disable = True

accesslog = "-"
# The path without its query, and no headers: whatever secret is in there never reaches a log.
access_log_format = '%(h)s "%(m)s %(U)s" %(s)s %(b)s %(M)sms'

_QUIET_PATHS = ("/healthz", "/readyz", "/static/", "/favicon.ico")


def _worth_reading(record: logging.LogRecord) -> bool:
    """Keep probes and static files out of the access log; gunicorn hands its fields over as a mapping."""
    path = record.args.get("U") if isinstance(record.args, Mapping) else None
    return not str(path).startswith(_QUIET_PATHS)


logging.getLogger("gunicorn.access").addFilter(_worth_reading)


class _Worker(Protocol):
    wsgi: object


def post_worker_init(worker: _Worker) -> None:
    """Let a stopping worker end its event streams; else they hold it for the whole graceful timeout."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        _close_streams_on(number, worker)


def _close_streams_on(number: signal.Signals, worker: _Worker) -> None:
    previous = signal.getsignal(number)

    def close(received: int, frame: FrameType | None) -> None:
        _close_streams(worker)
        if callable(previous):
            previous(received, frame)

    signal.signal(number, close)
    # As gunicorn itself asks: requests that are being answered must not be interrupted.
    signal.siginterrupt(number, False)  # noqa: FBT003 - the signature is Python's


def worker_exit(_server: object, worker: _Worker) -> None:
    """End the streams of a worker that leaves its loop for any other reason."""
    _close_streams(worker)


def _close_streams(worker: _Worker) -> None:
    if isinstance(worker.wsgi, Flask):
        here = worker.wsgi.extensions[EXTENSION]
        if isinstance(here, Parts):
            here.streams.close()
