"""One attempt of a tool call: check that what runs is what was shown, enter the tool, sort its end."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable
from dataclasses import dataclass

from pydantic import JsonValue

from celeriac.connectors.toolset import BoundTool
from celeriac.sessions.approvals import approval_digest
from celeriac.sessions.calls import CallRequest
from celeriac.sessions.errors import ToolFailed
from celeriac.sessions.events import EventType, LiveEvent
from celeriac.sessions.inputs import Input, StepFailed, ToolChanged, ToolEnded
from celeriac.sessions.jsonsafe import (
    bounded_value,
    clean_text,
    dump_json,
    to_json_value,
    truncate_text,
)
from celeriac.sessions.store.sessions import Claim
from celeriac.sessions.tools import InvalidArguments, ToolContext, ToolResult, needs_approval
from celeriac.tasks.runtime import Runtime
from celeriac.tasks.step import error_text

__all__ = ["tool_attempt"]


def tool_attempt(here: Runtime, claim: Claim) -> Input:
    """Run one attempt of the claimed step's call.

    Args:
        here: This process's parts.
        claim: The claim; it holds the call's request.

    Returns:
        What came of it.
    """
    try:
        ready = _prepare(here, claim)
    except Exception as error:  # noqa: BLE001 - e.g. tools that cannot be listed: nothing was entered
        return _not_entered(claim, error_text(error), retryable=True)
    return ready if isinstance(ready, Input) else _enter(here, claim, *ready)


def _prepare(here: Runtime, claim: Claim) -> tuple[BoundTool, dict[str, JsonValue]] | Input:
    """Find the tool and check that it is what was shown; an input when it is not to be entered."""
    request = claim.request
    if request is None or not isinstance(request.arguments, dict):
        return _not_entered(claim, "its stored request cannot be read")
    agent = here.agents.get(claim.loaded.state.agent)
    if agent is None:
        return _not_entered(claim, "this worker does not know the agent", retryable=True)
    tool = here.toolset(agent).get(request.tool)
    if tool is None:
        return _not_entered(claim, f"tool removed: the agent has no {request.tool!r} any more")
    changed = _must_ask_again(claim, tool, request)
    if changed is not None:
        return changed
    try:
        tool.validate(request.arguments)
    except InvalidArguments as error:
        return _not_entered(claim, str(error))
    return tool, request.arguments


def _not_entered(claim: Claim, why: str, *, retryable: bool = False) -> StepFailed:
    return StepFailed(claim.step.id, claim.token, why, retryable=retryable, entered=False)


def _must_ask_again(claim: Claim, tool: BoundTool, request: CallRequest) -> ToolChanged | None:
    """Compare what would run with what was planned and shown; a change never loosens anything."""
    call = claim.loaded.state.call(request.id)
    if call is None or not isinstance(request.arguments, dict):
        return None
    definition = tool.definition
    effect = definition.effect if definition.effect.is_stricter_than(call.effect) else None
    if call.decision is not None:
        if approval_digest(definition, request.arguments) == call.decision.digest:
            return None
        reason = "The tool's definition changed after it was approved; please look again."
    elif effect is not None:
        reason = "The tool's effect became stricter after the call was made; please look."
    elif needs_approval(definition.approval, request.arguments):
        reason = "The tool asks for approval since a change that came after the call was made."
    else:
        return None
    digest = approval_digest(definition, request.arguments)
    return ToolChanged(claim.step.id, claim.token, digest, reason, effect)


def _enter(here: Runtime, claim: Claim, tool: BoundTool, arguments: dict[str, JsonValue]) -> Input:
    step, token = claim.step, claim.token
    call_id = step.call_id or ""
    try:
        value = _invoke(here, tool, arguments, _context(here, claim, tool))
    except ToolFailed as error:
        return ToolEnded(step.id, token, call_id, succeeded=False, error=_message(error))
    except TimeoutError:
        limit = tool.definition.timeout_seconds
        return StepFailed(step.id, token, f"no result within {limit:g} s" if limit else "timed out")
    except BaseException as error:  # noqa: BLE001 - a broken attempt, even SystemExit, has an outcome
        return StepFailed(step.id, token, error_text(error))
    if isinstance(value, ToolResult) and value.is_error:
        error_shown = _error_of(value, here.settings.result_kept_bytes)
        return ToolEnded(step.id, token, call_id, succeeded=False, error=error_shown)
    result = value.value if isinstance(value, ToolResult) else value
    kept = bounded_value(to_json_value(result), here.settings.result_kept_bytes)
    return ToolEnded(step.id, token, call_id, succeeded=True, result=kept)


def _message(error: ToolFailed) -> str:
    return clean_text(str(error)).strip() or "the tool failed without a message"


def _error_of(result: ToolResult, limit: int) -> str:
    value = to_json_value(result.value)
    text = value if isinstance(value, str) else dump_json(value)
    return truncate_text(text, limit) or "the tool failed without a message"


def _context(here: Runtime, claim: Claim, tool: BoundTool) -> ToolContext:
    session_id = claim.loaded.state.session_id
    call_id = claim.step.call_id or ""

    def report_progress(text: str) -> None:
        event = LiveEvent(EventType.TOOL_PROGRESS, {"call_id": call_id, "text": clean_text(text)})
        here.store.publish(session_id, [event])

    limit = tool.definition.timeout_seconds
    return ToolContext(
        session_id=session_id,
        call_id=call_id,
        idempotency_key=call_id,
        attempt=claim.step.attempt,
        deadline=None if limit is None else time.time() + limit,
        report_progress=report_progress,
        cancelled=here.leases.cancelled(claim),
    )


def _invoke(
    here: Runtime, tool: BoundTool, arguments: dict[str, JsonValue], context: ToolContext
) -> object:
    limit = tool.definition.timeout_seconds
    if tool.runs_async or limit is None:
        result = tool.invoke(arguments, context)
        return here.loop.run(_within(result, limit)) if inspect.isawaitable(result) else result
    return _in_thread(tool, arguments, context, limit)


async def _within(result: Awaitable[object], limit: float | None) -> object:
    return await asyncio.wait_for(result, limit)


@dataclass(slots=True)
class _Box:
    value: object = None
    error: BaseException | None = None


def _in_thread(
    tool: BoundTool, arguments: dict[str, JsonValue], context: ToolContext, limit: float
) -> object:
    """Run a sync tool with a time limit. A thread cannot be killed: a tool that overruns goes on, unheard."""
    box = _Box()

    def target() -> None:
        try:
            box.value = tool.invoke(arguments, context)
        except BaseException as error:  # noqa: BLE001 - raised again in the step's thread
            box.error = error

    thread = threading.Thread(target=target, name=f"celeriac-{context.call_id}", daemon=True)
    thread.start()
    thread.join(limit)
    if thread.is_alive():
        raise TimeoutError
    if box.error is not None:
        raise box.error
    return box.value
