"""One run of the storm: sessions talk, everything is killed and frozen, and then all of it is checked."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from celeriac.sessions.calls import DecisionVerb
from celeriac.sessions.state import SessionStatus
from tests.chaos.check import Books, Fault, faults_of, read_story
from tests.chaos.hands import PERSON, ByClient, ByWeb
from tests.chaos.ledger import Ledger
from tests.chaos.people import People, Talk
from tests.chaos.providers import ChaosStripe, connections, make_bookings
from tests.chaos.report import Outcome
from tests.chaos.script import script_of
from tests.chaos.storm import Storm
from tests.connectors.sdk.provider import running_provider
from tests.store.indexes import check_indexes
from tests.store.inventory import wrong_keys
from tests.tasks.cluster import PATIENCE, Cluster

__all__ = ["Plan", "run_storm"]


@dataclass(frozen=True, slots=True)
class Plan:
    """How large a storm is to be."""

    sessions: int
    minutes: float
    seed: int
    rate: float
    """How often each pass of a named point kills or freezes, from 0 to 1."""
    calm_seconds: float
    """The mean time between two acts from outside."""


def run_storm(plan: Plan, root: Path) -> Outcome:
    """Run one storm and check all that is left.

    Args:
        plan: Its size and seed.
        root: A directory of its own.
    """
    return _Run(plan, root).run()


class _Run:
    def __init__(self, plan: Plan, root: Path) -> None:
        self._plan = plan
        root.mkdir(parents=True, exist_ok=True)
        self._ledger = Ledger(root / "ledger.sqlite")
        self._bookings = root / "bookings.sqlite"
        make_bookings(self._bookings)
        self._providers = ExitStack()
        stripe = self._providers.enter_context(running_provider())
        stripe.then = ChaosStripe(self._ledger, plan.seed)
        token = hashlib.sha256(PERSON.encode()).hexdigest()
        env = {
            "CELERIAC_OPERATORS": f"{PERSON}:operator:{token}",
            # One person is everybody here.
            "CELERIAC_LIMIT_SESSIONS_PER_MINUTE": "0",
            "CELERIAC_LIMIT_MESSAGES_PER_MINUTE": "0",
            # Sessions are packed again and again between their turns.
            "CELERIAC_PACK_AFTER_SECONDS": "0.5",
            "CHAOS_LEDGER": str(root / "ledger.sqlite"),
            "CHAOS_SEED": str(plan.seed),
            "CHAOS_RATE": str(plan.rate),
            **connections(stripe.url, self._bookings),
        }
        self._cluster = Cluster(root / "cluster", agents="tests.chaos.agents", env=env)
        self._storm = Storm(self._cluster, self._ledger, plan.seed, calm_seconds=plan.calm_seconds)
        each = plan.minutes * 60 * 0.8 / plan.sessions
        self._talks = [
            Talk(script_of(plan.seed, number), over_http=number % 2 == 1, starts_at=number * each)
            for number in range(plan.sessions)
        ]
        self._web = ByWeb()
        self._people = [
            People(
                [talk for talk in self._talks if talk.over_http is over_http],
                self._web if over_http else ByClient(self._cluster.client),
                self._ledger,
                plan.seed,
            )
            for over_http in (False, True)
        ]
        self._faults: list[Fault] = []

    def run(self) -> Outcome:
        began = time.monotonic()
        with self._providers, self._cluster, closing(self._web):
            self._until(self._agents_known, quiet=True)
            with self._everybody_talks():
                self._until(lambda: False, quiet=False, seconds=self._plan.minutes * 60)
                self._until_done()
            stuck = self._stuck()
            self._check_indexes("while approvals wait")
            self._approve_the_rest()
            self._storm.end_workers()
            self._check_indexes("at the end")
            self._everywhere(wrong_keys(self._cluster.redis))
            return self._outcome(stuck, time.monotonic() - began)

    def _until(
        self, holds: Callable[[], bool], *, quiet: bool, seconds: float = 3 * PATIENCE
    ) -> None:
        """Keep the storm, or the calm after it, going until something holds."""
        deadline = time.monotonic() + seconds
        while not holds() and time.monotonic() < deadline:
            self._storm.tick(quiet=quiet)
            self._web.base = self._storm.base

    def _until_done(self) -> None:
        """Wait for all sessions as long as any goes on, however slow the machine is."""
        done = -1
        while not self._all_done() and done != (done := self._ledger.length()):
            self._until(self._all_done, quiet=True, seconds=PATIENCE)

    def _agents_known(self) -> bool:
        return bool(self._cluster.client.agents())

    def _all_done(self) -> bool:
        return all(talk.done for talk in self._talks)

    @contextmanager
    def _everybody_talks(self) -> Iterator[None]:
        stop = threading.Event()
        with ThreadPoolExecutor(3) as threads:
            running = [threads.submit(people.talk_until, stop) for people in self._people]
            running.append(threads.submit(self._storm.burglar.run_until, stop))
            try:
                yield
            finally:
                stop.set()
            for future in running:
                future.result()

    # --- the end

    def _everywhere(self, found: list[str]) -> None:
        self._faults += [Fault("", what) for what in found]

    def _stuck(self) -> int:
        stuck = [talk for talk in self._talks if not talk.done]
        self._faults += [Fault(talk.session_id, "it is stuck") for talk in stuck]
        for people in self._people:
            self._everywhere(people.errors)
        return len(stuck)

    def _check_indexes(self, when: str) -> None:
        """The indexes say what the sessions say; a late result may change both while we look."""
        wrong = [""]

        def right() -> bool:
            try:
                check_indexes(self._cluster.redis, wake_scores=False)
            except AssertionError as error:
                wrong[0] = f"indexes {when}: {error}"
                return False
            return True

        self._until(right, quiet=True, seconds=10)
        if not right():
            self._everywhere(wrong)

    def _approve_the_rest(self) -> None:
        """What waited through the whole storm is still there, and runs once approved."""
        client = self._cluster.client
        listed = {(one.session_id, one.call.id) for one in client.approvals(limit=10_000)}
        expected = set()
        for talk in self._talks:
            if not talk.session_id or talk.script.left is None or not talk.done:
                continue
            for call in client.snapshot(talk.session_id).calls:
                if call.arguments == {"label": talk.script.left} and not call.status.settled:
                    expected.add((talk.session_id, call.id))
                    self._faults += (
                        [] if call.digest else [Fault(talk.session_id, "no digest", call.id)]
                    )
        if listed != expected:
            self._everywhere([f"approvals lists {listed}; left waiting were {expected}"])
        for session_id, call_id in expected & listed:
            client.decide(session_id, call_id, DecisionVerb.APPROVE, by=PERSON)
        waiting = {session_id for session_id, _ in expected}
        self._until(lambda: not self._busy(waiting), quiet=True)

    def _busy(self, session_ids: set[str]) -> bool:
        states = (self._cluster.client.snapshot(session_id) for session_id in session_ids)
        return any(state.status is not SessionStatus.IDLE for state in states)

    def _outcome(self, stuck: int, seconds: float) -> Outcome:
        books = Books.read(self._ledger, self._bookings)
        talks = [talk for talk in self._talks if talk.session_id]
        stories = [read_story(self._cluster.client, talk) for talk in talks]
        for story in stories:
            self._faults += faults_of(story, books)
        requests = self._ledger.requests()
        self._faults += [Fault(one.session_id, one.problems) for one in requests if one.problems]
        return Outcome(
            seed=self._plan.seed,
            seconds=seconds,
            stories=stories,
            books=books,
            blows=self._ledger.blows(),
            requests=requests,
            acts=self._storm.acts,
            messages=self._storm.burglar.fates,
            stuck=stuck,
            faults=self._faults,
        )
