"""Rules of the built-in tools: questions, waits and plans. Pure.

Their calls are opened like any other, but no worker runs them: a person, the time, or this very commit
settles them.
"""

from __future__ import annotations

from pydantic import JsonValue

from celeriac.sessions.built_in import (
    AskUser,
    BuiltInTool,
    DurableWait,
    WriteTodos,
    parse_built_in,
)
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.draft import Draft
from celeriac.sessions.errors import Conflict, NotFound
from celeriac.sessions.inputs import QuestionAnswered
from celeriac.sessions.plans import Plan, PlanStatus, Todo
from celeriac.sessions.state import OpenCall, Step, StepName

__all__ = ["open_built_in", "question_answered", "require_executable", "timer_fired"]


def open_built_in(draft: Draft, call: OpenCall, tool: BuiltInTool, arguments: JsonValue) -> None:
    """Open a call of a built-in tool, whose arguments were found right when it was planned."""
    match parse_built_in(tool, arguments):
        case AskUser():
            _await(draft, call, StepName.AWAIT_QUESTION_ANSWER, CallStatus.AWAITING_ANSWER)
        case DurableWait(seconds=seconds):
            due = draft.now + int(seconds * 1000)
            _await(draft, call, StepName.AWAIT_TIMER, CallStatus.AWAITING_TIMER, due=due)
        case WriteTodos(todos=todos):
            _write_todos(draft, call, tuple(todos))


def _await(
    draft: Draft, call: OpenCall, name: StepName, status: CallStatus, *, due: int | None = None
) -> None:
    draft.open_step(name, call_id=call.id, due=due)
    draft.update_call(call.id, status=status)
    draft.call_event(call.id, call.tool, status)


# --- questions


def question_answered(draft: Draft, event: QuestionAnswered) -> None:
    """The answer, whatever it is, becomes the result of the call.

    Raises:
        NotFound: The turn has no such call; its records tell whether it was answered before.
        Conflict: It is no question, or was answered before.
    """
    call = draft.state.call(event.call_id)
    if call is None:
        raise NotFound(f"No open call {event.call_id!r}.", code="unknown_call")
    step = next((step for step in draft.state.steps if step.call_id == call.id), None)
    if step is None or step.name is not StepName.AWAIT_QUESTION_ANSWER:
        asked = call.tool == BuiltInTool.ASK_USER and call.status is CallStatus.SUCCEEDED
        raise Conflict(
            f"Question {call.id} was answered already."
            if asked
            else f"Call {call.id} is not waiting for an answer; it is {call.status.value}.",
            code="already_answered" if asked else "not_awaiting_answer",
        )
    draft.end_step(step, "answered", note=f"by {event.by}")
    draft.settle(call, CallStatus.SUCCEEDED, result=event.answer, answered_by=event.by)


# --- timers


def timer_fired(draft: Draft, call: OpenCall, step: Step) -> None:
    """The time of a wait is over; that this step ends in the same commit makes it fire once."""
    draft.end_step(step, "fired")
    waited = round((draft.now - step.created_at) / 1000, 3)
    draft.settle(call, CallStatus.SUCCEEDED, result={"waited_seconds": waited})


# --- plans


def _write_todos(draft: Draft, call: OpenCall, todos: tuple[Todo, ...]) -> None:
    old = draft.state.plan
    left = any(todo.status.open for todo in todos)
    status = PlanStatus.ACTIVE if left else PlanStatus.COMPLETED
    if draft.turn.plan_mode:
        status = PlanStatus.DRAFT
    plan = Plan(
        revision=old.revision + 1 if old else 1, status=status, todos=todos, updated_at=draft.now
    )
    draft.set_plan(plan)
    open_count = len(plan.open_todos)
    draft.settle(
        call, CallStatus.SUCCEEDED, result={"revision": plan.revision, "open_tasks": open_count}
    )


def require_executable(plan: Plan | None, revision: int) -> Plan:
    """Return the plan if this revision of it may be executed.

    Raises:
        Conflict: There is none, another revision was reviewed, or no task is open.
    """
    if plan is None:
        raise Conflict("This session has no plan yet.", code="no_plan")
    if plan.revision != revision:
        raise Conflict(
            f"The plan is at revision {plan.revision}; revision {revision} was reviewed. Look at it again.",
            code="stale_plan",
        )
    if not plan.open_todos:
        raise Conflict(f"No task of plan revision {revision} is open.", code="plan_completed")
    return plan
