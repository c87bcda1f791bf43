"""A whole Celeriac of real processes on a directory: store, workers, web; started, stopped and killed at will.

Each process leads a group of its own, so a kill reaches it and what it started, and nothing else. All of
them die with the test process, and `Cluster.close` reaps them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, cast

import redis

from celeriac.connectors.history import problems_of
from celeriac.connectors.order_support.desk import Effect, OrderDesk
from celeriac.sessions.calls import CallRecord, CallStatus
from celeriac.sessions.client import SessionClient
from celeriac.sessions.errors import CeleriacError
from celeriac.sessions.messages import Role
from celeriac.sessions.model import ModelRequest
from celeriac.sessions.settings import Settings
from celeriac.sessions.snapshot import Snapshot
from celeriac.sessions.state import SessionStatus
from celeriac.sessions.store.connection import connect
from celeriac.sessions.store.embedded import EmbeddedStore
from celeriac.sessions.store.keys import SessionKeys
from celeriac.tasks.celery import make_app
from celeriac.tasks.child import _DIE_WITH_PARENT
from celeriac.tasks.dispatch import open_store
from tests.waiting import wait_until

__all__ = ["CHECKOUT", "FAULT_AGENTS", "Cluster", "Running", "clean_environment", "free_port"]

CHECKOUT = Path(__file__).resolve().parents[2]
FAULT_AGENTS = Path(__file__).with_name("fault_agents.py")

PATIENCE = float(os.environ.get("CELERIAC_TEST_PATIENCE", "60"))
"""The machine may be busy: how long a condition may take is no measure of anything."""

_FAST = {
    "CELERIAC_LEASE_SECONDS": "2",
    "CELERIAC_WAKE_INTERVAL_SECONDS": "0.1",
    "CELERIAC_RESEND_SECONDS": "0.5",
    "CELERIAC_RETRY_BASE_SECONDS": "0.05",
    "CELERIAC_WORKER_CONCURRENCY": "8",
    "CELERIAC_WEB_PROCESSES": "1",
    "CELERIAC_WEB_THREADS": "40",
}

_OPTIONS = ("--loglevel", "INFO", "--without-gossip", "--without-mingle", "--without-heartbeat")


def clean_environment(**values: str) -> dict[str, str]:
    """This process's environment without our own settings, and then `values`."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("CELERIAC_")}
    return {**kept, "PYTHONUNBUFFERED": "1", **values}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Running:
    """A started program."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    hostname: str = ""
    """A worker's name, with which the owner of its claims begins."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program itself."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL the program and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self, *, timeout_seconds: float = PATIENCE) -> int:
        """Ask it to end (SIGTERM) and wait until it has; return its exit code."""
        self.process.terminate()
        return self.process.wait(timeout_seconds)


@dataclass(frozen=True)
class Mark:
    """One line that a tool or model of `fault_agents` left when it was entered."""

    what: str
    key: str
    attempt: int
    pid: int
    more: Mapping[str, object] = field(default_factory=dict)


