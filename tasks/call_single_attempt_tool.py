"""`CallSingleAttemptTool`: the only attempt of a non-idempotent write.

The claim is what is stored before the tool is entered: it is given once, and a claim whose worker is lost
makes the outcome unknown. Nothing runs the call a second time.
"""

from __future__ import annotations

from celeriac.sessions.state import StepName
from celeriac.tasks.celery import app
from celeriac.tasks.names import CALL_SINGLE_ATTEMPT_TOOL
from celeriac.tasks.step import run_step
from celeriac.tasks.tool_attempt import tool_attempt

__all__ = ["call_single_attempt_tool"]


@app.task(name=CALL_SINGLE_ATTEMPT_TOOL)
def call_single_attempt_tool(session_id: str, step_id: str, call_id: str | None = None) -> None:
    """Run a call that must never be repeated."""
    run_step(StepName.CALL_SINGLE_ATTEMPT_TOOL, session_id, step_id, call_id, tool_attempt)
