"""The supervisor with real, tiny child processes."""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from celeriac.tasks.supervisor import Child, RestartPolicy, Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

QUICK = RestartPolicy(first_delay_seconds=0.01, longest_delay_seconds=0.02)
STAY = "import signal; print('here', flush=True); signal.pause()"
STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('here', flush=True)\n"
    "while True: signal.pause()"
)


class Running:
    """A supervisor in a thread, stopped when the test is over."""

    def __init__(self, *children: Child, out: io.StringIO | None = None, **options: object) -> None:
        self.out = out or io.StringIO()
        self._changed = threading.Condition()
        self.lines: list[tuple[str, str]] = []
        self.result: int | None = None
        self.supervisor = Supervisor(
            children,
            self.out,
            self._on_line,
            restart=options.pop("restart", QUICK),  # type: ignore[arg-type]
            **options,  # type: ignore[arg-type]
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _on_line(self, name: str, line: str) -> None:
        with self._changed:
            self.lines.append((name, line))
            self._changed.notify_all()

    def _run(self) -> None:
        self.result = self.supervisor.run()
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[Running], bool]) -> None:
        """Wait until the condition holds; each line a child prints makes it be looked at."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), timeout=30), self.text

    def stop(self) -> int:
        self.supervisor.stop()
        self._thread.join(30)
        assert self.result is not None, self.text
        return self.result

    @property
    def text(self) -> str:
        return self.out.getvalue()


@pytest.fixture
def run() -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(*children: Child, **options: object) -> Running:
        started.append(Running(*children, **options))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for each in started:
        each.stop()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def python(name: str, code: str, ready_text: str | None = None, **env: str) -> Child:
    return Child(name=name, argv=[sys.executable, "-c", code], env=env, ready_text=ready_text)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that only waits to be reaped does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    if sys.platform != "linux":
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(3000):
        if condition():
            return
        pause.wait(0.01)
    pytest.fail("the condition did not come true")


def test_each_line_stands_behind_the_padded_name_of_its_child(run: Callable[..., Running]) -> None:
    running = run(python("web", STAY), python("worker", STAY), name="dev")
    running.wait_for(lambda each: len(each.lines) >= 2)

    assert running.stop() == 0

    assert "web    | here\n" in running.text
    assert "worker | here\n" in running.text
    assert "dev    | stopping web, worker (Ctrl-C again kills at once)\n" in running.text
    assert sorted(running.lines) == [("web", "here"), ("worker", "here")]


def test_a_terminal_gets_coloured_prefixes(
    run: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    running = run(python("web", STAY), out=Terminal())
    running.wait_for(lambda each: bool(each.lines))
    assert "\x1b[36mweb      |\x1b[0m here" in running.text


def test_no_color_is_honoured_on_a_terminal(
    run: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    running = run(python("web", STAY), out=Terminal())
    running.wait_for(lambda each: bool(each.lines))
    assert "\x1b" not in running.text


def test_what_is_no_whole_line_or_no_utf8_is_shown_too(run: Callable[..., Running]) -> None:
    code = r"import sys; sys.stdout.buffer.write(b'caf\xc3\xa9 \xff\r\n' + b'x' * 70000 + b'end')"
    running = run(python("odd", code + "\n" + "sys.stdout.flush(); import signal; signal.pause()"))
    running.wait_for(lambda each: len(each.lines) >= 2)
    running.stop()

    first, *rest = [line for _, line in running.lines]
    assert first == "café \ufffd"
    assert "".join(rest) == "x" * 70000 + "end"


def test_a_child_gets_its_variables_and_those_of_the_supervisor(
    run: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTER", "1")
    code = "import os, signal; print(os.environ['OUTER'] + os.environ['INNER']); signal.pause()"
    running = run(python("web", code, INNER="2"))
    running.wait_for(lambda each: ("web", "12") in each.lines)


def test_a_dead_child_is_started_again_and_its_end_told(run: Callable[..., Running]) -> None:
    running = run(python("web", "print('here'); raise SystemExit(3)"))
    running.wait_for(lambda each: len(each.lines) >= 3)
    running.stop()
    assert "web      | -- ended with exit code 3 after " in running.text
    assert "starting it again in 0.01 s" in running.text
    assert "starting it again in 0.02 s" in running.text


def test_a_killed_child_is_told_by_the_name_of_the_signal(run: Callable[..., Running]) -> None:
    code = "import os; print('here', flush=True); os.kill(os.getpid(), 9)"
    running = run(python("web", code))
    running.wait_for(lambda each: len(each.lines) >= 2)
    assert "-- was killed by SIGKILL (signal 9) after " in running.text


def test_delays_double_up_to_the_limit() -> None:
    policy = RestartPolicy()
    assert [policy.delay_seconds(n) for n in (1, 2, 3, 4, 5, 6, 5000)] == [
        *(0.5, 1, 2, 4, 8),
        *(10, 10),
    ]


def test_a_child_that_was_steady_begins_with_the_first_delay(run: Callable[..., Running]) -> None:
    policy = RestartPolicy(
        first_delay_seconds=0.01, longest_delay_seconds=9, steady_after_seconds=0
    )
    running = run(python("web", "print('here')"), restart=policy)
    running.wait_for(lambda each: len(each.lines) >= 4)
    running.stop()
    assert running.text.count("starting it again in 0.01 s") >= 3
    assert "starting it again in 0.02 s" not in running.text


def test_a_child_that_is_never_ready_is_told_loudly(run: Callable[..., Running]) -> None:
    code = "print('no such queue: q1'); raise SystemExit(1)"
    running = run(python("worker", code, ready_text="ready."))
    running.wait_for(lambda each: len(each.lines) >= 7)
    running.stop()
    assert "worker has died 5 times and was never ready: ended with exit code 1." in running.text
    assert "celeriac |     no such queue: q1\n" in running.text
    assert running.text.index("never ready") < running.text.rindex("worker   | no such queue")


def test_a_child_that_was_ready_once_is_not_told_loudly(run: Callable[..., Running]) -> None:
    running = run(python("worker", "print('I am ready.')", ready_text="ready."))
    running.wait_for(lambda each: len(each.lines) >= 7)
    assert "never ready" not in running.text


def test_a_program_that_does_not_exist_is_named_and_tried_again(
    run: Callable[..., Running],
) -> None:
    running = run(Child(name="web", argv=["/no/such/program"]))
    running.wait_for(lambda each: len(each.lines) >= 2)
    assert "cannot run '/no/such/program'" in running.text
    assert "No such file or directory" in running.text


def test_stop_lets_children_finish(run: Callable[..., Running]) -> None:
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('finished'), sys.exit(0)))\n"
        "print('here', flush=True); signal.pause()"
    )
    running = run(python("worker", code))
    running.wait_for(lambda each: bool(each.lines))
    assert running.stop() == 0
    assert running.lines[-1] == ("worker", "finished")
    assert "ended with" not in running.text


def test_stop_kills_a_child_that_does_not_stop_in_time(run: Callable[..., Running]) -> None:
    running = run(python("worker", STUBBORN), python("web", STAY), grace_seconds=0.05)
    running.wait_for(lambda each: len(each.lines) == 2)
    assert running.stop() == 1
    assert "killing worker: it did not stop in 0.05 s" in running.text


def test_stop_before_run_starts_nothing() -> None:
    supervisor = Supervisor([python("web", STAY)], out := io.StringIO())
    supervisor.stop()
    assert supervisor.run() == 0
    assert "here" not in out.getvalue()


def test_what_a_dead_child_started_is_killed(run: Callable[..., Running]) -> None:
    code = (
        "import subprocess, sys, os, signal\n"
        f"inner = subprocess.Popen([sys.executable, '-c', {STUBBORN!r}])\n"
        "print('inner', inner.pid, flush=True); signal.pause()"
    )
    running = run(python("worker", code))
    # The inner process prints through the same pipe, so it ignores SIGTERM by then.
    running.wait_for(lambda each: {"here"} <= {line for _, line in each.lines})
    inner = next(int(line.split()[1]) for _, line in running.lines if line.startswith("inner"))
    assert running.stop() == 0
    wait_until(lambda: not is_alive(inner))


def test_an_error_of_the_listener_ends_everything() -> None:
    seen: list[int] = []

    def on_line(name: str, line: str) -> None:
        seen.append(int(line))
        raise ZeroDivisionError

    code = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    with pytest.raises(ZeroDivisionError):
        Supervisor([python("web", code)], io.StringIO(), on_line).run()
    assert not is_alive(seen[0])


def test_output_that_nobody_reads_any_more_ends_the_run() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    out = os.fdopen(writing, "w")
    assert Supervisor([python("web", STAY)], out).run() == 0
    with contextlib.suppress(BrokenPipeError):
        out.close()


@pytest.mark.parametrize("names", [[], ["web", "web"]])
def test_children_need_names_of_their_own(names: list[str]) -> None:
    with pytest.raises(ValueError, match="each with its own name"):
        Supervisor([python(name, STAY) for name in names])


def test_a_child_needs_a_program() -> None:
    with pytest.raises(ValueError, match="empty argv"):
        Child(name="web", argv=[])


class Process:
    """A supervisor in a process of its own, for what happens to the process."""

    def __init__(self, directory: Path, child: str, grace_seconds: float = 60) -> None:
        script = directory / "supervise.py"
        script.write_text(
            "import sys\n"
            "from celeriac.tasks import supervisor\n"
            "from celeriac.tasks.supervisor import Child, Supervisor\n"
            # Each signal is a key press of its own, so that no test waits for the next.
            "supervisor._SAME_KEY_PRESS_SECONDS = 0\n"
            f"child = Child(name='web', argv=[sys.executable, '-c', {child!r}])\n"
            f"sys.exit(Supervisor([child], grace_seconds={grace_seconds}).run())\n"
        )
        # Unbuffered: a line that a buffer holds already is none that `select` sees.
        self.process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, bufsize=0)
        assert self.process.stdout is not None
        self._stdout = self.process.stdout

    def line(self) -> str:
        assert select.select([self._stdout], [], [], 30)[0], "no output"
        return self._stdout.readline().decode()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._stdout.close()


PID_THEN_STAY = "import os, signal; print(os.getpid(), os.getpgid(0), flush=True); signal.pause()"
PID_THEN_STUBBORN = f"import os; print(os.getpid(), os.getpgid(0), flush=True)\n{STUBBORN}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_children_and_then_the_supervisor(
    tmp_path: Path, number: signal.Signals
) -> None:
    with contextlib.closing(Process(tmp_path, PID_THEN_STAY)) as supervisor:
        pid, group = (int(word) for word in supervisor.line().split()[2:])
        assert group == pid, "a child in the supervisor's group would get Ctrl-C itself"
        supervisor.process.send_signal(number)
        assert supervisor.process.wait(30) == 0
        assert not is_alive(pid)


def test_a_second_signal_kills_at_once(tmp_path: Path) -> None:
    with contextlib.closing(Process(tmp_path, PID_THEN_STUBBORN)) as supervisor:
        pid = int(supervisor.line().split()[2])
        assert supervisor.line() == "web      | here\n"

        supervisor.process.send_signal(signal.SIGINT)
        assert "stopping web" in supervisor.line()
        supervisor.process.send_signal(signal.SIGINT)
        assert supervisor.line() == "celeriac | killing web: asked a second time\n"
        assert supervisor.process.wait(30) == 1
        assert not is_alive(pid)


def test_a_key_press_that_a_wrapper_passes_on_again_is_one_signal() -> None:
    supervisor = Supervisor([python("web", STAY)], io.StringIO())
    supervisor._on_signal(signal.SIGINT, None)
    supervisor._on_signal(signal.SIGINT, None)
    assert supervisor._stop_asked
    assert not supervisor._kill_asked


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems cannot tie a child to its parent"
)
def test_children_do_not_outlive_a_killed_supervisor(tmp_path: Path) -> None:
    with contextlib.closing(Process(tmp_path, PID_THEN_STUBBORN)) as supervisor:
        pid = int(supervisor.line().split()[2])
        assert supervisor.line() == "web      | here\n"
        supervisor.process.kill()
        wait_until(lambda: not is_alive(pid))
