"""One program that the supervisor keeps running: what to run, how it is started and ended.

Every child leads a session of its own, so that Ctrl-C in the terminal does not reach it and its
process group holds whatever it starts itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Child", "RestartPolicy"]

# Asks the kernel to kill this process with its parent, then becomes the child. A program of its
# own, because code between fork and exec of a threaded parent may hang. The parent may have died
# before the request was made, hence the look at the parent's id.
_DIE_WITH_PARENT = """
import os, sys
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
except (ImportError, OSError, AttributeError):
    pass
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"cannot run {sys.argv[2]!r}: {error.strerror}")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A program to keep running.

    Args:
        name: Shown before each of its lines; unique in one supervisor.
        argv: The program and its arguments; the program is searched on PATH.
        env: Variables on top of the supervisor's own environment.
        ready_text: A piece of the line by which it says that it is ready. Without one it counts as
            ready when it has lived for `RestartPolicy.steady_after_seconds`.

    Raises:
        ValueError: `argv` is empty.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    ready_text: str | None = None

    def __post_init__(self) -> None:
        if not self.argv:
            raise ValueError(f"child {self.name!r} has an empty argv: name the program to run")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """How long a child that died stays down.

    Args:
        first_delay_seconds: After the first death in a row; doubles with each further one.
        longest_delay_seconds: The doubling ends here.
        steady_after_seconds: A child that lived this long begins a new row.
        loud_after_failures: After so many deaths in a row before it was ever ready, say what is
            wrong so that nobody overlooks it; repeated each time as many more have passed.
    """

    first_delay_seconds: float = 0.5
    longest_delay_seconds: float = 10.0
    steady_after_seconds: float = 30.0
    loud_after_failures: int = 5

    def delay_seconds(self, deaths: int) -> float:
        """Return the wait after the given number of deaths in a row, counted from one."""
        # Sixteen doublings are beyond any sensible limit, and two to the thousandth is no float.
        doublings: int = 2 ** min(deaths - 1, 16)
        return min(self.longest_delay_seconds, self.first_delay_seconds * doublings)


def start_process(child: Child) -> subprocess.Popen[bytes]:
    """Start a child, its output and errors in one pipe that never blocks the reader.

    On Linux it dies with the thread that starts it, however that ends; elsewhere a child whose
    supervisor was killed ends at the latest when it next prints.

    Raises:
        OSError: The system could not start it.
    """
    argv = [*child.argv]
    if sys.platform == "linux":
        argv = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *argv]
    process = subprocess.Popen(  # noqa: S603 - to run what it is given is its purpose
        argv,
        # Python holds back what it prints to a pipe unless told otherwise.
        env={"PYTHONUNBUFFERED": "1", **os.environ, **child.env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    os.set_blocking(output_of(process).fileno(), False)
    return process


def output_of(process: subprocess.Popen[bytes]) -> IO[bytes]:
    """Return the reading end of a child's output."""
    if process.stdout is None:
        raise RuntimeError(f"the output of process {process.pid} was not captured")
    return process.stdout


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Tell whether a process has ended, leaving it unreaped where the system can.

    As long as the dead leader of a group is unreaped, its id names that group and no other.
    """
    if process.returncode is not None:
        return True
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        # Somebody else reaped it; waiting for it will not block.
        return True


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a child and what it has started, unless all of that has left its group."""
    # Gone when the whole group was reaped; macOS says EPERM when only the unreaped leader is left.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def ending_in_words(returncode: int | None) -> str:
    """Say how a process ended, from `Popen.returncode`."""
    if returncode is None:
        return "could not be killed"
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    try:
        return f"was killed by {signal.Signals(-returncode).name} (signal {-returncode})"
    except ValueError:
        return f"was killed by signal {-returncode}"
