"""Facts in words for a person. No other module says what a status is called."""

from __future__ import annotations

from dataclasses import dataclass

from celeriac.sessions.calls import CallRecord, CallStatus, DecisionVerb, ToolEffect
from celeriac.sessions.messages import Usage
from celeriac.sessions.snapshot import SessionSummary, Snapshot, StepView
from celeriac.sessions.state import SessionStatus, StepName

__all__ = [
    "NO_WORKER",
    "Chip",
    "attempt_words",
    "call_chip",
    "decision_verb",
    "effect_words",
    "error_tone",
    "session_chip",
    "state_sentence",
    "summary_chip",
    "tool_title",
    "usage_words",
]

NO_WORKER = "Saved. No worker is running; it will continue when one starts."


@dataclass(frozen=True, slots=True)
class Chip:
    """A short state: its words, and the tone that colours them."""

    words: str
    tone: str


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
    if call.status is CallStatus.FAILED and call.skipped:
        return Chip("Not run", "quiet")
    return _CALLS[call.status]


def error_tone(call: CallRecord) -> str:
    """Say how loud the words about a call's end are: only what went wrong is red."""
    expected = call.status in {CallStatus.CANCELLED, CallStatus.REJECTED} or call.skipped
    return "quiet" if expected else "bad"


def attempt_words(call: CallRecord) -> str:
    """Say how often a call was tried; nothing for one that has not begun."""
    if call.attempts <= 0:
        return ""
    if call.status is CallStatus.RETRYING and call.max_attempts:
        return f"attempt {call.attempts} of {call.max_attempts} failed"
    if call.attempts == 1 and call.status.settled:
        return "1 attempt"
    if not call.status.settled and call.max_attempts:
        return f"attempt {call.attempts} of {call.max_attempts}"
    return f"{call.attempts} attempts"


def tool_title(call: CallRecord) -> str:
    """Name the tool, with where it comes from."""
    if call.source is None:
        return call.tool
    return f"{call.source}: {call.original_name or call.tool}"


def session_chip(status: SessionStatus) -> Chip:
    """Say what a session is doing."""
    return _SESSIONS[status]


def summary_chip(summary: SessionSummary) -> Chip:
    """Say what a session in the list is doing or waiting for."""
    waiting = summary.waiting_for or ""
    kind, _, what = waiting.partition(":")
    words = {
        "approval": f"Needs approval of {what.strip()}",
        "answer": "Needs an answer",
        "question": "Needs an answer",
        "timer": "Waiting for a time",
    }.get(kind.strip())
    if words is not None:
        return Chip(words, "quiet" if kind.strip() == "timer" else "ask")
    return session_chip(summary.status)


def state_sentence(snapshot: Snapshot, *, workers: int) -> str:
    """Say in one sentence what the session is doing now.

    Args:
        snapshot: The session.
        workers: How many workers were seen lately.

    Returns:
        The sentence, e.g. "Waiting for your approval of cancel_order".
    """
    turn = snapshot.turn
    if turn is None:
        return "Ready for your message" if snapshot.messages else "Ready for your first message"
    if turn.state == "cancelling":
        return "Stopping at the next safe moment"
    if turn.state == "steering":
        return "Changing course at the next safe moment"
    tools = {call.id: call.tool for call in snapshot.calls}
    asking = [step for step in turn.steps if step.name is StepName.AWAIT_TOOL_APPROVAL]
    if len(asking) > 1:
        return f"Waiting for your approval of {len(asking)} calls"
    if asking:
        return f"Waiting for your approval of {tools.get(asking[0].call_id or '', 'a call')}"
    sentences = [_step_sentence(step, tools, workers) for step in turn.steps]
    return next((words for words in sentences if words), "Working")


_MODEL_STEPS = {
    StepName.RUN_MODEL: "Thinking",
    StepName.COMPACT_CONTEXT: "Summarising the older conversation",
}


def _step_sentence(step: StepView, tools: dict[str, str], workers: int) -> str:
    tool = tools.get(step.call_id or "", "a tool")
    if step.name is StepName.AWAIT_QUESTION_ANSWER:
        return "Waiting for your answer"
    if step.name is StepName.AWAIT_TIMER:
        return "Waiting for a time"
    doing = _MODEL_STEPS.get(step.name) or f"Running {tool}"
    if step.state == "retrying":
        what = "The model call" if step.name is StepName.RUN_MODEL else doing
        return f"{what} failed; trying again soon (attempt {step.attempt})"
    if step.state == "ready":
        return f"Next: {doing[0].lower()}{doing[1:]}" if workers else "Waiting for a worker"
    return f"{doing} (attempt {step.attempt})" if step.attempt > 1 else doing


def usage_words(usage: Usage) -> str:
    """Say what was used; an unknown cost is called unknown, never 0."""
    if usage.model_calls == 0:
        return "No model call yet"
    parts = [f"{usage.model_calls} model call{'s' if usage.model_calls != 1 else ''}"]
    if usage.input_tokens is not None or usage.output_tokens is not None:
        parts.append(f"{(usage.input_tokens or 0) + (usage.output_tokens or 0):,} tokens")
    if usage.cost_usd is None:
        parts.append("cost unknown")
    else:
        parts.append(
            f"${usage.cost_usd:.2f}" if usage.cost_usd >= 0.1 else f"${usage.cost_usd:.4f}"
        )
    return " · ".join(parts)


def decision_verb(verb: DecisionVerb) -> str:
    """Say a decision as something that was done."""
    return "Approved" if verb is DecisionVerb.APPROVE else "Rejected"
