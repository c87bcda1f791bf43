"""`CallTool`: one attempt of a read or an idempotent write."""

from __future__ import annotations

from celeriac.sessions.state import StepName
from celeriac.tasks.celery import app
from celeriac.tasks.names import CALL_TOOL
from celeriac.tasks.step import run_step
from celeriac.tasks.tool_attempt import tool_attempt

__all__ = ["call_tool"]


@app.task(name=CALL_TOOL)
def call_tool(session_id: str, step_id: str, call_id: str | None = None) -> None:
    """Run one attempt of a call that may be repeated with the same Call ID."""
    run_step(StepName.CALL_TOOL, session_id, step_id, call_id, tool_attempt)
