"""Facts in words for a person. No other module says what a status is called; model calls are in `model_words`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from celeriac.sessions.built_in import BuiltInTool
from celeriac.sessions.calls import (
    DID_NOT_RUN,
    CallRecord,
    CallStatus,
    DecisionVerb,
    LateResult,
    ToolEffect,
)
from celeriac.sessions.plans import Plan, PlanStatus, TodoStatus
from celeriac.sessions.snapshot import SessionSummary, Snapshot, StepView, TurnView
from celeriac.sessions.state import SessionStatus, StepName
from celeriac.web.model_words import retry_words

__all__ = [
    "NO_WORKER",
    "Chip",
    "Sentence",
    "Suggestion",
    "attempt_words",
    "call_chip",
    "decision_verb",
    "demo_suggestions",
    "effect_words",
    "ending_tone",
    "ending_words",
    "late_words",
    "plan_chip",
    "plan_progress",
    "session_chip",
    "state_sentence",
    "summary_chip",
    "todo_words",
    "tool_title",
    "unknown_words",
]

NO_WORKER = "Saved. No worker is running; it will continue when one starts."


@dataclass(frozen=True, slots=True)
class Chip:
    """A short state: its words, and the tone that colours them."""

    words: str
    tone: str


@dataclass(frozen=True, slots=True)
class Sentence:
    """What a session is doing, with the moment that its words end in, if any ("Waiting until …")."""

    words: str
    until: int | None = None
    """Unix milliseconds."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A message to try with the demo model, and what it shows."""

    text: str
    words: str
    tool: str
    """The tool that the agent needs for it."""
    plan_first: bool = False


_DEMO = (
    Suggestion('/tool look_up_order {"order_id": "1001"}', "a tool that reads", "look_up_order"),
    Suggestion(
        '/tool cancel_order {"order_id": "1002"}', "a write that you approve", "cancel_order"
    ),
    Suggestion("/ask Which order do you mean?", "a question to you", BuiltInTool.ASK_USER),
    Suggestion("/choose red|green|blue", "a question with choices", BuiltInTool.ASK_USER),
    Suggestion("/wait 30", "a wait that holds no worker", BuiltInTool.DURABLE_WAIT),
    Suggestion(
        "/plan look up the order; cancel it",
        "a plan that you review and execute",
        BuiltInTool.WRITE_TODOS,
        plan_first=True,
    ),
)


_EFFECTS = {
    ToolEffect.READ: "Read only, changes nothing",
    ToolEffect.IDEMPOTENT_WRITE: "Write, safe to repeat",
    ToolEffect.NON_IDEMPOTENT_WRITE: "Write, runs at most once, cannot be repeated safely",
}

_CALLS = {
    CallStatus.PENDING: Chip("Waiting to run", "quiet"),
    CallStatus.AWAITING_APPROVAL: Chip("Needs approval", "ask"),
    CallStatus.AWAITING_ANSWER: Chip("Needs an answer", "ask"),
    CallStatus.AWAITING_TIMER: Chip("Waiting for a time", "quiet"),
    CallStatus.RUNNING: Chip("Running", "busy"),
    CallStatus.RETRYING: Chip("Trying again", "warn"),
    CallStatus.SUCCEEDED: Chip("Done", "good"),
    CallStatus.FAILED: Chip("Failed", "bad"),
    CallStatus.OUTCOME_UNKNOWN: Chip("Outcome unknown", "unknown"),
    CallStatus.REJECTED: Chip("Rejected", "bad"),
    CallStatus.CANCELLED: Chip("Cancelled", "quiet"),
}

_BUILT_IN_TITLES = {
    BuiltInTool.ASK_USER: "Question",
    BuiltInTool.DURABLE_WAIT: "Wait",
    BuiltInTool.WRITE_TODOS: "Plan",
}

_BUILT_IN_DONE = {
    BuiltInTool.ASK_USER: Chip("Answered", "good"),
    BuiltInTool.DURABLE_WAIT: Chip("Time is over", "good"),
    BuiltInTool.WRITE_TODOS: Chip("Written", "good"),
}

_CANCELLED = {
    CallStatus.AWAITING_ANSWER: "Cancelled before anybody answered.",
    CallStatus.AWAITING_TIMER: "Cancelled before its time was over.",
    CallStatus.AWAITING_APPROVAL: "Cancelled while it waited for approval; it did not run.",
}

