"""The embedded store's files: locks, its socket, and what only their owner may read."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import socket
import stat
import struct
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from celeriac.sessions.errors import CeleriacError

if TYPE_CHECKING:
    from collections.abc import Callable

# A socket's whole path must fit into 104 bytes on macOS and 108 on Linux, with a zero at the end.
_LONGEST_SOCKET_PATH = 99
# Paths of these characters are the same inside a URL and outside, whichever library reads it.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/._~-]+")
_RECORD_NAME = "server.json"
_SOCKET_NAME = "valkey.sock"
_SOCKET_DIR_PREFIX = "celeriac-"


class EmbeddedStoreError(CeleriacError):
    """The embedded store could not be started, reused or stopped; the message says what to do."""


def wait_until(condition: Callable[[], bool], timeout_seconds: float) -> bool:
    """Look at a condition every 20 ms; return whether it became true in time."""
    pause = threading.Event()
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        pause.wait(0.02)
    return True


def open_private(path: Path, flags: int) -> BinaryIO:
    """Open a file for writing that only its owner may read, whatever its mode was before."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "wb")


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step, so that a reader sees the old text or the new one."""
    half = path.with_name(f"{path.name}.half")
    with open_private(half, os.O_WRONLY | os.O_TRUNC) as file:
        file.write(text.encode())
    half.replace(path)


class FileLock:
    """A lock that ends with the last process that has the file open, however that ends.

    Args:
        path: The file, made if missing. It stays: removing it would let two hold the lock.

    Raises:
        OSError: The file cannot be opened for writing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open_private(path, os.O_RDWR)

    def fileno(self) -> int:
        """Return the descriptor, to be handed to a process that shall hold the lock."""
        return self._file.fileno()

    def take(self, *, shared: bool = False) -> bool:
        """Take the lock if nobody holds it (or, shared, nobody alone); return whether it worked."""
        try:
            fcntl.flock(self._file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Give the lock up, unless another process has it from us."""
        self._file.close()

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """How the server of a directory was launched last, for whoever finds it running."""

    data_dir: str
    socket: str
    port: int
    appendfsync: str
    password: str

    @classmethod
    def read(cls, data_dir: Path) -> LaunchRecord | None:
        """Return the directory's record, None when there is none that can be used."""
        try:
            record = cls(**json.loads((data_dir / _RECORD_NAME).read_bytes()))
        except (OSError, ValueError, TypeError):
            # Missing, of another release or cut short: as good as none.
            return None
        if record.data_dir == str(data_dir):
            return record
        # The directory was moved or is a copy. A socket in it went along; one elsewhere may be
        # that of the original.
        if Path(record.socket).parent != Path(record.data_dir):
            return None
        moved = data_dir / Path(record.socket).name
        return replace(record, data_dir=str(data_dir), socket=str(moved))

    def write(self) -> None:
        """Store the record in its directory, readable by its owner only."""
        write_private(Path(self.data_dir) / _RECORD_NAME, json.dumps(asdict(self)))


def prepare_data_dir(data_dir: Path) -> None:
    """Make the directory if missing, and close it to other users.

    Raises:
        EmbeddedStoreError: It cannot be made, closed or written to.
    """
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if stat.S_IMODE(data_dir.stat().st_mode) & 0o077:
            data_dir.chmod(0o700)
        ignore = data_dir / ".gitignore"
        if not ignore.exists():
            # Conversations and a password must not end up in somebody's repository.
            write_private(ignore, "*\n")
        if not os.access(data_dir, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise EmbeddedStoreError(
            f"cannot keep the session store in {str(data_dir)!r}: {error.strerror}. Set "
            f"CELERIAC_DATA_DIR to a directory that user {os.geteuid()} may make and write to, "
            "or CELERIAC_REDIS_URL to a server that runs elsewhere"
        ) from error


def choose_socket(data_dir: Path, last: Path | None) -> Path:
    """Return where the server shall listen: in the data directory if its path allows that.

    Args:
        data_dir: The data directory, absolute.
        last: Where it listened before; used again if it is still ours, so that the URL stays.

    Returns:
        A path short and plain enough for a socket and a URL, in a directory of our own.
    """
    path = data_dir / _SOCKET_NAME
    if _fits(path):
        return path
    if last is not None and _fits(last) and _is_private(last.parent):
        return last
    for base in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 - mkdtemp makes a private one in it
        if _fits(Path(base).resolve() / f"{_SOCKET_DIR_PREFIX}12345678" / _SOCKET_NAME):
            made = tempfile.mkdtemp(prefix=_SOCKET_DIR_PREFIX, dir=Path(base).resolve())
            return Path(made) / _SOCKET_NAME
    raise EmbeddedStoreError(
        f"no place for the store's socket: {str(path)!r} is too long or has characters other than "
        "A-Z a-z 0-9 / . _ ~ -, and so has the temporary directory. Set CELERIAC_DATA_DIR to a "
        f"path of at most {_LONGEST_SOCKET_PATH - len(_SOCKET_NAME) - 1} plain characters"
    )


def remove_socket(path: Path, data_dir: Path) -> None:
    """Remove a socket that nobody listens at, and its directory if we made one for it."""
    path.unlink(missing_ok=True)
    if path.parent != data_dir and path.parent.name.startswith(_SOCKET_DIR_PREFIX):
        shutil.rmtree(path.parent, ignore_errors=True)


def may_be_ours(socket_path: Path) -> bool:
    """Tell whether nobody but this user can have put a socket there."""
    return _is_private(socket_path.parent)


def listener_pid(socket_path: Path) -> int | None:
    """Return the id of the process that listens at a socket, even of one that hangs.

    Returns:
        The id as this process sees it, 0 when it cannot be told (another container, another
        system than Linux and macOS), None when nobody listens.
    """
    system: str = sys.platform  # as a plain text, or type checkers drop the other systems' branches
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(2)
        try:
            connection.connect(os.fspath(socket_path))
            if system == "linux":
                peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                return int(struct.unpack("3i", peer)[0])
            if system == "darwin":
                # SOL_LOCAL and LOCAL_PEERPID, which Python does not name.
                return connection.getsockopt(0, 2)
        except TimeoutError:
            return 0
        except OSError:
            return None
    return 0


def _fits(path: Path) -> bool:
    text = os.fspath(path)
    return len(os.fsencode(text)) <= _LONGEST_SOCKET_PATH and bool(_PLAIN_PATH.fullmatch(text))


def _is_private(directory: Path) -> bool:
    try:
        status = directory.lstat()
    except OSError:
        return False
    mode = status.st_mode
    return stat.S_ISDIR(mode) and status.st_uid == os.geteuid() and not stat.S_IMODE(mode) & 0o077
