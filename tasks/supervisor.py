"""Keep a few programs running in one terminal, as `celeriac dev` does.

The supervisor decides who stops, and when: Ctrl-C reaches it alone. It starts a child that died
again, waiting longer each time, and shows what all of them print, each line behind the name of
the child that printed it. It knows nothing of what the children are. Linux and macOS.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from celeriac.tasks.child import (
    Child,
    RestartPolicy,
    ending_in_words,
    has_ended,
    kill_group,
    output_of,
    start_process,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Child", "RestartPolicy", "Supervisor"]

# Without an event the children are looked at this often: a dead one whose own child keeps the
# output open causes none.
_LOOK_SECONDS = 0.2
# Wrappers such as `uv run` pass Ctrl-C on although the terminal has sent it to everyone, so a
# signal that follows this quickly is the same key press.
_SAME_KEY_PRESS_SECONDS = 0.5
# A process in an uninterruptible wait outlives SIGKILL for a while; nobody should wait for it.
_KILL_SECONDS = 5.0
_LONGEST_LINE = 65_536
_COLOURS = (36, 33, 32, 35, 34)
_BOLD = 1
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class _Life:
    """What the supervisor knows of one child, over all its processes."""

    child: Child
    prefix: str
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    start_again_at: float = 0.0
    deaths: int = 0
    ever_ready: bool = False
    pending: bytes = b""
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=10))


class Supervisor:
    """Run children until told to stop, then stop them all.

    Args:
        children: What to run.
        out: Where the lines go. Coloured when it is a terminal and NO_COLOR is not set.
        on_line: Called with a child's name and each line it printed, in the thread of `run`.
        name: Stands before the supervisor's own lines.
        grace_seconds: How long the children have to stop before they are killed.
        restart: How long a child that died stays down.

    Raises:
        ValueError: No children, or two of the same name.
    """

    def __init__(
        self,
        children: Sequence[Child],
        out: TextIO | None = None,
        on_line: Callable[[str, str], None] | None = None,
        *,
        name: str = "celeriac",
        grace_seconds: float = 15.0,
        restart: RestartPolicy | None = None,
    ) -> None:
        names = [child.name for child in children]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"there must be children, each with its own name; got {names!r}")
        self._out = out or sys.stdout
        self._on_line = on_line
        self._grace_seconds = grace_seconds
        self._restart = restart or RestartPolicy()
        width = max(len(each) for each in [name, *names])
        coloured = self._out.isatty() and not os.environ.get("NO_COLOR")
        self._own_prefix = _prefix(name, width, _BOLD if coloured else None)
        self._lives: list[_Life] = []
        for index, child in enumerate(children):
            colour = _COLOURS[index % len(_COLOURS)] if coloured else None
            self._lives.append(_Life(child, _prefix(child.name, width, colour)))
        self._selector = selectors.DefaultSelector()
        self._stop_asked = False
        self._kill_asked = False
        self._kill_at = float("inf")
        self._signalled_at: float | None = None
        self._killed: list[str] = []
        self._wake_read = self._wake_write = -1

    def run(self) -> int:
        """Run the children until SIGINT, SIGTERM, SIGHUP or `stop`; a second signal kills them.

        May be called once. Outside the main thread no signals are handled.

        Returns:
            0 when all children stopped by themselves, 1 when some had to be killed.
        """
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        try:
            with self._signals():
                self._loop()
        finally:
            # Only an exception, for example one of `on_line`, leaves any of them.
            for life in self._lives:
                if life.process is not None:
                    kill_group(life.process)
                    self._forget(life, life.process)
            self._selector.close()
            wake_write, self._wake_write = self._wake_write, -1
            os.close(wake_write)
            os.close(self._wake_read)
        return 1 if self._killed else 0

    def stop(self) -> None:
        """Ask `run` to stop the children and return. Safe from any thread; may be repeated."""
        self._stop_asked = True
        # A full pipe wakes as well as one with room, and a closed one has nobody to wake.
        with contextlib.suppress(OSError):
            os.write(self._wake_write, b"!")

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # What is ignored stays ignored: that is how nohup and `&` in a script ask for it.
        heard = [number for number in _STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, self._on_signal) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                # None stands for a handler that was not set from Python and cannot be put back.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _on_signal(self, _number: int, _frame: object) -> None:
        now = time.monotonic()
        if self._signalled_at is None:
            self._signalled_at = now
        elif now - self._signalled_at > _SAME_KEY_PRESS_SECONDS:
            self._kill_asked = True
        self.stop()

    def _loop(self) -> None:
        stopping = False
        while True:
            now = time.monotonic()
            if self._stop_asked and not stopping:
                stopping = True
                self._begin_stop(now)
            if not stopping:
                self._start_due(now)
            elif self._stopped(now):
                return
            for key, _ in self._selector.select(_LOOK_SECONDS):
                if key.data is None:
                    os.read(self._wake_read, 512)
                else:
                    self._show_output(key.data)
            for life in self._lives:
                if life.process is not None and has_ended(life.process):
                    self._bury(life, life.process, restart=not stopping)

    def _begin_stop(self, now: float) -> None:
        self._kill_at = now + self._grace_seconds
        alive = [life for life in self._lives if life.process is not None]
        names = ", ".join(life.child.name for life in alive)
        self._say(f"stopping {names} (Ctrl-C again kills at once)" if names else "stopping")
        for life in alive:
            if life.process is not None:
                # Not the whole group: a Celery worker with a prefork pool needs its pool processes
                # to finish their steps, and stops them itself.
                life.process.send_signal(signal.SIGTERM)

    def _stopped(self, now: float) -> bool:
        """Tell whether the stop is over; kills what did not stop in time."""
        alive = [life for life in self._lives if life.process is not None]
        if not alive:
            return True
        if self._killed:
            return now >= self._kill_at + _KILL_SECONDS
        if self._kill_asked or now >= self._kill_at:
            self._kill_at = now
            self._killed = [life.child.name for life in alive]
            late = f"it did not stop in {self._grace_seconds:g} s"
            why = "asked a second time" if self._kill_asked else late
            self._say(f"killing {', '.join(self._killed)}: {why}")
            for life in alive:
                if life.process is not None:
                    kill_group(life.process)
        return False

    def _start_due(self, now: float) -> None:
        for life in self._lives:
            if life.process is not None or life.start_again_at > now:
                continue
            life.started_at = now
            try:
                life.process = start_process(life.child)
            except OSError as error:
                self._take_line(life, f"cannot run {life.child.argv[0]!r}: {error}".encode())
                self._plan_restart(life, "could not be started", now)
            else:
                self._selector.register(output_of(life.process), selectors.EVENT_READ, life)

    def _show_output(self, life: _Life) -> bool:
        """Show what a child has printed since; tell whether there was anything."""
        if life.process is None:
            return False
        output = output_of(life.process)
        try:
            data = os.read(output.fileno(), _LONGEST_LINE)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(output)
            return False
        *lines, life.pending = (life.pending + data).split(b"\n")
        if len(life.pending) >= _LONGEST_LINE:
            lines.append(life.pending)
            life.pending = b""
        for line in lines:
            self._take_line(life, line)
        return True

    def _take_line(self, life: _Life, raw: bytes) -> None:
        line = raw.decode("utf-8", "replace").rstrip("\r")
        life.last_lines.append(line)
        if life.child.ready_text is not None and life.child.ready_text in line:
            life.ever_ready = True
        self._write(life.prefix, line)
        if self._on_line is not None:
            self._on_line(life.child.name, line)

    def _bury(self, life: _Life, process: subprocess.Popen[bytes], *, restart: bool) -> None:
        """End what a dead child left behind, show its last words and plan its next life."""
        kill_group(process)
        # Bounded, because a process that left the group may go on printing for ever.
        for _ in range(16):
            if output_of(process) not in self._selector.get_map() or not self._show_output(life):
                break
        if life.pending:
            self._take_line(life, life.pending)
        self._forget(life, process)
        if restart:
            self._plan_restart(life, ending_in_words(process.returncode), time.monotonic())

    def _forget(self, life: _Life, process: subprocess.Popen[bytes]) -> None:
        output = output_of(process)
        if output in self._selector.get_map():
            self._selector.unregister(output)
        output.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_SECONDS)
        life.process = None
        life.pending = b""

    def _plan_restart(self, life: _Life, how: str, now: float) -> None:
        lived = now - life.started_at
        if lived >= self._restart.steady_after_seconds:
            life.deaths = 0
            life.ever_ready = True
        life.deaths += 1
        delay = self._restart.delay_seconds(life.deaths)
        life.start_again_at = now + delay
        self._write(life.prefix, f"-- {how} after {lived:.1f} s; starting it again in {delay:g} s")
        if not life.ever_ready and life.deaths % self._restart.loud_after_failures == 0:
            self._say_loudly(life, how)

    def _say_loudly(self, life: _Life, how: str) -> None:
        self._say("!" * 72)
        self._say(f"{life.child.name} has died {life.deaths} times and was never ready: {how}.")
        self._say(f"Its command: {subprocess.list2cmdline(life.child.argv)}")
        self._say("Its last lines:" if life.last_lines else "It printed nothing.")
        for line in life.last_lines:
            self._say(f"    {line}")
        self._say("It is tried again, but that will not help until the cause is removed.")
        self._say("!" * 72)

    def _say(self, text: str) -> None:
        self._write(self._own_prefix, text)

    def _write(self, prefix: str, text: str) -> None:
        encoding = self._out.encoding or "utf-8"
        try:
            self._out.write(f"{prefix} {text}\n".encode(encoding, "replace").decode(encoding))
            self._out.flush()
        except OSError:
            # Nobody reads any more, as after `celeriac dev | head`.
            self.stop()


def _prefix(name: str, width: int, colour: int | None) -> str:
    padded = f"{name:<{width}} |"
    return padded if colour is None else f"\x1b[{colour}m{padded}\x1b[0m"
