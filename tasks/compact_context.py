"""`CompactContext`: one attempt to have the older messages summarised by the model."""

from __future__ import annotations

from celeriac.connectors.summaries import summary_of, summary_request
from celeriac.sessions.definition import CompactionPolicy
from celeriac.sessions.inputs import ContextCompacted, Input, ModelInterrupted
from celeriac.sessions.messages import Role
from celeriac.sessions.model import ModelError, ModelRequest
from celeriac.sessions.state import StepName
from celeriac.sessions.store.sessions import Claim
from celeriac.tasks.celery import app
from celeriac.tasks.model_call import agent_of, read_reply, request_for
from celeriac.tasks.names import COMPACT_CONTEXT
from celeriac.tasks.runtime import Runtime
from celeriac.tasks.step import run_step

__all__ = ["compact_context"]


@app.task(name=COMPACT_CONTEXT)
def compact_context(session_id: str, step_id: str, call_id: str | None = None) -> None:
    """Run one attempt of a summary."""
    run_step(StepName.COMPACT_CONTEXT, session_id, step_id, call_id, _work)


def _work(here: Runtime, claim: Claim) -> Input:
    agent = agent_of(here, claim)
    # A deploy may have taken the policy away since RunModel asked for this.
    policy = agent.compaction or CompactionPolicy()
    # Each further attempt asks for less: the last one may have been too long.
    limit = policy.limit_tokens >> (claim.step.attempt - 1)
    request = _request(claim, request_for(here, claim, agent, (), ""), limit)
    try:
        reply = read_reply(here, claim, agent, request, shown=False)
    except ModelError as error:
        if error.context_full:
            raise ModelError(str(error), retryable=True, retry_after_seconds=0) from error
        raise
    if isinstance(reply, ModelInterrupted):
        return ModelInterrupted(claim.step.id, claim.token, "")
    return ContextCompacted(
        claim.step.id,
        claim.token,
        summary_of(reply),
        usage=reply.usage,
        model=reply.model or request.model,
    )


def _request(claim: Claim, request: ModelRequest, limit_tokens: int) -> ModelRequest:
    turn = claim.loaded.state.turn
    before = turn.compact_before if turn else 0
    older = [
        message
        for message in claim.messages
        if message.role is Role.SUMMARY or message.seq < before
    ]
    return summary_request(request, older, limit_tokens)
