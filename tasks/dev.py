"""``celeriac dev``: the whole product in one terminal, on the embedded store."""

from __future__ import annotations

import os
import socket
import sys
import threading
import urllib.error
import urllib.request

import click

from celeriac.sessions.errors import CeleriacError, ConfigurationError
from celeriac.sessions.settings import Settings, load_settings
from celeriac.sessions.store.embedded import EmbeddedStore
from celeriac.tasks.supervisor import Child, Supervisor

__all__ = ["DEMO_AGENTS", "run_dev", "worker_command"]

DEMO_AGENTS = "celeriac.connectors.order_support"
"""The agents of `celeriac dev` when none are named."""

_LOGIN_LINK = "login link: "
_STORE_LOOK_SECONDS = 0.5


def worker_command() -> list[str]:
    """Return the command of one worker: Celery's own, without the chatter that it does not need."""
    return [
        sys.executable,
        "-m",
        "celery",
        "--app",
        "celeriac.tasks",
        "--quiet",
        "worker",
        # Celery would write two lines for each step; ours, one a step, follow CELERIAC_LOG_LEVEL.
        "--loglevel",
        "WARNING",
        "--without-gossip",
        "--without-mingle",
        "--without-heartbeat",
    ]


def run_dev(workers: int) -> int:
    """Run store, workers and web until Ctrl-C.

    Args:
        workers: How many workers to start.

    Returns:
        The exit code.

    Raises:
        ConfigurationError: A setting is wrong or the port is busy.
        EmbeddedStoreError: The store cannot be started.
    """
    os.environ.setdefault("CELERIAC_AGENTS", DEMO_AGENTS)
    # The supervisor kills what has not ended some seconds later.
    os.environ.setdefault("CELERIAC_SHUTDOWN_SECONDS", "10")
    load_settings.cache_clear()
    settings = load_settings()
    _refuse_busy_port(settings)
    os.environ.setdefault("CELERIAC_ORDER_DESK", str(settings.data_dir / "order_desk.sqlite"))
    click.echo(click.style("Celeriac", bold=True) + " is starting …")
    if settings.redis_url is not None:
        return _supervise(settings, workers, settings.redis_url)
    store = EmbeddedStore(settings.data_dir, appendfsync=settings.appendfsync)
    with store, _StoreWatch(store):
        return _supervise(settings, workers, store.url)


def _refuse_busy_port(settings: Settings) -> None:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            raise ConfigurationError(
                f"Port {settings.port} on {settings.host} cannot be used ({error.strerror}). Stop what "
                "uses it, or choose another with --port."
            ) from error


def _supervise(settings: Settings, workers: int, store_url: str) -> int:
    env = {"CELERIAC_REDIS_URL": store_url, "PYTHONUNBUFFERED": "1"}
    children = [
        Child(
            name=f"worker{number}",
            argv=[*worker_command(), "--hostname", f"worker{number}@%h"],
            env=env,
            ready_text="is ready with agents",
        )
        for number in range(1, workers + 1)
    ]
    web = [sys.executable, "-m", "celeriac.web.serve", "--login-link"]
    children.append(Child(name="web", argv=web, env=env, ready_text="Listening at"))
    welcome = _Welcome(settings)
    supervisor = Supervisor(children, on_line=welcome.on_line)
    welcome.start()
    try:
        return supervisor.run()
    finally:
        welcome.stop()


class _Welcome:
    """Says what to open, once everything answers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._link = f"http://{settings.host}:{settings.port}/"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._wait, name="celeriac-welcome", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def on_line(self, _name: str, line: str) -> None:
        """Take the login link out of the web's output."""
        if line.startswith(_LOGIN_LINK):
            self._link = line.removeprefix(_LOGIN_LINK).strip()

    def _wait(self) -> None:
        while not self._stop.wait(0.3):
            if self._answers():
                self._show()
                return

    def _answers(self) -> bool:
        url = f"http://{self._settings.host}:{self._settings.port}/readyz"
        try:
            with urllib.request.urlopen(url, timeout=2) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _show(self) -> None:
        bar = click.style("│ ", fg="green")
        lines = [
            click.style("Celeriac is ready.", bold=True),
            f"Open  {click.style(self._link, fg='cyan', underline=True)}",
            "      (the link logs one browser in, once)",
            "",
            'Try   /tool look_up_order {"order_id": "1001"}',
            '      /tool cancel_order {"order_id": "1002"}   and approve it on the page',
            "Stop  Ctrl-C; everything goes on where it was at the next start",
        ]
        click.echo("\n" + "\n".join(bar + line for line in lines) + "\n")


class _StoreWatch:
    """Starts the embedded store again when it died."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="celeriac-store", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_STORE_LOOK_SECONDS):
            if self._store.alive():
                continue
            click.echo(click.style("store    ", fg="yellow") + "died; it is started again")
            try:
                self._store.start()
            except CeleriacError as error:
                click.echo(click.style("store    ", fg="red") + str(error), err=True)
