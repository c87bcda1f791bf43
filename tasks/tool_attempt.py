"""One attempt of a tool call: check that what runs is what was shown, enter the tool, sort its end."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import threading
import time
from collections.abc import Awaitable, Mapping
from contextvars import copy_context

from pydantic import JsonValue

from celeriac.connectors.toolset import BoundTool
from celeriac.sessions.approvals import approval_digest
from celeriac.sessions.calls import CallRequest
from celeriac.sessions.errors import ToolFailed, ToolNotRun, ToolOutcomeUnknown
from celeriac.sessions.events import EventType, LiveEvent
from celeriac.sessions.inputs import Input, StepFailed, ToolChanged, ToolEnded
from celeriac.sessions.jsonsafe import (
    bounded_value,
    clean_text,
    dump_json,
    to_json_value,
    truncate_text,
)
from celeriac.sessions.media import without_media
from celeriac.sessions.store.sessions import Claim
from celeriac.sessions.tools import (
    InvalidArguments,
    ToolContext,
    ToolDefinition,
    ToolResult,
    needs_approval,
)
from celeriac.tasks.runtime import Runtime
from celeriac.tasks.step import commit_until_answered, error_text

__all__ = ["tool_attempt"]

_DESCRIPTION_SHOWN = 500


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
    except Exception as error:  # noqa: BLE001 - e.g. two tools of one name: nothing was entered
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
    call = claim.loaded.state.call(request.id)
    decided = call is not None and call.decision is not None
    toolset = here.toolset(agent, anew=request.source if decided else None)
    tool = toolset.get(request.tool)
    if tool is None and toolset.unlisted:
        why = f"its tool cannot be found at the moment: {'; '.join(toolset.unlisted)}"
        return _not_entered(claim, why, retryable=True)
    if tool is None:
        return _not_entered(claim, f"tool removed: the agent has no {request.tool!r} any more")
    changed = _must_ask_again(claim, tool, request)
    if changed is not None:
        return changed
    if call is not None and not call.key_is_valid_at(claim.loaded.now):
        return _not_entered(
            claim, "its provider does not know the key of the first attempt any longer"
        )
    try:
        tool.validate(request.arguments)
    except InvalidArguments as error:
        return _not_entered(claim, str(error))
    return tool, request.arguments


def _not_entered(claim: Claim, why: str, *, retryable: bool = False) -> StepFailed:
    return StepFailed(
        claim.step.id,
        claim.token,
        why,
        claim.step.call_id,
        retryable=retryable,
        entered=False,
    )


def _not_run(claim: Claim, error: ToolNotRun) -> StepFailed:
    wait = error.retry_after_seconds
    return dataclasses.replace(
        _not_entered(claim, clean_text(str(error)), retryable=True),
        delay_ms=None if wait is None else int(wait * 1000),
    )


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
        reason = _what_changed(call.shown, definition)
    elif effect is not None:
        reason = "The tool's effect became stricter after the call was made; please look."
    elif needs_approval(definition.approval, request.arguments):
        reason = "The tool asks for approval since a change that came after the call was made."
    else:
        return None
    digest = approval_digest(definition, request.arguments)
    return ToolChanged(claim.step.id, claim.token, digest, reason, effect, definition.parts())


def _what_changed(shown: Mapping[str, str], definition: ToolDefinition) -> str:
    now = definition.parts()
    parts = [f"its {what}" for what in now if shown and shown.get(what) != now[what]]
    if not parts:
        return "The tool's definition changed after it was approved; please look again."
    told = f"The tool changed after it was approved: {', '.join(parts)}; please look again."
    if shown.get("description") != now["description"]:
        told += f" It now says of itself: “{definition.description[:_DESCRIPTION_SHOWN]}”"
    return told


def _enter(here: Runtime, claim: Claim, tool: BoundTool, arguments: dict[str, JsonValue]) -> Input:
    with here.tracing.tool_call(claim, tool.definition) as tell:
        end = _attempt(here, claim, tool, arguments)
        tell(end)
        return end


def _attempt(
    here: Runtime, claim: Claim, tool: BoundTool, arguments: dict[str, JsonValue]
) -> Input:
    attempt = _Attempt(here, claim, tool)
    limit = tool.definition.timeout_seconds
    try:
        if limit is None or tool.runs_async:
            return attempt.run(arguments)
        return attempt.run_in_thread(arguments, limit)
    except TimeoutError:
        return attempt.broke(f"no result within {limit:g} s" if limit else "timed out")


class _Attempt:
    """One attempt that enters the tool, and what is said of its end.

    Args:
        here: This process's parts.
        claim: The claim of the call's step.
        tool: The tool.
    """

    def __init__(self, here: Runtime, claim: Claim, tool: BoundTool) -> None:
        self._here = here
        self._claim = claim
        self._tool = tool
        self._call_id = claim.step.call_id or ""
        self._limit = here.settings.result_kept_bytes

    def run(self, arguments: dict[str, JsonValue]) -> Input:
        """Enter the tool and say how it ended.

        Raises:
            TimeoutError: An async tool gave no result in time, or the tool raised it.
        """
        timeout = self._tool.definition.timeout_seconds
        try:
            value = self._tool.invoke(arguments, _context(self._here, self._claim, self._tool))
            if inspect.isawaitable(value):
                value = self._here.loop.run(_within(value, timeout))
        except ToolFailed as error:
            return self._ended(error=_message(error))
        except ToolNotRun as error:
            return _not_run(self._claim, error)
        except ToolOutcomeUnknown as error:
            return self._unsure(error)
        except TimeoutError:
            raise
        except BaseException as error:  # noqa: BLE001 - a broken attempt, even SystemExit, has an outcome
            return self.broke(error_text(error))
        if isinstance(value, ToolResult) and value.is_error:
            return self._ended(error=_error_of(value, self._limit))
        result = value.value if isinstance(value, ToolResult) else value
        return self._ended(result=bounded_value(_readable(result), self._limit))

    def run_in_thread(self, arguments: dict[str, JsonValue], limit: float) -> Input:
        """Run a sync tool with a time limit.

        A thread cannot be killed: a tool that overruns goes on, and how it ends is reported late.

        Raises:
            TimeoutError: It gave no result in time.
        """
        lock = threading.Lock()
        ends: list[Input] = []
        overrun = False

        def target() -> None:
            try:
                end = self.run(arguments)
            except TimeoutError as error:
                end = self.broke(error_text(error))
            with lock:
                ends.append(end)
                late = overrun
            if late:
                commit_until_answered(self._here, self._claim, end)

        thread = threading.Thread(
            target=copy_context().run, args=(target,), name=f"celeriac-{self._call_id}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the system has no room for one more
            return _not_entered(self._claim, error_text(error), retryable=True)
        thread.join(limit)
        with lock:
            overrun = not ends
        if overrun:
            raise TimeoutError
        return ends[0]

    def broke(self, error: str) -> StepFailed:
        """Say that the attempt broke after the tool had been entered."""
        return StepFailed(self._claim.step.id, self._claim.token, error, self._call_id)

    def _unsure(self, error: ToolOutcomeUnknown) -> StepFailed:
        wait = error.retry_after_seconds
        return dataclasses.replace(
            self.broke(clean_text(str(error))),
            retryable=error.repeatable,
            delay_ms=None if wait is None else int(wait * 1000),
        )

    def _ended(self, *, result: JsonValue = None, error: str | None = None) -> ToolEnded:
        return ToolEnded(
            self._claim.step.id,
            self._claim.token,
            self._call_id,
            succeeded=error is None,
            result=result,
            error=error,
        )


def _readable(result: object) -> JsonValue:
    return without_media(to_json_value(result))


def _message(error: ToolFailed) -> str:
    return clean_text(str(error)).strip() or "the tool failed without a message"


def _error_of(result: ToolResult, limit: int) -> str:
    value = _readable(result.value)
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


async def _within(result: Awaitable[object], limit: float | None) -> object:
    return await asyncio.wait_for(result, limit)