class Cluster:
    """A store and the processes on it.

    Args:
        root: A directory of its own.
        agents: What ``CELERIAC_AGENTS`` names.
        env: More variables for every process.
    """

    def __init__(
        self, root: Path, *, agents: str = str(FAULT_AGENTS), env: Mapping[str, str] | None = None
    ) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        # As in production: with everysec a store that is killed while the disk is busy forgets what
        # it has acknowledged, because it puts the write off until the fsync before it is done.
        self.store = EmbeddedStore(root / "data", appendfsync="always")
        self.url = self.store.start()
        self._made: list[Running] = []
        self.env = clean_environment(
            **_FAST,
            CELERIAC_REDIS_URL=self.url,
            CELERIAC_DATA_DIR=str(root / "web"),
            CELERIAC_AGENTS=agents,
            CELERIAC_ORDER_DESK=str(root / "desk.sqlite"),
            FAULT_DIR=str(root),
        )
        self.env |= env or {}
        self.settings = Settings(redis_url=self.url, broker_url=self.env.get("CELERIAC_BROKER_URL"))
        self.broker_app = make_app(self.settings)
        session_store = open_store(self.settings, self.broker_app)
        self.redis: redis.Redis = session_store.client
        self.client = SessionClient(session_store, self.settings)
        self.desk = OrderDesk(root / "desk.sqlite")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill and reap everything."""
        for one in self._made:
            # A stopped process does not end by any other signal.
            one.kill()
        self.resume_store()
        self.redis.close()
        self.store.stop()

    # --- processes

    def start(
        self,
        name: str,
        argv: Sequence[str],
        *,
        cwd: Path = CHECKOUT,
        env: Mapping[str, str] | None = None,
        hostname: str = "",
    ) -> Running:
        """Start a program in a group of its own, its output in a log file."""
        log = self.root / f"{name}-{len(self._made)}.log"
        wrapper = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid())]
        if sys.platform != "linux":
            wrapper = []
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*wrapper, *argv],
                cwd=cwd,
                env={**self.env, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        running = Running(name, process, log, hostname)
        self._made.append(running)
        return running

    def start_worker(
        self,
        *options: str,
        name: str = "worker",
        hostname: str = "",
        app: str = "celeriac.tasks",
        cwd: Path = CHECKOUT,
        ready: bool = True,
        env: Mapping[str, str] | None = None,
    ) -> Running:
        """Start ``celery worker``, by default under a name that none had before; wait until it is ready."""
        hostname = hostname or f"{name}{len(self._made)}@here"
        argv = [sys.executable, "-m", "celery", "--app", app, "--quiet", "worker", *_OPTIONS]
        argv += ["--hostname", hostname, *options]
        worker = self.start(name, argv, cwd=cwd, env=env, hostname=hostname)
        if ready:
            self.await_ready(worker)
        return worker

    def start_workers(self, count: int, *, env: Mapping[str, str] | None = None) -> list[Running]:
        """Start several workers at once, then wait for all."""
        workers = [self.start_worker(ready=False, env=env) for _ in range(count)]
        for worker in workers:
            self.await_ready(worker)
        return workers

    def await_ready(self, worker: Running) -> None:
        def ready() -> bool:
            assert worker.alive, f"{worker.name} ended:\n{worker.output()}"
            return "is ready with agents" in worker.output()

        wait_until(ready, f"{worker.name} is ready", timeout_seconds=PATIENCE)

    @property
    def workers(self) -> list[Running]:
        """The workers that live."""
        return [one for one in self._made if one.alive and one.hostname]

    def worker_of(self, session_id: str) -> Running:
        """The worker that runs the session's step."""
        turn = self.snapshot(session_id).turn
        assert turn is not None
        owners = {step.owner for step in turn.steps if step.owner}
        (owner,) = owners
        return next(one for one in self.workers if owner.startswith(one.hostname + "/"))

    def first_lease_is_over(self, session_id: str) -> None:
        """Wait until the present lease of a session's running step has run out, unless renewed."""
        key = SessionKeys.of(session_id).session
        fields = cast("dict[bytes, bytes]", self.redis.hgetall(key))
        due = max(int(text.split()[1]) for name, text in fields.items() if name[:2] == b"c:")

        def over() -> bool:
            seconds, micros = self.redis.time()
            return seconds * 1000 + micros // 1000 > due

        wait_until(over, "a lease is over", timeout_seconds=PATIENCE)

    def ensure_workers(self, count: int) -> None:
        """Have exactly so many workers; the settings are the cluster's own."""
        living = self.workers
        for spare in living[count:]:
            spare.kill()
        self.start_workers(max(0, count - len(living)))

    def stop_workers(self) -> None:
        """End all workers, gently, and at once."""
        workers = self.workers
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.process.wait(PATIENCE)

    def kill_workers(self) -> None:
        for worker in self.workers:
            worker.kill()

    def start_web(self, *, ready: bool = True) -> tuple[Running, str]:
        """Start the web, and wait until it answers; return it and its address."""
        port = free_port()
        command = [sys.executable, "-m", "celeriac.web.serve"]
        web = self.start("web", command, env={"CELERIAC_PORT": str(port)})
        base = f"http://127.0.0.1:{port}"

        def answers() -> bool:
            assert web.alive, f"web ended:\n{web.output()}"
            try:
                with urllib.request.urlopen(f"{base}/healthz", timeout=5) as answer:
                    return bool(answer.status == 200)
            except (urllib.error.URLError, OSError):
                return False

        if ready:
            wait_until(answers, "the web answers", timeout_seconds=PATIENCE)
        return web, base

    # --- the store

    @property
    def store_pid(self) -> int:
        pid = self.store.pid
        assert pid is not None, "the store does not run"
        return pid

    def kill_store(self) -> None:
        os.kill(self.store_pid, signal.SIGKILL)
        wait_until(lambda: not self.store.alive(), "the store is dead", timeout_seconds=PATIENCE)

    def stop_store(self) -> None:
        """Stop the store the gentle way."""
        self.store.stop()

    def start_store(self) -> None:
        assert self.store.start() == self.url

    def freeze_store(self) -> None:
        os.kill(self.store_pid, signal.SIGSTOP)

    def resume_store(self) -> None:
        with contextlib.suppress(AssertionError, ProcessLookupError):
            os.kill(self.store_pid, signal.SIGCONT)

    def restore(self, workers: int) -> None:
        """Bring store and workers back to what a test expects to find."""
        self.resume_store()
        if not self.store.alive():
            self.start_store()
        self.ensure_workers(workers)

    def broker_keys(self) -> list[bytes]:
        """The keys that belong to Celery and kombu."""
        return broker_keys(self.redis)

    def drop_broker_keys(self) -> None:
        """Delete everything that the broker has."""
        keys = self.broker_keys()
        if keys:
            self.redis.delete(*keys)

    # --- sessions

    def say(self, text: str, *, agent: str | None = None) -> str:
        """Start a session with a message; return its id."""
        wait_until(self.client.agents, "a worker has told its agents", timeout_seconds=PATIENCE)
        return self.client.create_session(agent=agent, message=text).session_id

    def snapshot(self, session_id: str) -> Snapshot:
        return self.client.snapshot(session_id)

    def idle(self, session_id: str, *, timeout_seconds: float = PATIENCE) -> Snapshot:
        """Wait until a session is idle."""
        return self._when(
            session_id, "idle", lambda s: s.status is SessionStatus.IDLE, timeout_seconds
        )

    def waiting(self, session_id: str) -> CallRecord:
        """Wait until a session's only open matter is an approval; return that call."""
        snapshot = self._when(
            session_id, "waiting", lambda s: s.status is SessionStatus.WAITING, PATIENCE
        )
        return next(c for c in snapshot.calls if c.status is CallStatus.AWAITING_APPROVAL)

    def waits(self, session_id: str, status: CallStatus) -> CallRecord:
        """Wait until a session waits for something of this kind, and for nothing else; return that call."""
        snapshot = self._when(
            session_id, f"only {status}", lambda s: s.status is SessionStatus.WAITING, PATIENCE
        )
        return next(c for c in snapshot.calls if c.status is status)

    def running_call(self, session_id: str, tool: str) -> CallRecord:
        """Wait until a call of that tool runs."""
        found: list[CallRecord] = []

        def running() -> bool:
            found[:] = [
                call
                for call in self.snapshot(session_id).calls
                if call.tool == tool and call.status is CallStatus.RUNNING
            ]
            return bool(found)

        wait_until(running, f"{tool} runs in {session_id}", timeout_seconds=PATIENCE)
        return found[0]

    def _when(self, session_id: str, word: str, holds: object, timeout_seconds: float) -> Snapshot:
        assert callable(holds)
        latest: list[Snapshot] = []

        def looked() -> bool:
            try:
                latest[:] = [self.client.snapshot(session_id)]
            except CeleriacError:
                return False
            return bool(holds(latest[0]))

        try:
            wait_until(looked, f"{session_id} is {word}", timeout_seconds=timeout_seconds)
        except BaseException as error:
            if latest:
                error.add_note(f"it is:\n{latest[0].model_dump_json(indent=1)}")
            raise
        return latest[0]

    def answer(self, session_id: str) -> str:
        """Wait until a session is idle; return the last thing that the model said."""
        return last_answer(self.idle(session_id))

    def effects(self, call_id: str | None = None) -> list[Effect]:
        """What really happened at the order desk."""
        return self.desk.effects(call_id=call_id)

    def marks(self, what: str, key: str | None = None) -> list[Mark]:
        """What the tools and the model of `fault_agents` left."""
        path = self.root / "marks"
        lines = path.read_text().splitlines() if path.exists() else []
        marks = (Mark(**json.loads(line)) for line in lines)
        return [mark for mark in marks if mark.what == what and key in {None, mark.key}]

    def entered(self, what: str, key: str, *, times: int = 1) -> list[Mark]:
        """Wait until something was entered so often."""
        wait_until(
            lambda: len(self.marks(what, key)) >= times,
            f"{what} {key} was entered {times} times",
            timeout_seconds=PATIENCE,
        )
        return self.marks(what, key)

    def open_gate(self, name: str) -> None:
        """Let go what waits at a gate of `fault_agents`."""
        (self.root / f"gate-{name}").touch()

    def model_problems(self) -> list[str]:
        """What was wrong with any model request that the agents of `fault_agents` saw."""
        return [
            problem
            for mark in self.marks("model")
            for problem in cast("list[str]", mark.more["problems"])
        ]

    def logs(self) -> Iterator[tuple[str, str]]:
        """The end of each process's output, and of the store's."""
        for one in self._made:
            yield f"{one.log.name} ({one.process.returncode})", one.output()[-6_000:]
        yield "store", self.store.log_tail()


def last_answer(snapshot: Snapshot) -> str:
    said = [message.text for message in snapshot.messages if message.role is Role.ASSISTANT]
    return said[-1] if said else ""


def results(snapshot: Snapshot) -> list[str]:
    """The texts that the model read as results, in order."""
    return [message.text for message in snapshot.messages if message.role is Role.TOOL]


def assert_history_holds(snapshot: Snapshot) -> None:
    """The conversation is one that the strictest provider takes."""
    request = ModelRequest(
        model=snapshot.model,
        instructions="",
        # Summaries stand where they were made, among the messages that they stand for.
        messages=[one for one in snapshot.messages if one.role is not Role.SUMMARY],
        tools=(),
        session_id=snapshot.session_id,
        turn_id="",
        attempt=1,
        timeout_seconds=1,
    )
    assert problems_of(request) == []


def broker_keys(client: redis.Redis) -> list[bytes]:
    """Every key of a Redis that is not a session's."""
    own = (b"celeriac:",)
    return [key for key in client.scan_iter() if not key.startswith(own)]


def plain_redis(url: str) -> redis.Redis:
    return connect(url)
