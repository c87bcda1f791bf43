"""How gunicorn runs the web: threads, because each open event stream holds one (measured)."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType
from typing import Protocol

from flask import Flask

from celeriac.sessions.errors import CeleriacError
from celeriac.sessions.settings import load_settings
from celeriac.web.parts import EXTENSION, Parts
from celeriac.web.request_log import log_config

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
# Nothing uses gunicorn's control socket. By default it is one file in the user's home, over which two
# servers on a machine would quarrel.
control_socket_disable = True

accesslog = "-"
# The path without its query, and no headers of the caller: whatever secret is in there never reaches a log.
access_log_format = '%(h)s "%(m)s %(U)s" %(s)s %(b)s %(M)sms %({x-request-id}o)s'

logconfig_dict = log_config(_settings.log_format, _settings.log_level)


class _Worker(Protocol):
    wsgi: object


def post_worker_init(worker: _Worker) -> None:
    """Warm the worker up, and let a stopping one end its event streams.

    Else the first request would wait for Celery to load, and streams hold a stop for the whole graceful timeout.
    """
    here = _parts(worker)
    if here is not None:
        threading.Thread(
            target=_warm_up, args=(here,), name="celeriac-warm-up", daemon=True
        ).start()
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


def _warm_up(here: Parts) -> None:
    try:
        here.client.ping()
    except CeleriacError as error:
        logging.getLogger(__name__).warning("The web is up, the session store is not: %s", error)


def _close_streams(worker: _Worker) -> None:
    here = _parts(worker)
    if here is not None:
        here.streams.close()


def _parts(worker: _Worker) -> Parts | None:
    if not isinstance(worker.wsgi, Flask):
        return None
    here = worker.wsgi.extensions[EXTENSION]
    return here if isinstance(here, Parts) else None
