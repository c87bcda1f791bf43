"""Before a tool is entered: what would run must be what was planned, or was shown to a person."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from types import SimpleNamespace
from typing import cast

import pytest

from celeriac.connectors.toolset import BoundTool, build_toolset
from celeriac.sessions.advance import advance, start
from celeriac.sessions.calls import Decision, DecisionVerb, ToolEffect
from celeriac.sessions.definition import AgentDefinition
from celeriac.sessions.inputs import MessageSent, ModelReplied, PlannedCall, StepFailed
from celeriac.sessions.model import ModelCall
from celeriac.sessions.state import SessionState
from celeriac.sessions.store.loaded import Loaded
from celeriac.sessions.store.sessions import Claim
from celeriac.sessions.tools import ApprovalRule, tool
from celeriac.tasks.runtime import Runtime
from celeriac.tasks.tool_attempt import _Attempt, _must_ask_again


@tool(effect=ToolEffect.IDEMPOTENT_WRITE)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def bound() -> tuple[BoundTool, PlannedCall]:
    agent = AgentDefinition(name="desk", instructions="", tools=[pay])
    toolset = asyncio.run(build_toolset(agent))
    found = toolset.get("pay")
    assert found is not None
    return found, toolset.plan(ModelCall("pay", '{"amount": 5}'), "t1", 1)


def claimed(planned: PlannedCall, decision: Decision | None = None) -> Claim:
    """A claim of the call's step, in the state that `advance` made of the response."""
    state = _moved(start("ses_x", "desk", "demo", 1).state, MessageSent("m1", "pay"))
    running = state.steps[0].evolve(timing=state.steps[0].timing.evolve(token=7))
    state = state.evolve(steps=(running,))
    state = _moved(state, ModelReplied(running.id, 7, "", calls=(planned,)))
    assert state.turn is not None
    call = state.turn.calls[0].evolve(decision=decision)
    state = state.evolve(turn=state.turn.evolve(calls=(call,)))
    return Claim(Loaded(state, "1", 1), state.steps[0], 8, planned.request, ())


def _moved(state: SessionState, event: MessageSent | ModelReplied) -> SessionState:
    change = advance(state, event, 2)
    assert change is not None
    return change.state


def changed(known: BoundTool, **values: object) -> BoundTool:
    definition = dataclasses.replace(known.definition, **values)  # type: ignore[arg-type]
    return dataclasses.replace(known, definition=definition)


def test_an_unchanged_tool_runs() -> None:
    known, planned = bound()
    assert _must_ask_again(claimed(planned), known, planned.request) is None


def test_an_unchanged_tool_that_was_approved_runs() -> None:
    known, planned = bound()
    decision = Decision(verb=DecisionVerb.APPROVE, by="ana", at=1, digest=planned.digest)
    assert _must_ask_again(claimed(planned, decision), known, planned.request) is None


def test_another_description_after_an_approval_asks_again() -> None:
    known, planned = bound()
    decision = Decision(verb=DecisionVerb.APPROVE, by="ana", at=1, digest=planned.digest)
    other = changed(known, description="Pay twice.")
    asked = _must_ask_again(claimed(planned, decision), other, planned.request)
    assert asked is not None
    assert asked.digest != planned.digest
    assert asked.effect is None


def test_a_stricter_effect_asks_and_is_taken() -> None:
    known, planned = bound()
    other = changed(known, effect=ToolEffect.NON_IDEMPOTENT_WRITE)
    asked = _must_ask_again(claimed(planned), other, planned.request)
    assert asked is not None
    assert asked.effect is ToolEffect.NON_IDEMPOTENT_WRITE


def test_a_looser_effect_changes_nothing_for_a_call_already_made() -> None:
    known, planned = bound()
    other = changed(known, effect=ToolEffect.READ)
    assert _must_ask_again(claimed(planned), other, planned.request) is None


@pytest.mark.parametrize("rule", [True, lambda arguments: arguments["amount"] > 1])
def test_a_tool_that_now_asks_for_approval_asks(rule: ApprovalRule) -> None:
    known, planned = bound()
    asked = _must_ask_again(claimed(planned), changed(known, approval=rule), planned.request)
    assert asked is not None


def test_a_tool_that_gets_no_thread_was_not_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    found, planned = bound()
    here = SimpleNamespace(settings=SimpleNamespace(result_kept_bytes=1_000))
    attempt = _Attempt(cast("Runtime", here), claimed(planned), found)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    end = attempt.run_in_thread({"amount": 5}, 1)
    assert isinstance(end, StepFailed)
    assert not end.entered
    assert end.retryable
