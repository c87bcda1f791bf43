"""`ReconcileCall`: look up at the provider what became of a call whose outcome is unknown."""

from __future__ import annotations

import asyncio

from celeriac.connectors.toolset import BoundTool
from celeriac.sessions.calls import CallRequest
from celeriac.sessions.errors import ToolNotRun
from celeriac.sessions.inputs import Input, OutcomeFound, StepFailed
from celeriac.sessions.jsonsafe import bounded_value, clean_text, to_json_value
from celeriac.sessions.state import StepName
from celeriac.sessions.store.sessions import Claim
from celeriac.sessions.tools import ReconcileContext
from celeriac.tasks.celery import app
from celeriac.tasks.names import RECONCILE_CALL
from celeriac.tasks.runtime import Runtime
from celeriac.tasks.step import error_text, run_step

__all__ = ["reconcile_call"]

_LIMIT_SECONDS = 120.0


@app.task(name=RECONCILE_CALL)
def reconcile_call(session_id: str, step_id: str, call_id: str | None = None) -> None:
    """Look a call up once; that changes nothing at the provider."""
    run_step(StepName.RECONCILE_CALL, session_id, step_id, call_id, _look_up)


def _look_up(here: Runtime, claim: Claim) -> Input:
    request = claim.request
    if request is None or not isinstance(request.arguments, dict):
        return _broke(claim, "the call's stored request cannot be read", retryable=False)
    tool = _tool_of(here, claim, request)
    if isinstance(tool, str):
        # Another worker, or this one later, may have it.
        return _broke(claim, tool, retryable=True)
    if tool.reconcile is None:
        return _broke(claim, "its tool cannot look anything up", retryable=False)
    context = ReconcileContext(
        session_id=claim.loaded.state.session_id,
        call_id=request.id,
        idempotency_key=request.id,
        created_at=request.created_at / 1000,
        settled_at=claim.step.created_at / 1000,
    )
    work = asyncio.wait_for(tool.reconcile(request.arguments, context), _LIMIT_SECONDS)
    try:
        found = here.loop.run(work)
    except ToolNotRun as error:
        delay = error.retry_after_seconds
        wait = None if delay is None else int(delay * 1000)
        return _broke(claim, clean_text(str(error)), retryable=True, delay_ms=wait)
    except Exception as error:  # noqa: BLE001 - whatever breaks is this attempt's outcome
        return _broke(claim, error_text(error), retryable=True)
    result = bounded_value(to_json_value(found.result), here.settings.result_kept_bytes)
    return OutcomeFound(
        claim.step.id,
        claim.token,
        request.id,
        happened=found.happened,
        by=f"a look-up at {request.source or request.tool}",
        result=result,
        note=clean_text(found.note),
    )


def _tool_of(here: Runtime, claim: Claim, request: CallRequest) -> BoundTool | str:
    agent = here.agents.get(claim.loaded.state.agent)
    if agent is None:
        return "this worker does not know the agent"
    tool = here.toolset(agent).get(request.tool)
    return tool or f"the agent has no tool {request.tool!r} (any more, or at the moment)"


def _broke(claim: Claim, why: str, *, retryable: bool, delay_ms: int | None = None) -> StepFailed:
    return StepFailed(
        claim.step.id,
        claim.token,
        why,
        claim.step.call_id,
        retryable=retryable,
        delay_ms=delay_ms,
    )
