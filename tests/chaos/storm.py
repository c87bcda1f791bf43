"""Kills, freezes and robs everything around sessions that talk, and starts again what is missing."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from random import Random
from typing import cast

import redis

from celeriac.tasks.names import MODEL_QUEUE, TOOL_QUEUE
from tests.chaos.ledger import Ledger
from tests.tasks.cluster import PATIENCE, Cluster, Running, plain_redis
from tests.waiting import wait_until

__all__ = ["Burglar", "Storm"]

_TICK_SECONDS = 0.05
_SOCKET_TIMEOUT_SECONDS = 10
"""How long a client of the store waits for an answer."""


@dataclass
class Slot:
    """A place for one worker; whoever has it is replaced when it has ended."""

    pool: str
    hostname: str
    """Empty: each new worker of this place has a name of its own."""
    worker: Running | None = None
    start_at: float = 0


class Burglar:
    """Takes messages out of the broker for a while, and loses, doubles or delays each."""

    def __init__(self, url: str, seed: int) -> None:
        self.fates: Counter[str] = Counter()
        self._redis = plain_redis(url)
        self._chance = Random(f"{seed}/burglar")
        self._until = 0.0
        self._later: list[tuple[float, bytes, bytes]] = []

    def rob(self, seconds: float) -> None:
        """Take messages for so long."""
        self._until = time.monotonic() + seconds

    def run_until(self, stop: threading.Event) -> None:
        """Wait for orders, and carry them out."""
        with closing(self._redis):
            self._serve(stop)

    def _serve(self, stop: threading.Event) -> None:
        while not stop.wait(_TICK_SECONDS):
            with suppress(redis.RedisError):
                self._bring_back()
                while time.monotonic() < self._until and not stop.is_set():
                    self._take()

    def _take(self) -> None:
        taken = self._redis.brpop([MODEL_QUEUE, TOOL_QUEUE], timeout=0.1)
        if not taken:
            return
        queue, message = cast("tuple[bytes, bytes]", taken)
        fate = self._chance.choice(("lost", "doubled", "delayed"))
        self.fates[fate] += 1
        if fate == "doubled":
            self._redis.lpush(queue, message, message)
        elif fate == "delayed":
            at = time.monotonic() + self._chance.uniform(0.1, 4)
            self._later.append((at, queue, message))

    def _bring_back(self) -> None:
        now = time.monotonic()
        # Not in the order in which they were taken.
        for at, queue, message in [one for one in self._later if one[0] <= now]:
            self._redis.lpush(queue, message)
            self._later.remove((at, queue, message))


class Storm:
    """Workers of both pools, the store and the web, and what befalls them.

    Args:
        cluster: The cluster; it has a store and nothing else.
        ledger: Tells which processes have frozen themselves.
        seed: Decides what is done when.
        calm_seconds: The mean time between two acts.

    Attributes:
        acts: How often each thing was done.
        base: The address of the web.
    """

    def __init__(self, cluster: Cluster, ledger: Ledger, seed: int, *, calm_seconds: float) -> None:
        self.acts: Counter[str] = Counter()
        self.base: str | None = None
        self.burglar = Burglar(cluster.url, seed)
        self._cluster = cluster
        self._ledger = ledger
        self._chance = Random(f"{seed}/storm")
        self._lease = float(cluster.env["CELERIAC_LEASE_SECONDS"])
        self._calm = calm_seconds
        self._slots = [
            Slot("threads", "threads-again@here"),
            Slot("prefork", "prefork-again@here"),
            Slot("threads", ""),
        ]
        self._web: Running | None = None
        self._thaws: dict[int, float] = {}
        self._seen_blows = 0.0
        self._next_act = time.monotonic() + calm_seconds

    # --- keeping things going

    def tick(self, *, quiet: bool) -> None:
        """Let go on what was frozen long enough, start what is missing, and unless `quiet` do harm."""
        self._pause.wait(_TICK_SECONDS)
        self._thaw()
        self._start_what_is_missing()
        if not quiet and time.monotonic() >= self._next_act:
            self._next_act = time.monotonic() + self._chance.uniform(0.2, 1.8) * self._calm
            self._do_something()

    _pause = threading.Event()

    def _thaw(self) -> None:
        now = time.time()
        for blow in self._ledger.blows(after=self._seen_blows):
            self._seen_blows = blow.at
            if blow.thaw_at is not None:
                self._thaws[blow.pid] = blow.thaw_at
        for pid, thaw_at in list(self._thaws.items()):
            if thaw_at <= now:
                _signal(pid, signal.SIGCONT)
                del self._thaws[pid]

    def end_workers(self) -> None:
        """Let the workers finish what they run, and end; some freeze themselves even now."""
        for worker in self._cluster.workers:
            worker.process.terminate()
        wait_until(self._have_ended, "the workers end", timeout_seconds=PATIENCE)

    def _have_ended(self) -> bool:
        self._thaw()
        return not self._cluster.workers

    def _start_what_is_missing(self) -> None:
        if not self._cluster.store.alive():
            self._cluster.start_store()
        for slot in self._slots:
            if slot.worker is not None and not slot.worker.alive:
                slot.worker = None
                slot.start_at = time.monotonic() + self._chance.choice((0, 0, 1, 3))
            if slot.worker is None and slot.start_at <= time.monotonic():
                slot.worker = self._start_worker(slot)
        if self._web is None or not self._web.alive:
            self._web, self.base = self._cluster.start_web(ready=False)

    def _start_worker(self, slot: Slot) -> Running:
        env = {"CELERIAC_WORKER_POOL": slot.pool}
        if slot.pool == "prefork":
            env["CELERIAC_WORKER_CONCURRENCY"] = "3"
        # Not awaited: the next act may well meet a worker that is just starting.
        return self._cluster.start_worker(
            name=slot.pool, hostname=slot.hostname, ready=False, env=env
        )

    # --- harm

    def _do_something(self) -> None:
        acts: dict[str, tuple[int, Callable[[], bool]]] = {
            "kill a worker": (6, self._kill_worker),
            "kill a main process alone": (1, self._kill_main),
            "kill a child": (3, lambda: self._to_child(signal.SIGKILL)),
            "kill all workers": (1, self._kill_workers),
            "kill the store": (2, self._kill_store),
            "kill store and workers": (1, lambda: self._kill_store() and self._kill_workers()),
            "kill the web": (2, lambda: self._to_web(kill=True)),
            "end a worker": (1, self._end_worker),
            "freeze a worker": (6, self._freeze_worker),
            "freeze a child": (2, lambda: self._to_child(signal.SIGSTOP)),
            "freeze the store": (2, lambda: self._freeze(self._cluster.store_pid)),
            "freeze the store past all timeouts": (1, self._freeze_store_long),
            "freeze the web": (1, lambda: self._to_web(kill=False)),
            "flap the store": (1, self._flap_store),
            "delete the broker's keys": (1, self._drop_broker_keys),
            "rob the broker": (6, self._rob),
        }
        weights = [weight for weight, _ in acts.values()]
        (word,) = self._chance.choices(list(acts), weights)
        if acts[word][1]():
            self.acts[word] += 1

    def _worker(self, pool: str | None = None) -> Running | None:
        workers = [
            slot.worker
            for slot in self._slots
            if slot.worker is not None and pool in {None, slot.pool}
        ]
        return self._chance.choice(workers) if workers else None

    def _kill_worker(self) -> bool:
        worker = self._worker()
        if worker is not None:
            worker.kill()
        return worker is not None

    def _kill_main(self) -> bool:
        """Its children, if it has some, find out by themselves."""
        worker = self._worker()
        if worker is not None:
            worker.process.kill()
            worker.process.wait()
        return worker is not None

    def _kill_workers(self) -> bool:
        self._cluster.kill_workers()
        return True

    def _kill_store(self) -> bool:
        self._cluster.kill_store()
        return True

    def _end_worker(self) -> bool:
        worker = self._worker()
        if worker is not None:
            worker.process.terminate()
        return worker is not None

    def _to_child(self, number: signal.Signals) -> bool:
        worker = self._worker("prefork")
        children = _children(worker.pid) if worker is not None else []
        if not children:
            return False
        child = self._chance.choice(children)
        if number is signal.SIGSTOP:
            return self._freeze(child)
        _signal(child, number)
        return True

    def _to_web(self, *, kill: bool) -> bool:
        if self._web is None:
            return False
        if not kill:
            return self._freeze(*_children(self._web.pid), self._web.pid)
        self._web.kill()
        return True

    def _freeze_worker(self) -> bool:
        worker = self._worker()
        return worker is not None and self._freeze(worker.pid, *_children(worker.pid))

    def _freeze(self, *pids: int) -> bool:
        """Stop processes for less than a lease, or for more."""
        factor = self._chance.choice(
            (self._chance.uniform(0.1, 0.8), self._chance.uniform(1.2, 2.5))
        )
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
            self._thaws[pid] = time.time() + factor * self._lease
        return True

    def _freeze_store_long(self) -> bool:
        """So long that clients give up on commands which the store carries out when it goes on."""
        pid = self._cluster.store_pid
        self._freeze(pid)
        self._thaws[pid] = time.time() + _SOCKET_TIMEOUT_SECONDS + self._chance.uniform(0.5, 2)
        return True

    def _flap_store(self) -> bool:
        for _ in range(3):
            self._cluster.kill_store()
            self._cluster.start_store()
            self._pause.wait(self._chance.uniform(0, 0.3))
        return True

    def _drop_broker_keys(self) -> bool:
        if self._cluster.store_pid in self._thaws:
            return False
        try:
            self._cluster.drop_broker_keys()
        except redis.RedisError:
            return False
        return True

    def _rob(self) -> bool:
        self.burglar.rob(self._chance.uniform(0.5, 2))
        return True


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]
