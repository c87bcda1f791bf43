"""Random histories: anything may happen to a session at any moment, in any order, twice or late.

`World` checks the invariants of every commit; the machine adds what only a whole history can show: how
often a tool was entered, that no message is lost or doubled, and that every session can be brought to rest.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pydantic import JsonValue

from celeriac.sessions.built_in import BuiltInTool
from celeriac.sessions.calls import CallOutcome, CallStatus, DecisionVerb
from celeriac.sessions.context import choose_cut
from celeriac.sessions.errors import Refused
from celeriac.sessions.inputs import (
    ApprovalDecided,
    CheckRequested,
    ContextCompacted,
    ContextFull,
    Input,
    ModelInterrupted,
    ModelReplied,
    OutcomeFound,
    PlanExecuted,
    QuestionAnswered,
    QueuedMessageDeleted,
    StepFailed,
    StepReturned,
    ToolChanged,
    ToolEnded,
)
from celeriac.sessions.messages import Role
from celeriac.sessions.state import Step, StepName
from tests.unit.machine_parts import PEOPLE, Call, Claimed, check_truth, opened, response
from tests.unit.world import ONCE, PROVIDER, World

ERRORS = ["it broke", "HTTP 503", "\ufffd", "x" * 300]
DELAYS = [None, None, 0, 1, 700, 60_000, 900_001]
VERBS = list(DecisionVerb)
ANSWERS: list[JsonValue] = ["yes", False, 0, "", {"size": 3}, []]
_ANSWER = CallStatus.AWAITING_ANSWER
_TIMER = CallStatus.AWAITING_TIMER


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
        self.planning: set[str] = set()
        """Messages whose turn may only plan."""
        self.executions = 0

    @rule(dice=st.randoms(use_true_random=True))
    def something_happens(self, dice: Random) -> None:
        """One of all the things that can happen now, the usual ones more often.

        One rule for all of them: of many rules Hypothesis leaves some out of every history, and a history
        without its usual course goes nowhere.
        """
        world = self.world
        possible = {
            "work_goes_on": 12,
            "time_passes": 2,
            "a_person_sends_a_message": (len(world.state.queue) < 2),
            "a_person_deletes_a_queued_message": bool(world.state.queue),
            "a_person_steers": bool(world.state.queue),
            "a_person_stops_the_turn": (not world.idle),
            "a_person_decides": bool(self.calls) + 8 * bool(self._asking()),
            "a_person_answers": bool(self.calls) + 6 * bool(self._waiting(_ANSWER)),
            "a_person_has_the_plan_executed": (
                bool(self.calls) + 3 * (world.idle and world.state.plan is not None)
            ),
            "a_wait_comes_to_its_end": 3 * bool(self._waiting(_TIMER)),
            "a_person_reconciles": bool(world.state.unknown),
            "a_person_has_it_looked_up": bool(world.state.unknown),
            "a_look_up_ends": 4 * bool(self._claims("looking")),
            "a_slow_worker_enters_its_tool": bool(self._claims("outside")),
            "every_worker_is_thought_dead": 5 * bool(self._claims("any")),
            "a_model_call_ends": bool(self._claims("model")),
            "a_stopped_model_call_is_aborted": bool(self._claims("model")),
            "a_tool_ends": 4 * bool(self._claims("entered")),
            "a_worker_thought_dead_returns": 8 * bool(self._claims("late")),
            "an_attempt_breaks": 4 * bool(self._claims("any")),
            "a_worker_gives_a_step_back": bool(self._claims("unused")),
            "a_worker_finds_the_definition_changed": 8 * bool(self._claims("approved")),
            "a_report_comes_again": bool(self.reports),
        }
        names = [name for name, weight in possible.items() for _ in range(weight)]
        action: Callable[[Random], None] = getattr(self, dice.choice(names))
        action(dice)

    # --- people

    def a_person_sends_a_message(self, dice: Random) -> None:
        message_id = f"m{len(self.accepted)}"
        plan_mode = dice.random() < 0.15
        self.world.send(f"text of {message_id}", message_id, plan_mode=plan_mode)
        self.accepted.append(message_id)
        if plan_mode:
            self.planning.add(message_id)

    def a_person_deletes_a_queued_message(self, dice: Random) -> None:
        item = dice.choice(self.world.state.queue)
        assert self.world.apply(QueuedMessageDeleted(item.id))
        self.deleted.add(item.id)

    def a_person_steers(self, dice: Random) -> None:
        ids = [item.id for item in self.world.state.queue]
        self.world.steer(*dice.choices(ids, k=2))

    def a_person_stops_the_turn(self, dice: Random) -> None:
        if dice.random() < 0.4:
            self.world.cancel()

    def _waiting(self, status: CallStatus) -> list[str]:
        calls = self.world.state.turn.calls if self.world.state.turn else ()
        return [call.id for call in calls if call.status is status]

    def _asking(self) -> list[str]:
        return self._waiting(CallStatus.AWAITING_APPROVAL)

    def a_person_answers(self, dice: Random) -> None:
        """Mostly a question; or any other call, whose answer is refused."""
        open_ones = self._waiting(_ANSWER) if dice.random() < 0.8 else []
        call_id = dice.choice(open_ones or sorted(self.calls))
        waits = call_id in self._waiting(_ANSWER)
        answer = dice.choice(ANSWERS)
        assert self._asked(QuestionAnswered(call_id, answer, "Ann")) == waits
        if waits:
            self.calls[call_id].answers.append(answer)

    def a_person_has_the_plan_executed(self, dice: Random) -> None:
        """Mostly as it is; or a revision that was seen long ago."""
        plan, idle = self.world.state.plan, self.world.idle
        revision = plan.revision - dice.choice([0, 0, 0, 1]) if plan else 1
        may = plan is not None and idle and plan.revision == revision and bool(plan.open_todos)
        assert self._asked(PlanExecuted(revision, "Ann")) == may
        if may:
            self.executions += 1
            assert self.world.turn.executes_plan
            assert not self.world.turn.plan_mode

    def a_wait_comes_to_its_end(self, dice: Random) -> None:
        """Every worker's lease has then run out too, if the wait was long."""
        call = self.calls[dice.choice(self._waiting(_TIMER))]
        assert call.due is not None
        self.world.now = max(self.world.now, call.due)
        assert self.world.wake()

    def a_person_decides(self, dice: Random) -> None:
        """Mostly a call that asks; or any other, or with a digest of what was shown once."""
        asking = self._asking() if dice.choice([True, True, True, False]) else []
        call_id = dice.choice(asking or sorted(self.calls))
        verb = dice.choice(VERBS)
        call = self.world.state.call(call_id)
        stale = call is None or not asking
        digest = f"digest of {call_id}" if stale or call is None else call.digest
        waits = call is not None and call.status is CallStatus.AWAITING_APPROVAL
        changed = self._asked(ApprovalDecided(call_id, verb, "Ann", digest))
        assert not changed or waits
        if changed and verb is DecisionVerb.APPROVE:
            self.calls[call_id].approved = True

    def _asked(self, event: Input) -> bool:
        """A person's request: it is done, or refused with a reason, and then nothing changed."""
        before = self.world.state
        try:
            return self.world.apply(event)
        except Refused:
            assert self.world.state is before
            return False

    def a_person_reconciles(self, dice: Random) -> None:
        entry = dice.choice(self.world.state.unknown)
        succeeded = dice.choice([True, False])
        assert self.world.reconcile(entry.id, succeeded=succeeded, note="looked it up")

    # --- workers

    def work_goes_on(self, dice: Random) -> None:
        """The usual course of things, so that histories get far enough for what is rare."""
        mine = [one for one in self.claims if self.world.step_is_open(one.step)]
        possible: list[Step | Claimed] = [*self._ready(), *mine]
        if self.world.idle:
            self.a_person_sends_a_message(dice)
        elif possible:
            match dice.choice(possible):
                case Step() as step:
                    self._claim(step)
                case claimed if claimed.step.name.background:
                    self._look_up(claimed, dice)
                case claimed if claimed.step.call_id is None:
                    self._model_answers(claimed, dice)
                case claimed if claimed.entered:
                    self._tool_ends(claimed, succeeded=True)
                case claimed:
                    self._enter(claimed)

    def _claim(self, step: Step) -> None:
        claimed = self.world.claim(step)
        assert claimed is not None
        self.claims.append(Claimed(claimed))
        call = self.calls.get(step.call_id or "")
        if call is not None and not step.name.background:
            assert call.built_in is None, "a worker is to run what nobody runs"
            assert not call.refused, "a call that cannot run is to be run"
            assert call.approved or not call.asks, "a call is to be run without its approval"

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
        assert call.effect is not ONCE or call.entered == 1, "a single-attempt tool ran twice"

    def _look_up(self, claimed: Claimed, dice: Random) -> None:
        step = claimed.step
        there = True if self.calls[step.call_id or ""].entered else None
        happened = dice.choice([there, None])
        token, call_id = step.timing.token, step.call_id or ""
        self._report(claimed, OutcomeFound(step.id, token, call_id, happened=happened, by=PROVIDER))

    def a_look_up_ends(self, dice: Random) -> None:
        self._look_up(dice.choice(self._claims("looking")), dice)

    def a_person_has_it_looked_up(self, dice: Random) -> None:
        self._asked(CheckRequested(dice.choice(self.world.state.unknown).id, "Ann"))

    def a_slow_worker_enters_its_tool(self, dice: Random) -> None:
        """Perhaps long after it was thought dead."""
        self._enter(dice.choice(self._claims("outside")))

    def _claims(self, kind: str) -> list[Claimed]:
        """Claims ever made and not reported on: workers that were thought dead report too."""
        fits: Callable[[Claimed], bool] = {
            "any": lambda _: True,
            "model": lambda one: one.step.call_id is None,
            "entered": lambda one: one.entered,
            "unused": lambda one: not one.entered,
            "looking": lambda one: one.step.name.background,
            "late": lambda one: one.runs_tool and not self.world.step_is_open(one.step),
            "outside": lambda one: one.runs_tool and not one.entered,
            "approved": lambda one: (
                not one.entered and one.runs_tool and self.calls[one.step.call_id or ""].approved
            ),
        }[kind]
        return [claimed for claimed in self.claims if fits(claimed)]

    def a_model_call_ends(self, dice: Random) -> None:
        claimed = dice.choice(self._claims("model"))
        self._model_answers(claimed, dice, refused=dice.choice([True, False]))

    def _model_answers(self, claimed: Claimed, dice: Random, *, refused: bool = False) -> None:
        """A summary, a response, or the finding that there must be a summary first."""
        step, turn = claimed.step, self.world.state.turn
        if step.name is StepName.COMPACT_CONTEXT:
            self._report(claimed, ContextCompacted(step.id, step.timing.token, "So far: a lot."))
            return
        cut = choose_cut(self.world.context, dice.choice([0, 10, 50, 200]))
        if turn is not None and turn.may_compact and cut is not None and dice.random() < 0.3:
            self._report(claimed, ContextFull(step.id, step.timing.token, cut, "it is full"))
            return
        self._model_replies(claimed, dice, refused=refused)

    def _model_replies(self, claimed: Claimed, dice: Random, *, refused: bool = False) -> None:
        step, turn = claimed.step, self.world.state.turn
        calls = response(dice, len(self.calls), plan_only=bool(turn and turn.plan_mode))
        if calls and refused:
            calls[0] = replace(calls[0], refused="no such tool")
        text = "" if calls else "done"
        corrected = self._corrections()
        revision = self.world.state.plan.revision if self.world.state.plan else 0
        stopped = turn is not None and turn.control is not None
        if self._report(claimed, ModelReplied(step.id, step.timing.token, text, calls)):
            for call in calls:
                self.calls[call.request.id] = opened(call, self.world.now)
            written = sum(
                call.built_in is BuiltInTool.WRITE_TODOS and call.refused is None for call in calls
            )
            plan = self.world.state.plan
            expected = revision if stopped else revision + written
            assert (plan.revision if plan else 0) == expected
        if self._corrections() > corrected:
            assert turn is not None
            assert turn.executes_plan, "only an execution is corrected"
            assert not calls

    def _corrections(self) -> int:
        return sum("tasks of the plan" in m.text for m in self.world.log if m.role is Role.NOTICE)

    def a_stopped_model_call_is_aborted(self, dice: Random) -> None:
        claimed = dice.choice(self._claims("model"))
        step, turn = claimed.step, self.world.state.turn
        if turn is not None and turn.control is not None:
            text = dice.choice(["", "once upon"])
            self._report(claimed, ModelInterrupted(step.id, step.timing.token, text))

    def a_tool_ends(self, dice: Random) -> None:
        claimed = dice.choice(self._claims("entered"))
        self._tool_ends(claimed, succeeded=dice.choice([True, False]))

    def _tool_ends(self, claimed: Claimed, *, succeeded: bool) -> None:
        step, call = claimed.step, self.calls[claimed.step.call_id or ""]
        if succeeded:
            call.returned.add(step.timing.token)
        call.failed_for_certain |= not succeeded
        result: JsonValue = {"of": step.timing.token} if succeeded else None
        event = ToolEnded(
            step.id,
            step.timing.token,
            step.call_id or "",
            succeeded=succeeded,
            result=result,
            error=None if succeeded else "no such order",
        )
        self._report(claimed, event)

    def a_worker_thought_dead_returns(self, dice: Random) -> None:
        """Its call may be running again, asking again, settled, or of a turn that ended long ago."""
        claimed = dice.choice(self._claims("late"))
        if not claimed.entered:
            self._enter(claimed)
        self._tool_ends(claimed, succeeded=dice.random() < 0.8)

    def an_attempt_breaks(self, dice: Random) -> None:
        claimed = dice.choice(self._claims("any"))
        token = claimed.step.timing.token
        retryable, delay_ms = dice.choice([True, False]), dice.choice(DELAYS)
        error = dice.choice(ERRORS)
        step = claimed.step
        event = StepFailed(
            step.id, token, error, step.call_id, retryable, claimed.entered, delay_ms
        )
        self._report(claimed, event)

    def a_worker_gives_a_step_back(self, dice: Random) -> None:
        claimed = dice.choice(self._claims("unused"))
        self._report(
            claimed, StepReturned(claimed.step.id, claimed.step.timing.token, claimed.step.call_id)
        )

    def a_worker_finds_the_definition_changed(self, dice: Random) -> None:
        claimed = dice.choice(self._claims("approved"))
        step, digest = claimed.step, f"digest {len(self.reports)}"
        event = ToolChanged(step.id, step.timing.token, digest, "its text changed")
        if self._report(claimed, event):
            self.calls[step.call_id or ""].approved = False

    def _report(self, claimed: Claimed, event: Input) -> bool:
        """A worker's report is never refused: it counts, or it comes too late and changes nothing."""
        self.claims.remove(claimed)
        counts = self.world.apply(event)
        if counts:  # Else there was no commit whose answer could be lost.
            self.reports.append(event)
        return counts

    def a_report_comes_again(self, dice: Random) -> None:
        """A commit whose answer was lost is repeated."""
        event = dice.choice(self.reports[-8:])
        before = self.world.state
        assert not self.world.apply(event)
        assert self.world.state is before

    # --- time

    def every_worker_is_thought_dead(self, dice: Random) -> None:
        """They were only slow: their claims are lost, and each may still report."""
        self.world.pass_time(self.world.rules.lease_ms)
        self.world.wake()

    def time_passes(self, dice: Random) -> None:
        until_due = max(0, (self.world.state.wake_at or 0) - self.world.now)
        self.world.pass_time(dice.choice([until_due, 1, 3_000]))
        due = (self.world.state.wake_at or self.world.now + 1) <= self.world.now
        backlogged = [None] if dice.choice([True, False]) else []
        after_outage = dice.choice([False, False, True])
        changed = self.world.wake(backlogged=backlogged, after_outage=after_outage)
        assert changed == due, "a look that is due moves something on, and another does not"

    # --- what must always hold

    @invariant()
    def every_accepted_message_is_in_one_place(self) -> None:
        waiting = [item.id for item in self.world.state.queue]
        taken = [m.message_id for m in self.world.log if m.role is Role.USER and m.message_id]
        places = Counter([*waiting, *taken, *self.deleted])
        assert places == Counter(self.accepted)
        assert all(self.world.queue_texts[one] == f"text of {one}" for one in waiting)
        for message in self.world.log:
            if message.role is Role.USER and message.message_id is not None:
                assert message.text == f"text of {message.message_id}"

    @invariant()
    def outcomes_tell_the_truth(self) -> None:
        for call_id, call in self.calls.items():
            outcome = self.world.outcomes.get(call_id)
            if outcome is None:
                assert not call.returned, "a result was lost"
                continue
            self._check_nothing_is_lost(call_id, outcome, call)
            if call.built_in is not None:
                self._check_built_in(outcome, call)
            elif outcome.reconciled_by not in PEOPLE:
                check_truth(outcome, call)

    def _check_nothing_is_lost(self, call_id: str, outcome: CallOutcome, call: Call) -> None:
        """Of what was returned one result is the call's, or is kept on its record as late."""
        late = self.world.late.get(call_id)
        kept = [record.token for record in (outcome, late) if record is not None]
        assert not call.returned or call.returned.intersection(kept), "a result was lost"
        by_tool = outcome.status is CallStatus.SUCCEEDED and outcome.reconciled_by not in PEOPLE
        if len(call.returned) <= 1 + by_tool:
            assert call.returned <= set(kept), "a result was lost"
        if late is not None and late.succeeded:
            assert late.result == {"of": late.token}

    def _check_built_in(self, outcome: CallOutcome, call: Call) -> None:
        assert call.entered == 0
        assert outcome.attempts == 0
        if outcome.status is not CallStatus.SUCCEEDED:
            assert outcome.status is CallStatus.CANCELLED or call.refused
            assert not call.answers
        elif call.built_in is BuiltInTool.ASK_USER:
            assert call.answers == [outcome.result]
            assert outcome.answered_by == "Ann"
        elif call.built_in is BuiltInTool.DURABLE_WAIT:
            assert call.due is not None
            assert outcome.settled_at >= call.due

    @invariant()
    def the_model_is_told_what_became_of_an_unknown_outcome(self) -> None:
        notices = [m.text for m in self.world.log if m.role is Role.NOTICE]
        notices += self.world.state.notices
        for message in self.world.log:
            if message.role is Role.TOOL and message.status is CallStatus.OUTCOME_UNKNOWN:
                settled = self.world.outcomes[message.call_id or ""].status
                told = sum(f"earlier call {message.call_id} of" in text for text in notices)
                assert (settled is CallStatus.OUTCOME_UNKNOWN) == (told == 0)

    @invariant()
    def plans_and_their_corrections_keep_to_the_rules(self) -> None:
        state = self.world.state
        assert self._corrections() <= self.executions
        if state.turn is not None:
            modes = self.planning.intersection(state.turn.message_ids)
            assert state.turn.plan_mode == bool(modes)

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
            if step.name is StepName.AWAIT_QUESTION_ANSWER:
                world.answer(None, step.call_id or "")
                continue
            claimed = world.claim(step)
            if claimed is None:
                continue
            if step.name is StepName.RUN_MODEL:
                world.reply(step=claimed)
            elif step.name is StepName.COMPACT_CONTEXT:
                world.compacts(step=claimed)
            elif step.name.background:
                world.finds(claimed, None)
            else:
                world.ended(claimed)
        if world.state.wake_at is not None:
            world.now = max(world.now, world.state.wake_at)
            world.wake()


# Generous: a busy machine must not make it flicker.
pytestmark = pytest.mark.timeout(300)

TestSessions = Sessions.TestCase
TestSessions.settings = settings(
    max_examples=int(os.environ.get("CELERIAC_TEST_HISTORIES", "30")), stateful_step_count=50
)