_TODOS = {
    TodoStatus.PENDING: "to do",
    TodoStatus.IN_PROGRESS: "being done",
    TodoStatus.COMPLETED: "done",
    TodoStatus.CANCELLED: "dropped",
}

_SESSIONS = {
    SessionStatus.IDLE: Chip("Ready", "quiet"),
    SessionStatus.RUNNING: Chip("Working", "busy"),
    SessionStatus.WAITING: Chip("Waiting", "ask"),
}


def effect_words(effect: ToolEffect) -> str:
    """Say what a call does to the world."""
    return _EFFECTS[effect]


def call_chip(call: CallRecord) -> Chip:
    """Say where a call is."""
    if call.status is CallStatus.SUCCEEDED and (own := _built_in(call)):
        return _BUILT_IN_DONE[own]
    if call.waits_its_turn:
        return Chip("Waits its turn", "quiet")
    if _not_run(call):
        return Chip("Not run", "quiet" if call.skipped else "warn")
    return _CALLS[call.status]


def _built_in(call: CallRecord) -> BuiltInTool | None:
    known = call.source is None and call.tool in set(BuiltInTool)
    return BuiltInTool(call.tool) if known else None


def _not_run(call: CallRecord) -> bool:
    never_began = call.skipped or (call.error or "").startswith(DID_NOT_RUN)
    return call.status is CallStatus.FAILED and never_began


def ending_tone(call: CallRecord) -> str:
    """Say how loud the words about a call's end are: only what went wrong is red."""
    if call.status in {CallStatus.CANCELLED, CallStatus.REJECTED} or call.skipped:
        return "quiet"
    return "warn" if _not_run(call) else "bad"


def ending_words(call: CallRecord) -> str:
    """Say why a call ended as it did; nothing when its state says it all."""
    error = call.error or ""
    if call.status is CallStatus.CANCELLED:
        return f"{_cancelled_words(call)} {error}".rstrip()
    if error.startswith(DID_NOT_RUN):
        return f"Not run: {error.removeprefix(DID_NOT_RUN)}"
    return error


def _cancelled_words(call: CallRecord) -> str:
    was = call.cancelled_while
    if was is CallStatus.AWAITING_APPROVAL and call.attempts > 0:
        return "Cancelled before it gave a result."
    if was in _CANCELLED:
        return _CANCELLED[was]
    return (
        "Cancelled before it ran." if call.attempts == 0 else "Cancelled before it gave a result."
    )


def unknown_words(call: CallRecord) -> str:
    """Say what a person can do about an unknown outcome."""
    where = call.source or "the provider"
    if call.checkable:
        return (
            f"May have happened. Have it looked up at {where}, or look there yourself, then mark."
        )
    return f"May have happened. Check at {where}, then mark."


def late_words(late: LateResult) -> str:
    """Say what a late result said."""
    if late.succeeded:
        return "it had succeeded"
    return f"it had failed: {late.error}" if late.error else "it had failed"


def attempt_words(call: CallRecord) -> str:
    """Say how often a call was tried; nothing for one that has not begun."""
    if call.attempts <= 0:
        return ""
    if call.effect is ToolEffect.NON_IDEMPOTENT_WRITE:
        return "1 attempt" if call.attempts == 1 else f"{call.attempts} attempts"
    if call.status is CallStatus.RETRYING and call.max_attempts:
        return f"attempt {call.attempts} of {call.max_attempts} failed"
    if call.attempts == 1 and call.status.settled:
        return "1 attempt"
    if not call.status.settled and call.max_attempts:
        return f"attempt {call.attempts} of {call.max_attempts}"
    return f"{call.attempts} attempts"


def tool_title(call: CallRecord) -> str:
    """Name the tool, with where it comes from."""
    if own := _built_in(call):
        return _BUILT_IN_TITLES[own]
    if call.source is None:
        return call.tool
    return f"{call.source}: {call.original_name or call.tool}"


def session_chip(status: SessionStatus, *, asks: bool = True) -> Chip:
    """Say what a session is doing.

    Args:
        status: Its status.
        asks: Whether a waiting one waits for a person, rather than for a time.

    Returns:
        The state.
    """
    chip = _SESSIONS[status]
    return chip if asks or status is not SessionStatus.WAITING else Chip(chip.words, "quiet")


