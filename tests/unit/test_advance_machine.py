"""Random histories: anything may happen to a session at any moment, in any order, twice or late.

`World` checks the invariants of every commit; the machine adds what only a whole history can show: how
often a tool was entered, that no message is lost or doubled, and that every session can be brought to rest.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from celeriac.sessions.calls import DID_NOT_RUN, CallOutcome, CallStatus, DecisionVerb, ToolEffect
from celeriac.sessions.errors import Refused
from celeriac.sessions.inputs import (
    ApprovalDecided,
    Input,
    ModelInterrupted,
    ModelReplied,
    QueuedMessageDeleted,
    StepFailed,
    StepReturned,
    ToolChanged,
    ToolEnded,
)
from celeriac.sessions.messages import Role
from celeriac.sessions.state import Step, StepName
from tests.unit.world import EFFECTS, ONCE, World, planned

ERRORS = st.sampled_from(["it broke", "HTTP 503", "\ufffd", "x" * 300])
DELAYS = st.sampled_from([None, None, 0, 1, 700, 60_000, 900_001])
VERBS = st.sampled_from(list(DecisionVerb))


@dataclass
class Claimed:
    """A claim that some worker holds, or believes to hold."""

    step: Step
    entered: bool = False
    """Whether the worker handed the call to its tool."""


@dataclass
class Call:
    """What really happened to a call, as nobody but the test knows."""

    effect: ToolEffect
    asks: bool
    refused: bool
    entered: int = 0
    approved: bool = False
    returned: bool = False
    """Whether some attempt returned and its worker said so."""
    failed_for_certain: bool = False


class Sessions(RuleBasedStateMachine):
    """One session, with people and workers that do whatever they like."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.claims: list[Claimed] = []
        self.calls: dict[str, Call] = {}
        self.reports: list[Input] = []
        self.accepted: list[str] = []
        self.deleted: set[str] = set()

    # --- people

    @precondition(lambda self: len(self.world.state.queue) < 3)
    @rule()
    def a_person_sends_a_message(self) -> None:
        message_id = f"m{len(self.accepted)}"
        self.world.send(f"text of {message_id}", message_id)
        self.accepted.append(message_id)

    @precondition(lambda self: self.world.state.queue)
    @rule(data=st.data())
    def a_person_deletes_a_queued_message(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(self.world.state.queue))
        assert self.world.apply(QueuedMessageDeleted(item.id))
        self.deleted.add(item.id)

    @precondition(lambda self: self.world.state.queue)
    @rule(data=st.data())
    def a_person_steers(self, data: st.DataObject) -> None:
        ids = [item.id for item in self.world.state.queue]
        self.world.steer(*data.draw(st.lists(st.sampled_from(ids), min_size=1, max_size=4)))

    @precondition(lambda self: not self.world.idle)
    @rule()
    def a_person_stops_the_turn(self) -> None:
        self.world.cancel()

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), verb=VERBS, stale=st.booleans())
    def a_person_decides(self, data: st.DataObject, verb: DecisionVerb, stale: bool) -> None:
        """Any call, asked or not, with what is shown now or with what was shown once."""
        call_id = data.draw(st.sampled_from(sorted(self.calls)))
        open_call = self.world.state.call(call_id)
        digest = f"digest of {call_id}" if stale or open_call is None else open_call.digest
        waits = open_call is not None and open_call.status is CallStatus.AWAITING_APPROVAL
        changed = self._asked(ApprovalDecided(call_id, verb, "Ann", digest))
        assert not changed or waits
        if changed and verb is DecisionVerb.APPROVE:
            self.calls[call_id].approved = True

    @precondition(lambda self: self.world.state.unknown)
    @rule(data=st.data(), succeeded=st.booleans())
    def a_person_reconciles(self, data: st.DataObject, succeeded: bool) -> None:
        entry = data.draw(st.sampled_from(self.world.state.unknown))
        assert self.world.reconcile(entry.id, succeeded=succeeded, note="looked it up")

    def _asked(self, event: Input) -> bool:
        """A person's request: it is done, or refused with a reason, and then nothing changed."""
        before = self.world.state
        try:
            return self.world.apply(event)
        except Refused:
            assert self.world.state is before
            return False

    # --- workers

    @precondition(lambda self: self._ready())
    @rule(data=st.data(), enters=st.booleans())
    def a_worker_claims(self, data: st.DataObject, enters: bool) -> None:
        step = self.world.claim(data.draw(st.sampled_from(self._ready())))
        assert step is not None
        self.claims.append(Claimed(step))
        if enters and step.call_id is not None:
            self._enter(self.claims[-1])

    def _ready(self) -> list[Step]:
        return [
            step
            for step in self.world.state.steps
            if not step.name.waits
            and not step.timing.claimed
            and step.timing.not_before <= self.world.now
        ]

    def _enter(self, claimed: Claimed) -> None:
        call = self.calls[claimed.step.call_id or ""]
        claimed.entered = True
        call.entered += 1
        assert not call.refused, "a call that cannot run reached its tool"
        assert call.approved or not call.asks, "a call reached its tool without its approval"
        assert call.effect is not ONCE or call.entered == 1, "a single-attempt tool ran twice"

    @precondition(lambda self: self.claims)
    @rule(
        data=st.data(),
        effects=st.lists(st.sampled_from(EFFECTS), max_size=3),
        asks=st.booleans(),
        refused=st.booleans(),
    )
    def a_model_call_ends(
        self, data: st.DataObject, effects: list[ToolEffect], asks: bool, refused: bool
    ) -> None:
        claimed = self._some_claim(data, lambda one: one.step.call_id is None)
        if claimed is None:
            return
        step, token = claimed.step, claimed.step.timing.token
        first = len(self.calls)
        calls = [
            planned(
                f"call_{first + number}",
                effect,
                asks=asks and number != 1,
                refused="no such tool" if refused and number == 0 else None,
            )
            for number, effect in enumerate(effects)
        ]
        if self._report(ModelReplied(step.id, token, "" if calls else "done", calls)):
            for call in calls:
                self.calls[call.request.id] = Call(
                    call.request.effect, call.requires_approval, call.refused is not None
                )

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), text=st.sampled_from(["", "once upon"]))
    def a_stopped_model_call_is_aborted(self, data: st.DataObject, text: str) -> None:
        turn = self.world.state.turn
        claimed = self._some_claim(data, lambda one: one.step.call_id is None)
        if claimed is not None and turn is not None and turn.control is not None:
            self._report(ModelInterrupted(claimed.step.id, claimed.step.timing.token, text))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), succeeded=st.booleans())
    def a_tool_ends(self, data: st.DataObject, succeeded: bool) -> None:
        claimed = self._some_claim(data, lambda one: one.entered)
        if claimed is None:
            return
        step = claimed.step
        call = self.calls[step.call_id or ""]
        call.returned |= succeeded
        call.failed_for_certain |= not succeeded
        self._report(
            ToolEnded(
                step.id,
                step.timing.token,
                step.call_id or "",
                succeeded=succeeded,
                result={"of": step.timing.token} if succeeded else None,
                error=None if succeeded else "no such order",
            )
        )

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), error=ERRORS, retryable=st.booleans(), delay_ms=DELAYS)
    def an_attempt_breaks(
        self, data: st.DataObject, error: str, retryable: bool, delay_ms: int | None
    ) -> None:
        claimed = self._some_claim(data, lambda _: True)
        if claimed is not None:
            step, entered = claimed.step, claimed.entered
            token = step.timing.token
            self._report(StepFailed(step.id, token, error, retryable, entered, delay_ms))

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def a_worker_gives_a_step_back(self, data: st.DataObject) -> None:
        claimed = self._some_claim(data, lambda one: not one.entered)
        if claimed is not None:
            self._report(StepReturned(claimed.step.id, claimed.step.timing.token))

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def a_worker_finds_the_definition_changed(self, data: st.DataObject) -> None:
        def approved(one: Claimed) -> bool:
            return not one.entered and self.calls[one.step.call_id or ""].approved

        claimed = self._some_claim(data, lambda one: one.step.call_id is not None and approved(one))
        if claimed is None:
            return
        step = claimed.step
        digest = f"digest {len(self.reports)}"
        if self._report(ToolChanged(step.id, step.timing.token, digest, "its text changed")):
            self.calls[step.call_id or ""].approved = False

    def _some_claim(self, data: st.DataObject, fits: Callable[[Claimed], bool]) -> Claimed | None:
        """Any claim ever made, lost or not: workers that were thought dead report too."""
        fitting = [claimed for claimed in self.claims if fits(claimed)]
        return data.draw(st.sampled_from(fitting)) if fitting else None

    def _report(self, event: Input) -> bool:
        """A worker's report is never refused: it counts, or it comes too late and changes nothing."""
        self.reports.append(event)
        claimed = next(one for one in self.claims if one.step.timing.token == _token_of(event))
        if not isinstance(event, ToolEnded):
            # A worker reports once; only a result may come again, after a commit without an answer.
            self.claims.remove(claimed)
        return self.world.apply(event)

    @precondition(lambda self: self.reports)
    @rule(data=st.data())
    def a_report_comes_again(self, data: st.DataObject) -> None:
        event = data.draw(st.sampled_from(self.reports))
        settled = dict(self.world.outcomes)
        before = self.world.state
        if self.world.apply(event):
            # Only a result may still be news, to a call that was not settled by it.
            assert isinstance(event, ToolEnded)
            old = settled.get(event.call_id)
            assert old is None or old.status is CallStatus.OUTCOME_UNKNOWN
        else:
            assert self.world.state is before

    # --- time

    @rule(
        milliseconds=st.sampled_from([1, 500, 3_000, 8_000, 60_000]),
        backlogged=st.booleans(),
        after_outage=st.booleans(),
    )
    def time_passes(self, milliseconds: int, backlogged: bool, after_outage: bool) -> None:
        self.world.pass_time(milliseconds)
        due = (self.world.state.wake_at or self.world.now + 1) <= self.world.now
        changed = self.world.wake(
            backlogged=[None] if backlogged else [], after_outage=after_outage
        )
        assert changed == due, "a look that is due moves something on, and another does not"

    # --- what must always hold

    @invariant()
    def every_accepted_message_is_in_one_place(self) -> None:
        waiting = [item.id for item in self.world.state.queue]
        taken = [m.message_id for m in self.world.log if m.role is Role.USER]
        places = Counter([*waiting, *taken, *self.deleted])
        assert places == Counter(self.accepted)
        assert all(self.world.queue_texts[one] == f"text of {one}" for one in waiting)
        for message in self.world.log:
            if message.role is Role.USER:
                assert message.text == f"text of {message.message_id}"

    @invariant()
    def outcomes_tell_the_truth(self) -> None:
        for call_id, call in self.calls.items():
            outcome = self.world.outcomes.get(call_id)
            if outcome is None:
                assert not call.returned, "a result was lost"
            elif outcome.reconciled_by != "Ann":
                _check_truth(outcome, call)

    def teardown(self) -> None:
        """Bring the session to rest: people decide, workers work; it must come to an end."""
        for _ in range(60):
            if self.world.idle:
                break
            self._work_off()
        assert self.world.idle or self.world.state.queue, "the session is stuck"

    def _work_off(self) -> None:
        world = self.world
        for step in world.state.steps:
            if world.state.step(step.id) is None:
                continue
            if step.name is StepName.AWAIT_TOOL_APPROVAL:
                world.reject(step.call_id or "")
                continue
            claimed = world.claim(step)
            if claimed is None:
                continue
            if step.name is StepName.RUN_MODEL:
                world.reply(step=claimed)
            else:
                world.ended(claimed)
        if world.state.wake_at is not None:
            world.now = max(world.now, world.state.wake_at)
            world.wake()


def _check_truth(outcome: CallOutcome, call: Call) -> None:
    """Compare an outcome with what really happened; nothing is known for certain but what was reported."""
    untouched = call.entered == 0 or call.effect is ToolEffect.READ
    match outcome.status:
        case CallStatus.SUCCEEDED:
            assert call.returned
        case CallStatus.FAILED:
            assert untouched or call.failed_for_certain
        case CallStatus.OUTCOME_UNKNOWN:
            assert not call.returned, "a result was lost"
        case CallStatus.REJECTED:
            assert untouched
            assert call.asks
        case _:
            assert untouched
    assert outcome.attempts <= (1 if call.effect is ONCE else 3)
    assert not (outcome.error or "").startswith(DID_NOT_RUN) or call.entered == 0
    assert not call.refused or outcome.attempts == 0


def _token_of(event: Input) -> int:
    token = getattr(event, "token", None)
    assert isinstance(token, int)
    return token


# Generous: a busy machine must not make it flicker.
pytestmark = pytest.mark.timeout(300)

TestSessions = Sessions.TestCase
TestSessions.settings = settings(
    max_examples=int(os.environ.get("CELERIAC_TEST_HISTORIES", "80")),
    stateful_step_count=40,
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
