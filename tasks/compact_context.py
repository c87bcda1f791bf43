"""`CompactContext`: one attempt to have the older messages summarised by the model."""

from __future__ import annotations

from celeriac.connectors.summaries import summary_of, summary_request
from celeriac.sessions.context import request_tokens
from celeriac.sessions.definition import AgentDefinition, CompactionPolicy
from celeriac.sessions.inputs import ContextCompacted, Input, ModelInterrupted
from celeriac.sessions.messages import Role
from celeriac.sessions.model import ModelError, ModelReply
from celeriac.sessions.state import StepName
from celeriac.sessions.store.sessions import Claim
from celeriac.tasks.celery import app
from celeriac.tasks.model_call import agent_of, read_summary, request_for
from celeriac.tasks.names import COMPACT_CONTEXT
from celeriac.tasks.runtime import Runtime
from celeriac.tasks.step import run_step

__all__ = ["compact_context"]


_LEAST_TOKENS = 1_000
"""A request for a summary is never made shorter than this."""


@app.task(name=COMPACT_CONTEXT)
def compact_context(session_id: str, step_id: str, call_id: str | None = None) -> None:
    """Run one attempt of a summary."""
    run_step(StepName.COMPACT_CONTEXT, session_id, step_id, call_id, _work)


def _work(here: Runtime, claim: Claim) -> Input:
    agent = agent_of(here, claim)
    reply = _ask(here, claim, agent)
    if isinstance(reply, ModelInterrupted):
        return ModelInterrupted(claim.step.id, claim.token, "")
    return ContextCompacted(
        claim.step.id,
        claim.token,
        summary_of(reply),
        reply.usage,
        model=reply.model,
        reported_model=reply.reported_model,
        finish_reason=reply.finish_reason,
        first_token_ms=reply.first_token_ms,
        latency_ms=reply.latency_ms,
    )


def _ask(here: Runtime, claim: Claim, agent: AgentDefinition) -> ModelReply | ModelInterrupted:
    """Ask for a summary; for one of less text when the model finds even that too long.

    A request that is too long is refused at once and costs nothing, so it counts as no attempt.
    """
    whole = request_for(here, claim, agent, (), "")
    # A deploy may have taken the policy away since RunModel asked for this.
    policy = agent.compaction or CompactionPolicy()
    limit = min(policy.limit_tokens, request_tokens(whole))
    turn = claim.loaded.state.turn
    before = turn.compact_before if turn else 0
    older = [one for one in whole.messages if one.role is Role.SUMMARY or one.seq < before]
    while True:
        try:
            return read_summary(here, claim, agent, summary_request(whole, older, limit))
        except ModelError as error:
            limit //= 2
            if not error.context_full or limit < _LEAST_TOKENS:
                raise
