"""Sessions that talk and wait while everything around them is killed at random, and what must be true after."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import httpx

from celeriac.sessions.calls import CallRecord, CallStatus, DecisionVerb
from celeriac.sessions.errors import CeleriacError
from celeriac.sessions.messages import Role
from celeriac.sessions.snapshot import Snapshot
from celeriac.sessions.state import SessionStatus
from tests.tasks.cluster import Cluster, Running, assert_history_holds
from tests.waiting import wait_until

__all__ = ["Storm", "Talk"]

_PLANS: Sequence[tuple[str, ...]] = (
    ("one", "/fail 1", "three"),
    ('/tool look_up_order {"order_id": "1001", "delay_seconds": 0.5}', "thanks"),
    ('/tool charge {"end": ""}', '/tool put {"end": ""}', "thanks"),
    ('/tool charge_approved {"pause": 0.3}', "/tool charge_approved {}", "thanks"),
    (
        '/tools look {} put {} charge {} look_up_order {"order_id": "1004", "delay_seconds": 0.3}',
        "ok",
    ),
)
_WAITS_TO_THE_END = ("/tool charge_approved {}",)


@dataclass
class Talk:
    """One session and what its person says."""

    messages: Sequence[str]
    approves: bool
    session_id: str = ""
    said: int = 0
    decided: set[str] = field(default_factory=set)
    done: bool = False


class Storm:
    """Lets sessions talk and kills what carries them.

    Args:
        cluster: The cluster; it has a store and nothing else.
        sessions: How many sessions.
        seed: Decides every random choice.
        over_http: Whether people use the web, which is killed, too.
    """

    def __init__(self, cluster: Cluster, sessions: int, seed: int, *, over_http: bool) -> None:
        self.cluster = cluster
        self.chance = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.talks = [
            Talk(_WAITS_TO_THE_END, approves=False)
            if number % 6 == 5
            else Talk(_PLANS[number % 6], approves=True)
            for number in range(sessions)
        ]
        self._over_http = over_http
        self._web: tuple[Running, str] | None = None
        self._pause = threading.Event()

    def run(self, rounds: int) -> None:
        """Talk, and kill something in each round; then let everything come to its end."""
        self._start_what_is_missing()
        wait_until(self.cluster.client.agents, "agents are told", timeout_seconds=60)
        stop = threading.Event()
        people = threading.Thread(target=self._talk_until, args=(stop,), name="people")
        people.start()
        try:
            for _ in range(rounds):
                self._pause.wait(self.chance.uniform(0.2, 1.5))
                self._kill_something()
                self._pause.wait(self.chance.uniform(0.0, 1.0))
                self._start_what_is_missing()
            wait_until(
                lambda: all(talk.done for talk in self.talks),
                "all sessions are done",
                timeout_seconds=240,
            )
        finally:
            stop.set()
            people.join()

    # --- killing

    def _kill_something(self) -> None:
        kinds: list[tuple[str, Callable[[], None]]] = [
            ("a worker", self._kill_one),
            ("all workers", self.cluster.kill_workers),
            ("the store", self.cluster.kill_store),
            ("workers and store", self._kill_workers_and_store),
            ("store and workers", self._kill_store_and_workers),
        ]
        if self._web is not None:
            kinds.append(("the web", self._web[0].kill))
        word, kill = self.chance.choice(kinds)
        self.kills[word] += 1
        kill()

    def _kill_one(self) -> None:
        workers = self.cluster.workers
        if workers:
            self.chance.choice(workers).kill()

    def _kill_workers_and_store(self) -> None:
        self.cluster.kill_workers()
        self.cluster.kill_store()

    def _kill_store_and_workers(self) -> None:
        self.cluster.kill_store()
        self.cluster.kill_workers()

    def _start_what_is_missing(self) -> None:
        if not self.cluster.store.alive():
            self.cluster.start_store()
        missing = 2 - len(self.cluster.workers)
        for _ in range(missing):
            # Not awaited: the next kill may well meet a worker that is just starting.
            self.cluster.start_worker(ready=False)
        if self._over_http and (self._web is None or not self._web[0].alive):
            self._web = self.cluster.start_web()

    # --- talking

    def _talk_until(self, stop: threading.Event) -> None:
        while not stop.wait(0.05):
            for talk in self.talks:
                try:
                    self._go_on(talk)
                except (CeleriacError, httpx.HTTPError, _TryAgain):
                    # The store or the web is away; whoever talks tries again.
                    self._pause.wait(0.05)

    def _go_on(self, talk: Talk) -> None:
        if talk.done:
            return
        if not talk.session_id:
            talk.session_id = self._create()
        snapshot = self.cluster.snapshot(talk.session_id)
        if snapshot.status is SessionStatus.WAITING:
            self._decide(talk, snapshot)
        elif snapshot.status is SessionStatus.IDLE and talk.said < len(talk.messages):
            self._say(talk)
        elif snapshot.status is SessionStatus.IDLE:
            talk.done = True

    def _decide(self, talk: Talk, snapshot: Snapshot) -> None:
        if not talk.approves:
            talk.done = True
            return
        for call in snapshot.calls:
            if call.status is CallStatus.AWAITING_APPROVAL:
                self._approve(talk.session_id, call)
                talk.decided.add(call.id)

    def _create(self) -> str:
        if not self._over_http:
            return self.cluster.client.create_session().session_id
        return str(self._post("/api/sessions", {})["session_id"])

    def _say(self, talk: Talk) -> None:
        text, name = talk.messages[talk.said], f"message-{talk.said}"
        if self._over_http:
            body = {"text": text, "message_id": name}
            self._post(f"/api/sessions/{talk.session_id}/messages", body)
        else:
            self.cluster.client.send_message(talk.session_id, text, message_id=name)
        talk.said += 1

    def _approve(self, session_id: str, call: CallRecord) -> None:
        if self._over_http:
            body = {"decision": "approve", "digest": call.digest}
            self._post(f"/api/sessions/{session_id}/calls/{call.id}/decision", body)
        else:
            self.cluster.client.decide(session_id, call.id, DecisionVerb.APPROVE, by="ana")

    def _post(self, path: str, body: Mapping[str, object]) -> dict[str, object]:
        if self._web is None:
            raise _TryAgain
        headers = {"Authorization": "Bearer ana"}
        answer = httpx.post(self._web[1] + path, json=body, headers=headers, timeout=30)
        if answer.status_code >= 500:
            raise _TryAgain
        assert answer.is_success, answer.text
        answered: dict[str, object] = answer.json()
        return answered

    # --- what must be true

    def check(self) -> Counter[str]:
        """Check every session, and count how its calls ended."""
        ends: Counter[str] = Counter()
        for talk in self.talks:
            snapshot = self.cluster.snapshot(talk.session_id)
            said = [m.text for m in snapshot.messages if m.role is Role.USER]
            assert said == list(talk.messages), snapshot.session_id
            if talk.approves:
                assert_history_holds(snapshot)
                assert not any(_failed_turn(m.text) for m in snapshot.messages), snapshot
            for call in snapshot.calls:
                ends[call.status.value] += 1
                self._check_effects(call)
        assert self.cluster.model_problems() == []
        return ends

    def _check_effects(self, call: CallRecord) -> None:
        if call.tool not in {"charge", "charge_approved"}:
            assert call.status in {
                CallStatus.SUCCEEDED,
                CallStatus.FAILED,
                CallStatus.OUTCOME_UNKNOWN,
            }
            return
        times = len(self.cluster.marks("charge", call.id))
        allowed = {
            CallStatus.SUCCEEDED: {1},
            CallStatus.OUTCOME_UNKNOWN: {0, 1},
            CallStatus.AWAITING_APPROVAL: {0},
            CallStatus.FAILED: {0},
        }
        assert times in allowed[call.status], call

    def approve_the_rest(self) -> None:
        """What waited through the whole storm is still there and runs once when approved."""
        waiting = {talk.session_id for talk in self.talks if not talk.approves}
        listed = {item.session_id for item in self.cluster.client.approvals(limit=1000)}
        assert listed == waiting
        for session_id in waiting:
            call = self.cluster.waiting(session_id)
            self.cluster.client.decide(session_id, call.id, DecisionVerb.APPROVE, by="ana")
        for session_id in waiting:
            (call,) = self.cluster.idle(session_id).calls
            assert call.status is CallStatus.SUCCEEDED
            assert len(self.cluster.marks("charge", call.id)) == 1

    def attempts_lost(self) -> int:
        """How many attempts the kills have cost."""
        steps = (self.cluster.client.steps(talk.session_id) for talk in self.talks)
        return sum(step.status in {"lost", "outcome_unknown"} for one in steps for step in one)


class _TryAgain(Exception):
    """The web was away or said so."""


def _failed_turn(text: str) -> bool:
    # Three attempts of one model call may all meet a kill; then the turn fails, as it should.
    return text.startswith("This turn failed") and "was lost" not in text
