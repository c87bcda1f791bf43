"""`RunModel`: one model call, streamed to the page, its response resolved into calls."""

from __future__ import annotations

from dataclasses import replace

from celeriac.connectors.toolset import Toolset
from celeriac.sessions.built_in import BuiltInTool, plan_instructions
from celeriac.sessions.context import choose_cut, request_size
from celeriac.sessions.definition import AgentDefinition, CompactionPolicy
from celeriac.sessions.harness import write_snapshot
from celeriac.sessions.inputs import ContextFull, Input, ModelInterrupted, ModelReplied
from celeriac.sessions.jsonsafe import clean_text, to_json_value
from celeriac.sessions.model import ModelError, ModelRequest
from celeriac.sessions.state import SessionState, StepName, Turn
from celeriac.sessions.store.sessions import Claim
from celeriac.tasks.celery import app
from celeriac.tasks.model_call import agent_of, harness_for, read_step, request_for
from celeriac.tasks.names import RUN_MODEL
from celeriac.tasks.runtime import Runtime
from celeriac.tasks.step import run_step

__all__ = ["run_model"]


@app.task(name=RUN_MODEL)
def run_model(session_id: str, step_id: str, call_id: str | None = None) -> None:
    """Run one attempt of a model call."""
    run_step(StepName.RUN_MODEL, session_id, step_id, call_id, _work)


def _work(here: Runtime, claim: Claim) -> Input:
    agent = agent_of(here, claim)
    _check_size(here, claim)
    turn = claim.loaded.state.turn
    if turn is not None and turn.model_calls >= agent.max_model_calls_per_turn:
        limit = agent.max_model_calls_per_turn
        raise ModelError(f"it reached its limit of {limit} model calls", retryable=False)
    toolset = _toolset(here, agent, turn)
    request = request_for(
        here, claim, agent, toolset.definitions, _instructions(agent, claim.loaded.state)
    )
    policy = agent.compaction
    too_much = None if policy is None else _over_limit(request, policy)
    if policy is not None and too_much is not None:
        compact = _compact_first(claim, policy.keep_recent_tokens, too_much)
        if compact is not None:
            return compact
    try:
        reply = read_step(here, claim, agent, request)
    except ModelError as error:
        if not error.context_full:
            raise
        return _refused_as_too_large(claim, request, policy, error)
    if isinstance(reply, ModelInterrupted):
        return reply
    calls = tuple(toolset.plan(call, request.turn_id, claim.loaded.now) for call in reply.calls)
    harness = harness_for(here, agent, request.model)
    snapshot = write_snapshot(harness, reply, [planned.reference.id for planned in calls])
    return ModelReplied(
        step_id=claim.step.id,
        token=claim.token,
        text=clean_text(reply.text),
        reasoning=clean_text(reply.reasoning),
        items=tuple(to_json_value(item) for item in reply.items),
        items_api=reply.items_api,
        calls=calls,
        usage=reply.usage,
        finish_reason=reply.finish_reason,
        model=reply.model or request.model,
        reported_model=reply.reported_model,
        first_token_ms=reply.first_token_ms,
        latency_ms=reply.latency_ms,
        missing_tools=toolset.unlisted,
        context_full=too_much is not None,
        snapshot=snapshot,
    )


def _over_limit(request: ModelRequest, policy: CompactionPolicy) -> str | None:
    """Say by how much a request is over the limit of the policy; None when it is not."""
    size = request_size(request)
    if size.tokens < policy.limit_tokens:
        return None
    return f"{size.describe()}; the limit is {policy.limit_tokens:,}"


def _refused_as_too_large(
    claim: Claim, request: ModelRequest, policy: CompactionPolicy | None, error: ModelError
) -> ContextFull:
    """Compact once for it: the model's window is smaller than the policy says, or its tokens are.

    Raises:
        ModelError: That cannot help, or has not helped.
    """
    turn = claim.loaded.state.turn
    tried = turn is not None and turn.refused_as_too_large
    compact = None
    if policy is not None and not tried:
        keep = min(policy.keep_recent_tokens, request_size(request).tokens // 4)
        compact = _compact_first(claim, keep, clean_text(str(error)))
    if compact is not None:
        return replace(compact, refused=True)
    why = "even its newest messages alone"
    if policy is None:
        why = "and this agent has no CompactionPolicy, which would summarise the older messages"
    elif tried or (turn is not None and not turn.may_compact):
        why = "even with its older messages summarised"
    raise ModelError(
        f"the conversation is too large for the model {request.model}, {why}; it says: {error}",
        retryable=False,
        context_full=True,
        usage=error.usage,
    ) from error


def _check_size(here: Runtime, claim: Claim) -> None:
    size, limit = claim.loaded.stored_bytes, here.settings.session_max_bytes
    if size >= limit:
        raise ModelError(
            f"this session takes {size:,} bytes of the store and its limit is {limit:,} "
            "(CELERIAC_SESSION_MAX_BYTES); go on in a new session, or have the limit raised",
            retryable=False,
        )


def _toolset(here: Runtime, agent: AgentDefinition, turn: Turn | None) -> Toolset:
    toolset = here.toolset(agent)
    planning = turn is not None and turn.plan_mode
    return toolset.only({BuiltInTool.WRITE_TODOS}) if planning else toolset


def _compact_first(claim: Claim, keep_tokens: int, reason: str) -> ContextFull | None:
    """Ask for a summary of the older messages, if that may still help."""
    turn = claim.loaded.state.turn
    if turn is None or not turn.may_compact:
        return None
    cut = choose_cut(claim.messages, keep_tokens)
    if cut is None:
        return None
    return ContextFull(
        claim.step.id, claim.token, cut, f"the context is full, so it is summarised: {reason}"
    )


def _instructions(agent: AgentDefinition, state: SessionState) -> str:
    planning = state.turn is not None and state.turn.plan_mode
    of_plan = plan_instructions(state.plan, planning=planning)
    return f"{agent.instructions}\n\n{of_plan}" if of_plan else agent.instructions
