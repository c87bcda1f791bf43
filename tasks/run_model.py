"""`RunModel`: one model call, streamed to the page, its response resolved into calls."""

from __future__ import annotations

from celeriac.connectors.toolset import Toolset
from celeriac.sessions.built_in import BuiltInTool, plan_instructions
from celeriac.sessions.definition import AgentDefinition
from celeriac.sessions.inputs import Input, ModelInterrupted, ModelReplied, StepFailed
from celeriac.sessions.jsonsafe import clean_text, to_json_value
from celeriac.sessions.model import ModelError, ModelReply, ModelRequest
from celeriac.sessions.state import SessionState, StepName, Turn
from celeriac.sessions.store.sessions import Claim
from celeriac.tasks.celery import app
from celeriac.tasks.model_stream import read_reply
from celeriac.tasks.names import RUN_MODEL
from celeriac.tasks.runtime import Runtime
from celeriac.tasks.step import run_step

__all__ = ["run_model"]


@app.task(name=RUN_MODEL)
def run_model(session_id: str, step_id: str, call_id: str | None = None) -> None:
    """Run one attempt of a model call."""
    run_step(StepName.RUN_MODEL, session_id, step_id, call_id, _work)


def _work(here: Runtime, claim: Claim) -> Input:
    state = claim.loaded.state
    agent = here.agents.get(state.agent)
    if agent is None:
        return _failed(
            claim, f"this worker has no agent {state.agent!r}; it has {', '.join(here.agents)}"
        )
    turn = state.turn
    if turn is not None and turn.model_calls >= agent.max_model_calls_per_turn:
        limit = agent.max_model_calls_per_turn
        return _failed(claim, f"it reached its limit of {limit} model calls", retryable=False)
    toolset = _toolset(here, agent, turn)
    request = _request(here, claim, agent, toolset)
    try:
        reply = read_reply(here, claim, agent, request)
    except ModelError as error:
        delay = error.retry_after_seconds
        return StepFailed(
            claim.step.id,
            claim.token,
            clean_text(str(error)),
            retryable=error.retryable,
            delay_ms=None if delay is None else int(delay * 1000),
        )
    if isinstance(reply, ModelInterrupted):
        return reply
    return _replied(claim, reply, toolset, request)


def _failed(claim: Claim, error: str, *, retryable: bool = True) -> StepFailed:
    return StepFailed(claim.step.id, claim.token, error, retryable=retryable)


def _toolset(here: Runtime, agent: AgentDefinition, turn: Turn | None) -> Toolset:
    toolset = here.toolset(agent)
    planning = turn is not None and turn.plan_mode
    return toolset.only({BuiltInTool.WRITE_TODOS}) if planning else toolset


def _request(here: Runtime, claim: Claim, agent: AgentDefinition, toolset: Toolset) -> ModelRequest:
    state = claim.loaded.state
    allowed = here.models_of(agent)
    return ModelRequest(
        model=state.model if state.model in allowed else allowed[0],
        instructions=_instructions(agent, state),
        messages=claim.messages,
        tools=toolset.definitions,
        session_id=state.session_id,
        turn_id=state.turn.id if state.turn else "",
        attempt=claim.step.attempt,
        timeout_seconds=here.settings.model_timeout_seconds,
    )


def _instructions(agent: AgentDefinition, state: SessionState) -> str:
    planning = state.turn is not None and state.turn.plan_mode
    of_plan = plan_instructions(state.plan, planning=planning)
    return f"{agent.instructions}\n\n{of_plan}" if of_plan else agent.instructions


def _replied(
    claim: Claim, reply: ModelReply, toolset: Toolset, request: ModelRequest
) -> ModelReplied:
    now = claim.loaded.now
    return ModelReplied(
        step_id=claim.step.id,
        token=claim.token,
        text=clean_text(reply.text),
        reasoning=clean_text(reply.reasoning),
        items=tuple(to_json_value(item) for item in reply.items),
        calls=tuple(toolset.plan(call, request.turn_id, now) for call in reply.calls),
        usage=reply.usage,
        finish_reason=reply.finish_reason,
        model=reply.model or request.model,
    )
