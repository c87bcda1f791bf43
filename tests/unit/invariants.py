"""What must hold for every session after every commit, whatever happened to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from celeriac.connectors.history import problems_of
from celeriac.sessions.calls import CallOutcome, CallStatus, LateResult
from celeriac.sessions.codec import (
    read_record,
    read_state,
    read_timing,
    write_record,
    write_state,
    write_timing,
)
from celeriac.sessions.context import active_context
from celeriac.sessions.draft import Change
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.model import ModelRequest
from celeriac.sessions.snapshot import StepRecord
from celeriac.sessions.state import (
    NEVER_SENT,
    OpenCall,
    SessionState,
    SessionStatus,
    Step,
    StepName,
)
from celeriac.sessions.views import session_summary, turn_view

STATE_MAX_BYTES = 16_000
MODEL_STEPS = {StepName.RUN_MODEL, StepName.COMPACT_CONTEXT}
WORK = {
    *MODEL_STEPS,
    StepName.CALL_TOOL,
    StepName.CALL_SINGLE_ATTEMPT_TOOL,
    StepName.RECONCILE_CALL,
}
WAITS = {
    StepName.AWAIT_TOOL_APPROVAL: CallStatus.AWAITING_APPROVAL,
    StepName.AWAIT_QUESTION_ANSWER: CallStatus.AWAITING_ANSWER,
    StepName.AWAIT_TIMER: CallStatus.AWAITING_TIMER,
}


def stored_and_loaded(state: SessionState) -> SessionState:
    """Send a state through the codec, as each commit and load does; it must come back equal."""
    timings = {step.id: read_timing(write_timing(step.timing).encode()) for step in state.steps}
    loaded = read_state(write_state(state).encode(), timings)
    assert loaded == state
    return loaded


def check_change(
    before: SessionState, change: Change, settled: Mapping[str, CallOutcome], now: int
) -> None:
    """Check one change against the state it replaces and the outcomes that are stored."""
    state = change.state
    check_state(state)
    _check_outcomes(change, settled)
    _check_sends(change, now)
    _check_steps(before, change, now)
    _check_serialises(change)


def check_state(state: SessionState) -> None:
    """Never stuck, never idle with work, never large."""
    assert (state.status is SessionStatus.IDLE) == (state.turn is None)
    if state.turn is None:
        assert state.turn_steps == ()
        assert (state.wake_at is None) == (state.steps == ())
    else:
        assert state.turn_steps, "an open turn without an open step never ends"
    for step in state.steps:
        _check_step(step)
    ids = [step.id for step in state.steps]
    assert len(set(ids)) == len(ids)
    _check_calls(state)
    queued = [item.id for item in state.queue]
    assert len(set(queued)) == len(queued)
    assert len(write_state(state)) < STATE_MAX_BYTES
    session_summary(state)
    turn_view(state)


def _check_step(step: Step) -> None:
    """Work is looked at again some day; a wait is nothing for workers, and only a timer must end by itself."""
    assert step.name in WORK or step.name.waits
    timing = step.timing
    if step.name.waits:
        assert (timing.sends, timing.token) == (NEVER_SENT, 0)
        assert (timing.due is not None) or step.name is not StepName.AWAIT_TIMER
        assert (timing.due is None) or step.name is not StepName.AWAIT_QUESTION_ANSWER
    else:
        assert timing.due is not None, "nobody would ever look at it"


def _check_calls(state: SessionState) -> None:
    calls = state.turn.calls if state.turn else ()
    before: list[OpenCall] = []
    for call in calls:
        steps = [step for step in state.turn_steps if step.call_id == call.id]
        writes = [one for one in before if one.ordered]
        if call.ordered and not all(one.status is CallStatus.SUCCEEDED for one in writes):
            assert (steps, call.attempts) == ([], 0), f"{call.id} began before its turn"
        if state.waits_its_turn(call):
            assert any(not one.status.settled for one in writes), f"{call.id} waits for nothing"
        else:
            assert len(steps) == (0 if call.status.settled else 1), f"{call.id} is {call.status}"
        before.append(call)
        waits = WAITS.get(steps[0].name) if steps else None
        assert waits is (call.status if call.status in WAITS.values() else None)
    known = {call.id for call in calls}
    assert all(step.call_id in known for step in state.turn_steps if step.call_id is not None)
    assert not calls or all(step.name not in MODEL_STEPS for step in state.steps)
    unknown = [entry.id for entry in state.unknown]
    assert len(set(unknown)) == len(unknown)
    checked = [step.call_id for step in state.background_steps]
    assert len(set(checked)) == len(checked), "one look-up of a call at a time"
    waiting = [step.call_id for step in state.background_steps if not step.timing.claimed]
    assert set(waiting) <= set(unknown), "nothing is looked up that is known"


def _check_outcomes(change: Change, settled: Mapping[str, CallOutcome]) -> None:
    """A settled call stays as it is; only an unknown outcome may be reconciled, and says by whom."""
    for call_id, outcome in change.outcomes.items():
        assert outcome.status.settled
        old = settled.get(call_id)
        if old is not None:
            assert old.status is CallStatus.OUTCOME_UNKNOWN
            assert outcome.status in {CallStatus.SUCCEEDED, CallStatus.FAILED}
        assert (outcome.reconciled_by is not None) == (old is not None)
    for call_id, late in change.late_results.items():
        assert call_id in settled, "only a settled call has a late result"
        assert late.token != settled[call_id].token
    listed = {entry.id for entry in change.state.unknown}
    now_settled = {**settled, **change.outcomes}
    assert listed == {
        call_id
        for call_id, outcome in now_settled.items()
        if outcome.status is CallStatus.OUTCOME_UNKNOWN
    }


def _check_sends(change: Change, now: int) -> None:
    """What is sent is ready: open, unclaimed, and claimable at once; no step is sent twice."""
    for step in change.send:
        current = change.state.step(step.id)
        assert current == step
        assert step.name in WORK
        assert not step.timing.claimed
        assert step.timing.not_before <= now
    assert len({step.id for step in change.send}) == len(change.send)


def _check_steps(before: SessionState, change: Change, now: int) -> None:
    """Every step that was open is open still or written into the history; new ids are new."""
    state = change.state
    recorded = {record.id for record in change.history}
    open_now = {step.id for step in state.steps}
    old = {step.id for step in before.steps}
    assert old <= open_now | recorded
    assert all(int(step_id[1:]) > before.steps_made for step_id in open_now - old)
    assert all(int(step_id[1:]) <= state.steps_made for step_id in open_now)
    # Each work step that became ready in this very commit is sent with it.
    sent = {step.id for step in change.send}
    fresh = {
        step.id
        for step in state.steps
        if step.name in WORK and step.id not in old and step.timing.not_before <= now
    }
    assert fresh <= sent


def _check_serialises(change: Change) -> None:
    for event in change.events:
        json.loads(event.encode())
    for record in change.history:
        assert read_record(StepRecord, write_record(record)) == record
    for outcome in change.outcomes.values():
        assert read_record(CallOutcome, write_record(outcome)) == outcome
    for late in change.late_results.values():
        assert read_record(LateResult, write_record(late)) == late
    for new in change.messages:
        assert read_record(Message, write_record(new.message)) == new.message


def check_history(log: Sequence[Message], state: SessionState) -> None:
    """Each response with calls is followed directly by exactly its results, in call order.

    Only the calls of the open turn may still be without results, and then their response is the last.
    """
    awaited: list[str] = []
    for message in log:
        if message.role is Role.TOOL:
            assert awaited, "a result without its call"
            assert message.call_id == awaited.pop(0)
            assert message.status is not None
            assert message.status.settled
        else:
            assert not awaited, f"a {message.role} message came before the results"
            awaited = [reference.id for reference in message.calls]
    open_calls = [call.id for call in state.turn.calls] if state.turn else []
    assert awaited == open_calls
    check_context(log, state)


def check_context(log: Sequence[Message], state: SessionState) -> None:
    """The summary covers just what the model does not read, and every model request is well-formed."""
    context = active_context(log[state.context_from :])
    covered = [message.covers_before for message in log if message.role is Role.SUMMARY]
    assert covered == sorted(covered, key=lambda before: before or 0)
    assert state.context_from == (covered[-1] if covered else 0)
    if any(step.name in MODEL_STEPS for step in state.steps):
        assert problems_of(request_of(context)) == []


def request_of(messages: Sequence[Message]) -> ModelRequest:
    return ModelRequest(
        model="demo",
        instructions="Be brief.",
        messages=messages,
        tools=(),
        session_id="ses_1",
        turn_id="t1",
        attempt=1,
        timeout_seconds=1,
    )
