"""Show that this process lives, and tell of another one whether it certainly does not."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import threading
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from redis.exceptions import RedisError

from celeriac.sessions.errors import StoreUnavailable
from celeriac.sessions.store.lives import LifeRecord, Lives

__all__ = ["Life", "certainly_ended", "record_of_this_process"]

_log = logging.getLogger(__name__)

_AGAIN_SECONDS = 0.2
_START_SECONDS = 1.0


class Life:
    """Holds this process's subscription, and takes it up again at once when it is lost.

    Args:
        lives: The register.
        owner: Owner of this process's claims.
        record: What others may know of this process.
    """

    def __init__(self, lives: Lives, owner: str, record: LifeRecord) -> None:
        self._lives = lives
        self._owner = owner
        self._record = record
        self._ended = threading.Event()
        self._register = threading.Lock()
        self._seen = threading.Event()
        self._held_since: float | None = None
        self._losses = 0
        self._thread = threading.Thread(target=self._run, name="celeriac-life", daemon=True)

    @property
    def held_since(self) -> float | None:
        """Since when it was held without a break, as `time.monotonic` tells; None while it is not."""
        return self._held_since

    @property
    def is_first(self) -> bool:
        """Whether it was never lost since this process began."""
        return self._losses == 0

    def start(self) -> None:
        """Begin; return once others can see that this process lives, or soon if the store is away."""
        self._thread.start()
        # Who claimed a step and died before that would be waited for until the end of the lease.
        self._seen.wait(_START_SECONDS)

    def end(self) -> None:
        """Say that this process ends in good order and holds no claim. Best effort: never raises."""
        with self._register, contextlib.suppress(StoreUnavailable):
            self._ended.set()
            self._lives.forget(self._owner)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._hold()
            except (RedisError, OSError, StoreUnavailable) as error:
                _log.debug(
                    "The connection that shows that %s lives is lost: %s", self._owner, error
                )
            except Exception:  # noqa: BLE001
                # Without it everybody takes this process for dead.
                _log.exception("What shows that %s lives met an error and goes on", self._owner)
            self._held_since = None
            self._losses += 1
            self._ended.wait(_AGAIN_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311

    def _hold(self) -> None:
        with self._lives.subscribe(self._owner) as subscription:
            with self._register:
                if self._ended.is_set():
                    return
                self._lives.register(self._owner, self._record)
            self._held_since = time.monotonic()
            self._seen.set()
            while not self._ended.is_set():
                # Also keeps network devices from forgetting a silent connection.
                subscription.hold(self._record.lease_ms / 3000)


def record_of_this_process(worker: str, lease_seconds: float) -> LifeRecord:
    """Return what others may know of this process."""
    pid = os.getpid()
    process = _process(pid)
    return LifeRecord(
        worker=worker,
        machine=_machine(),
        pid=pid,
        parent=os.getppid(),
        started=process.started if process else "",
        lease_ms=int(lease_seconds * 1000),
    )


def certainly_ended(record: LifeRecord) -> bool:
    """Whether a process was one of this machine and has ended; False where that cannot be told."""
    if record.machine != _machine():
        return False
    try:
        os.kill(record.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    process = _process(record.pid)
    if process is None:
        return False
    return process.is_zombie or (bool(record.started) and process.started != record.started)


@dataclass(frozen=True, slots=True)
class _Process:
    is_zombie: bool
    started: str


def _process(pid: int) -> _Process | None:
    """Read what the system says of a process; None where it does not say."""
    try:
        # After the name, which may hold anything: the state first, the start time as the 20th.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return _Process(is_zombie=fields[0] in "ZX", started=fields[19])


@lru_cache(maxsize=1)
def _machine() -> str:
    """Name what process ids are relative to: this start of the system, and the process namespace."""
    try:
        start = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{start}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()
