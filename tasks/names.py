"""Names on the wire: tasks and queues. All that the web part needs to know of the steps."""

from __future__ import annotations

from celeriac.sessions.state import Step, StepName

__all__ = [
    "CALL_SINGLE_ATTEMPT_TOOL",
    "CALL_TOOL",
    "COMPACT_CONTEXT",
    "MODEL_QUEUE",
    "RECONCILE_CALL",
    "RUN_MODEL",
    "TASKS",
    "TOOL_QUEUE",
    "queue_of",
    "task_of",
]

RUN_MODEL = "celeriac.run_model"
COMPACT_CONTEXT = "celeriac.compact_context"
CALL_TOOL = "celeriac.call_tool"
CALL_SINGLE_ATTEMPT_TOOL = "celeriac.call_single_attempt_tool"
RECONCILE_CALL = "celeriac.reconcile_call"

MODEL_QUEUE = "celeriac.model"
TOOL_QUEUE = "celeriac.tool"

_TASKS = {
    StepName.RUN_MODEL: RUN_MODEL,
    StepName.COMPACT_CONTEXT: COMPACT_CONTEXT,
    StepName.CALL_TOOL: CALL_TOOL,
    StepName.CALL_SINGLE_ATTEMPT_TOOL: CALL_SINGLE_ATTEMPT_TOOL,
    StepName.RECONCILE_CALL: RECONCILE_CALL,
}

_MODEL_STEPS = frozenset({StepName.RUN_MODEL, StepName.COMPACT_CONTEXT})

TASKS = frozenset(_TASKS.values())
"""Every task that runs a step."""


def task_of(step: Step) -> str:
    """Return the name of the Celery task that runs a step."""
    return _TASKS[step.name]


def queue_of(step: Step) -> str:
    """Return the queue of a step: the one its tool names, or the one of its kind."""
    if step.queue is not None:
        return step.queue
    return MODEL_QUEUE if step.name in _MODEL_STEPS else TOOL_QUEUE
