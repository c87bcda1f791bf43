"""The session store of `celeriac dev`: a Valkey server of our own on a directory.

Nothing needs to be installed or configured for it, and it is as durable as a real one: every
acknowledged write is in the append-only file. It listens at a socket that only its user can reach.

The server is not tied to the process that started it. It runs until the last process that uses
it stops it; when that one was killed, the next to start finds the server running and takes it
over. Three locks in the directory say who is there, and end with their processes: `starting`
(one at a time starts or stops), `users` (shared by those who use the server) and `server` (held
by the server itself). Linux and macOS.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, cast

import redis
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, RedisError
from redis.retry import Retry

from celeriac.sessions.store.aof_tail import cut_damaged_tail
from celeriac.sessions.store.embedded_files import (
    EmbeddedStoreError,
    FileLock,
    LaunchRecord,
    choose_socket,
    listener_pid,
    may_be_ours,
    prepare_data_dir,
    remove_socket,
    wait_until,
    write_private,
)
from celeriac.sessions.store.embedded_server import (
    configuration,
    find_server,
    launch,
    refuse_busy_port,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["EmbeddedStore", "EmbeddedStoreError"]

_log = logging.getLogger(__name__)

# Another process may be loading a large store while we wait for our turn.
_TURN_SECONDS = 60.0
# Without any answer; loading the data may take as long as it takes.
_ANSWER_SECONDS = 30.0
_DAMAGED = "Bad file format reading the append only file"


class EmbeddedStore:
    """A store on a directory, started on demand; also a context manager. Not thread-safe.

    Args:
        data_dir: Directory of the store. Made if missing; closed to other users.
        appendfsync: When a write is on disk: before it is acknowledged, or within a second.
        port: A port on 127.0.0.1 for programs that cannot use a socket; it gets a password, which
            is part of `url`. 0 means none.

    Raises:
        ValueError: `appendfsync` or `port` is none of the possible values.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        appendfsync: Literal["always", "everysec"] = "always",
        port: int = 0,
    ) -> None:
        if appendfsync not in {"always", "everysec"}:
            raise ValueError(f"appendfsync must be 'always' or 'everysec', not {appendfsync!r}")
        if not 0 <= port <= 65_535:
            raise ValueError(f"port must be between 0 (none) and 65535, not {port!r}")
        self._appendfsync = appendfsync
        self._port = port
        self._dir = Path(os.path.realpath(data_dir))
        self._log_path = self._dir / "valkey.log"
        self._record: LaunchRecord | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._users: FileLock | None = None

    def start(self) -> str:
        """Start the server, or use the one that runs on the directory already.

        Returns:
            The URL for redis-py: `unix:///…/valkey.sock?db=0`, whose path needs no unquoting, or
            `redis://:password@127.0.0.1:port/0` when a port was asked for.

        Raises:
            EmbeddedStoreError: It could not be started; the message has the end of its log.
        """
        prepare_data_dir(self._dir)
        with self._turn():
            if self._users is not None and not self.alive():
                self._let_go()
            if self._users is None:
                users = self._lock("users")
                try:
                    self._find_or_launch(users)
                except BaseException:
                    users.close()
                    raise
                self._users = users
        return self.url

    def stop(self, timeout_seconds: float = 10) -> None:
        """Stop the server, unless another process uses it; everything stays on disk.

        Does nothing when it was not started.

        Args:
            timeout_seconds: How long it may take to shut down before it is killed.

        Raises:
            EmbeddedStoreError: It could not be stopped.
        """
        if self._users is None:
            return
        with self._turn():
            try:
                if self._users.take():
                    self._stop_server(timeout_seconds)
            finally:
                self._let_go()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The URL of the running store, see `start`.

        Raises:
            EmbeddedStoreError: It is not started.
        """
        record = self._started()
        if record.port:
            return f"redis://:{record.password}@127.0.0.1:{record.port}/0"
        return f"unix://{record.socket}?db=0"

    @property
    def pid(self) -> int | None:
        """The server's process id, None when it does not run or cannot be seen from here."""
        if self._process is not None:
            return self._process.pid if self._process.poll() is None else None
        return self._listener() or None

    def alive(self) -> bool:
        """Tell whether the server process runs."""
        if self._process is not None:
            return self._process.poll() is None
        return self._listener() is not None

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines of the server's log, "" when there is none."""
        try:
            with self._log_path.open("rb") as file:
                file.seek(max(0, self._log_path.stat().st_size - 65_536))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Let one process at a time start or stop the server of a directory."""
        with self._lock("starting") as lock:
            if not wait_until(lock.take, _TURN_SECONDS):
                raise EmbeddedStoreError(
                    f"another process has been starting or stopping the store in "
                    f"{str(self._dir)!r} for {_TURN_SECONDS:g} s; try again, and see "
                    f"{self._log_path}. `fuser {lock.path}` names that process"
                )
            yield

    def _lock(self, name: str) -> FileLock:
        try:
            return FileLock(self._dir / f"{name}.lock")
        except OSError as error:
            raise EmbeddedStoreError(
                f"cannot write to the store's directory {str(self._dir)!r}: {error.strerror}. "
                "Its files must belong to the user who runs Celeriac"
            ) from error

    def _find_or_launch(self, users: FileLock) -> None:
        self._record = LaunchRecord.read(self._dir)
        with self._lock("server") as lock:
            # Whoever holds the lock is the server: it inherited it when it was launched.
            if lock.take() or not self._await_answer(lock.take) or self._replace(users, lock):
                self._launch(lock)
            users.take(shared=True)

    def _replace(self, users: FileLock, lock: FileLock) -> bool:
        """Stop a running server that has other settings than asked for, if it is ours alone."""
        running = self._started()
        wanted = (self._port, self._appendfsync)
        if (running.port, running.appendfsync) == wanted:
            return False
        if not users.take():
            raise EmbeddedStoreError(
                f"another process uses the store in {str(self._dir)!r} with port {running.port} "
                f"and appendfsync {running.appendfsync!r}, so it cannot have port {self._port} and "
                f"appendfsync {self._appendfsync!r}; use the same settings or stop that process"
            )
        self._stop_found(lock, timeout_seconds=10)
        return True

    def _launch(self, lock: FileLock) -> None:
        program = find_server()
        refuse_busy_port(self._port)
        self._write_settings()
        exit_code = self._run(program, lock)
        if exit_code is not None and self._repair():
            exit_code = self._run(program, lock)
        if exit_code is not None:
            raise EmbeddedStoreError(
                f"the store in {str(self._dir)!r} did not start (exit code {exit_code}); "
                f"the end of its log, {self._log_path}:\n{self.log_tail()}"
            )

    def _run(self, program: Path, lock: FileLock) -> int | None:
        """Run the server; return None once it is ready, or its exit code."""
        if self._log_path.exists():
            self._log_path.replace(self._log_path.with_suffix(".log.before"))
        process = launch(program, self._dir / "valkey.conf", self._log_path, lock)
        try:
            if self._await_answer(lambda: process.poll() is not None):
                self._process = process
                return None
        except BaseException:
            process.kill()
            process.wait()
            raise
        return process.returncode

    def _repair(self) -> bool:
        """Cut garbage off the append-only file's end if that is what the server refused."""
        if _DAMAGED not in self.log_tail():
            return False
        done = cut_damaged_tail(self._dir / "appendonlydir", self._dir)
        if done is not None:
            _log.warning("The store was not stopped cleanly: %s", done)
        return done is not None

    def _write_settings(self) -> None:
        last = self._record
        # The same password again, so that a URL somebody noted down stays good.
        password = last.password if last is not None else ""
        if self._port and not password:
            password = secrets.token_urlsafe(24)
        socket_path = choose_socket(self._dir, None if last is None else Path(last.socket))
        record = LaunchRecord(
            data_dir=str(self._dir),
            socket=str(socket_path),
            port=self._port,
            appendfsync=self._appendfsync,
            password=password,
        )
        text = configuration(
            data_dir=self._dir,
            socket_path=socket_path,
            appendfsync=self._appendfsync,
            port=self._port,
            password=password,
        )
        write_private(self._dir / "valkey.conf", text)
        # Before the launch: if we are killed right after it, the next one must find the server.
        record.write()
        self._record = record

    def _await_answer(self, ended: Callable[[], bool]) -> bool:
        """Wait until the server has loaded its data; return False when it ended instead."""
        pause = threading.Event()
        deadline = time.monotonic() + _ANSWER_SECONDS
        while not ended():
            state = self._state()
            if state == "ready":
                return True
            if state == "loading":
                deadline = time.monotonic() + _ANSWER_SECONDS
            elif time.monotonic() >= deadline:
                raise EmbeddedStoreError(
                    f"the server of the store in {str(self._dir)!r} runs but has not answered for "
                    f"{_ANSWER_SECONDS:g} s; `fuser {self._dir / 'server.lock'}` names its "
                    f"process: end that, then try again. The end of its log:\n{self.log_tail()}"
                )
            pause.wait(0.02)
        return False

    def _state(self) -> Literal["ready", "loading", "silent"]:
        if self._record is None or not may_be_ours(Path(self._record.socket)):
            return "silent"
        try:
            with contextlib.closing(self._client()) as client:
                where = cast("dict[str, str]", client.config_get("dir"))["dir"]
                persistence = cast("dict[str, int]", client.info("persistence"))
                if not os.path.samefile(where, self._dir):  # noqa: PTH121 - bytes or text
                    return "silent"
                return "loading" if persistence["loading"] else "ready"
        except BusyLoadingError:
            return "loading"
        except (RedisError, OSError, KeyError):
            return "silent"

    def _client(self) -> redis.Redis:
        record = self._started()
        return redis.Redis(
            unix_socket_path=record.socket,
            password=record.password or None,
            socket_timeout=5,
            decode_responses=True,
            retry=Retry(NoBackoff(), 0),
        )

    def _listener(self) -> int | None:
        return None if self._record is None else listener_pid(Path(self._record.socket))

    def _started(self) -> LaunchRecord:
        if self._record is None:
            raise EmbeddedStoreError(
                f"the store in {str(self._dir)!r} is not started; call start() first"
            )
        return self._record

    def _stop_server(self, timeout_seconds: float) -> None:
        if self._process is None:
            with self._lock("server") as lock:
                self._stop_found(lock, timeout_seconds)
        else:
            self._process.terminate()
            try:
                self._process.wait(timeout_seconds)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        remove_socket(Path(self._started().socket), self._dir)

    def _stop_found(self, lock: FileLock, timeout_seconds: float) -> None:
        """Stop a server that another process launched; afterwards its lock is ours."""
        if lock.take():
            return
        # It knows itself best: its process id may mean another process in our container.
        with contextlib.suppress(RedisError), contextlib.closing(self._client()) as client:
            client.shutdown(nosave=True)
        if wait_until(lock.take, timeout_seconds):
            return
        # Who listens at the socket right now is no stranger, which a noted id might be.
        pid = self._listener()
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not wait_until(lock.take, 10):
            raise EmbeddedStoreError(
                f"the server of the store in {str(self._dir)!r} cannot be stopped; "
                f"`fuser {lock.path}` names its process"
            )

    def _let_go(self) -> None:
        if self._users is not None:
            self._users.close()
            self._users = None
        if self._process is not None and self._process.poll() is None:
            # It runs on for the others, which is not what Popen would have to warn of.
            self._process.returncode = 0
        self._process = None
        self._record = None