def summary_chip(summary: SessionSummary) -> Chip:
    """Say what a session in the list is doing or waiting for."""
    waiting = summary.waiting_for or ""
    kind, _, what = waiting.partition(":")
    words = {
        "approval": f"Needs approval of {what.strip()}",
        "answer": "Needs an answer",
        "timer": "Waiting for a time",
    }.get(kind.strip())
    if words is not None:
        return Chip(words, "quiet" if kind.strip() == "timer" else "ask")
    return session_chip(summary.status)


def state_sentence(snapshot: Snapshot, *, workers: int) -> Sentence:
    """Say in one sentence what the session is doing now.

    Args:
        snapshot: The session.
        workers: How many workers were seen lately.

    Returns:
        The sentence, e.g. "Waiting for your approval of cancel_order".
    """
    turn = snapshot.turn
    if turn is None:
        messages = bool(snapshot.messages)
        return Sentence("Ready for your message" if messages else "Ready for your first message")
    if turn.state == "cancelling":
        return Sentence("Stopping at the next safe moment")
    if turn.state == "steering":
        return Sentence("Changing course at the next safe moment")
    tools = {call.id: call.tool for call in snapshot.calls}
    asked = _asked_words(turn, tools)
    if asked:
        return Sentence(f"Waiting for your {' and your '.join(asked)}")
    working = next((step for step in turn.steps if not step.name.waits), None)
    if working is not None:
        return Sentence(_step_words(working, turn, tools, workers))
    ends = [step.due for step in turn.steps if step.due is not None]
    return Sentence("Waiting until", min(ends)) if ends else Sentence("Working")


def _asked_words(turn: TurnView, tools: Mapping[str, str]) -> list[str]:
    """Say what people must do before the turn can end, e.g. ``approval of cancel_order``."""
    asked = []
    approvals = [step for step in turn.steps if step.name is StepName.AWAIT_TOOL_APPROVAL]
    questions = [step for step in turn.steps if step.name is StepName.AWAIT_QUESTION_ANSWER]
    if len(approvals) == 1:
        asked.append(f"approval of {tools.get(approvals[0].call_id or '', 'a call')}")
    elif approvals:
        asked.append(f"approval of {len(approvals)} calls")
    if len(questions) == 1:
        asked.append("answer")
    elif questions:
        asked.append(f"answers to {len(questions)} questions")
    return asked


def _step_words(step: StepView, turn: TurnView, tools: Mapping[str, str], workers: int) -> str:
    doing = f"Running {tools.get(step.call_id or '', 'a tool')}"
    if step.name is StepName.RUN_MODEL:
        doing = "Planning" if turn.plan_mode else "Thinking"
    elif step.name is StepName.COMPACT_CONTEXT:
        doing = "Summarising the older conversation"
    if step.state == "retrying":
        what = f"{doing} failed"
        if step.call_id is None:
            what = retry_words(step.last_failure)
        return f"{what}; trying again soon (attempt {step.attempt})"
    if step.state == "ready":
        return f"Next: {doing[0].lower()}{doing[1:]}" if workers else "Waiting for a worker"
    return f"{doing} (attempt {step.attempt})" if step.attempt > 1 else doing


def todo_words(status: TodoStatus) -> str:
    """Say where a task of a plan is."""
    return _TODOS[status]


def plan_chip(plan: Plan, *, running: bool) -> Chip:
    """Say where a plan is.

    Args:
        plan: The plan.
        running: Whether a turn is open, and so may be working on it.

    Returns:
        The state.
    """
    if plan.status is PlanStatus.DRAFT:
        return Chip("Draft", "ask")
    if plan.status is PlanStatus.COMPLETED:
        return Chip("Completed", "good")
    return Chip("Active", "busy") if running else Chip("Stopped with open tasks", "warn")


def plan_progress(plan: Plan) -> str:
    """Say how far a plan is."""
    total, left = len(plan.todos), len(plan.open_todos)
    tasks = f"{total} task{'' if total == 1 else 's'}"
    return f"revision {plan.revision}, {tasks if left in {0, total} else f'{left} of {tasks} open'}"


def demo_suggestions(tools: Collection[str], *, plan_mode: bool) -> list[Suggestion]:
    """Return messages to try with the demo model.

    Args:
        tools: Names of the agent's tools.
        plan_mode: Whether the agent has plan mode.

    Returns:
        Those that the agent can do.
    """
    return [one for one in _DEMO if one.tool in tools and (plan_mode or not one.plan_first)]


def decision_verb(verb: DecisionVerb) -> str:
    """Say a decision as something that was done."""
    return "Approved" if verb is DecisionVerb.APPROVE else "Rejected"
