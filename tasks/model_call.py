"""What the steps that ask a model share: the agent, the request, the streamed response, which Stop ends."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, replace

from celeriac.connectors.built_in_loop import BuiltInLoop
from celeriac.sessions.definition import AgentDefinition
from celeriac.sessions.errors import StoreUnavailable
from celeriac.sessions.events import EventType, LiveEvent
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.harness import Harness, read_snapshot, step_context
from celeriac.sessions.inputs import ModelInterrupted
from celeriac.sessions.jsonsafe import clean_text
from celeriac.sessions.messages import Usage
from celeriac.sessions.model import (
    ModelError,
    ModelReply,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
)
from celeriac.sessions.model_choice import resolve_model
from celeriac.sessions.store.sessions import Claim
from celeriac.sessions.tools import ToolDefinition
from celeriac.tasks.leases import turn_is_stopped
from celeriac.tasks.runtime import Runtime
from celeriac.tasks.step import error_text

__all__ = ["agent_of", "harness_for", "read_step", "read_summary", "request_for"]

_BATCH_SECONDS = 0.05
"""Deltas are published in batches of this length: 20 events a second are smooth and cheap."""
_LOOK_SECONDS = 0.5
"""How often a running model call looks whether its turn was stopped."""


def agent_of(here: Runtime, claim: Claim) -> AgentDefinition:
    """Return the agent of the claimed step's session.

    Raises:
        ModelError: This worker does not have it; another one may.
    """
    name = claim.loaded.state.agent
    agent = here.agents.get(name)
    if agent is None:
        has = ", ".join(here.agents)
        raise ModelError(f"this worker has no agent {name!r}; it has {has}", retryable=True)
    return agent


def request_for(
    here: Runtime,
    claim: Claim,
    agent: AgentDefinition,
    tools: Sequence[ToolDefinition],
    instructions: str,
) -> ModelRequest:
    """Make the request that a claimed step sends, with the whole active context."""
    state = claim.loaded.state
    model = resolve_model(state.model, here.models_of(agent))
    return ModelRequest(
        model=model,
        instructions=instructions,
        messages=claim.messages,
        tools=tools,
        session_id=state.session_id,
        turn_id=state.turn.id if state.turn else "",
        attempt=claim.step.attempt,
        timeout_seconds=here.settings.model_timeout_seconds,
        settings=agent.settings_of(model),
    )


def _with_images(here: Runtime, request: ModelRequest) -> ModelRequest:
    """Add the images that are sent: the newest ones, up to the limit of one request."""
    shown = [image.id for message in request.messages for image in message.images]
    if not shown:
        return request
    newest = list(dict.fromkeys(reversed(shown)))[: here.settings.images_max_per_request]
    return replace(request, images=here.store.images(request.session_id, newest))


def harness_for(here: Runtime, agent: AgentDefinition, model: str) -> Harness:
    """Return what makes the agent's model steps: its own harness, or ours with the client of the model.

    Args:
        here: This process's parts.
        agent: The agent, which may have a client of its own for the model.
        model: Name of the model that is asked.
    """
    if agent.harness is not None:
        return agent.harness
    own = agent.model_clients.get(model)
    return BuiltInLoop(here.models.client(model) if own is None else own)


def read_step(
    here: Runtime, claim: Claim, agent: AgentDefinition, request: ModelRequest
) -> ModelReply | ModelInterrupted:
    """Make one model step; pages see its text while it comes.

    Args:
        here: This process's parts.
        claim: The claim of the step.
        agent: The agent.
        request: What to ask.

    Returns:
        The complete reply, or what there was of it when the turn was stopped.

    Raises:
        ModelError: The attempt failed.
    """
    harness = harness_for(here, agent, request.model)
    request = _with_images(here, request)
    stored = None
    if agent.harness is not None:
        stored = read_snapshot(here.store.harness_snapshot(request.session_id))
    stream = harness.run_model(step_context(harness, request, stored))
    return _traced(here, claim, request, stream, shown=True)


def read_summary(
    here: Runtime, claim: Claim, agent: AgentDefinition, request: ModelRequest
) -> ModelReply | ModelInterrupted:
    """Ask for a summary once; pages do not see it while it comes. See `read_step`."""
    harness = harness_for(here, agent, request.model)
    stream = harness.summarise(_with_images(here, request))
    return _traced(here, claim, request, stream, shown=False)


def _traced(
    here: Runtime,
    claim: Claim,
    request: ModelRequest,
    stream: AsyncIterator[TextDelta | ReasoningDelta | ModelReply],
    *,
    shown: bool,
) -> ModelReply | ModelInterrupted:
    with here.tracing.model_call(claim, request) as tell:
        reply = _Reading(here, claim, stream, request.timeout_seconds, shown=shown).read()
        tell(reply)
        return reply


@dataclass(frozen=True, slots=True)
class _Broken:
    error: BaseException


class _Reading:
    """Reads one streamed response: the loop thread feeds it, the step's thread publishes and watches."""

    def __init__(
        self,
        here: Runtime,
        claim: Claim,
        stream: AsyncIterator[TextDelta | ReasoningDelta | ModelReply],
        timeout_seconds: float,
        *,
        shown: bool,
    ) -> None:
        self._here = here
        self._claim = claim
        self._stream = stream
        self._timeout_seconds = timeout_seconds
        self._shown = shown
        self._items: queue.SimpleQueue[TextDelta | ReasoningDelta | ModelReply | _Broken] = (
            queue.SimpleQueue()
        )
        self._text = ""
        self._pending: dict[EventType, str] = {}
        self._published_at = 0.0
        self._began_at = 0.0
        self._first_at: float | None = None

    def read(self) -> ModelReply | ModelInterrupted:
        """Return the complete reply, or what there was of it when the turn was stopped."""
        self._began_at = time.monotonic()
        running = self._here.loop.submit(self._pump())
        reply: ModelReply | ModelInterrupted | None = None
        try:
            reply = self._collect(self._began_at + self._timeout_seconds)
        except ModelError as error:
            if error.usage is None and self._first_at is not None:
                error.usage = Usage()  # the provider charges for what it has streamed
            raise
        finally:
            if not isinstance(reply, ModelReply):
                self._here.loop.cancel(running)
        return self._timed(reply) if isinstance(reply, ModelReply) else reply

    def _timed(self, reply: ModelReply) -> ModelReply:
        return replace(
            reply,
            first_token_ms=None if self._first_at is None else self._since_began(self._first_at),
            latency_ms=self._since_began(time.monotonic()),
        )

    def _since_began(self, at: float) -> int:
        return round((at - self._began_at) * 1000)

    async def _pump(self) -> None:
        try:
            async for item in self._stream:
                self._items.put(item)
                if isinstance(item, ModelReply):
                    # Nothing comes after it. Left to the garbage collector, a stream would be closed later.
                    await _close(self._stream)
                    return
            ended = "the stream ended without a reply"
            self._items.put(_Broken(ModelError(ended, retryable=True, kind=FailureKind.BROKEN)))
        except BaseException as error:  # noqa: BLE001 - raised again in the step's thread
            self._items.put(_Broken(error))

    def _collect(self, deadline: float) -> ModelReply | ModelInterrupted:
        look_at = time.monotonic() + _LOOK_SECONDS
        while True:
            now = time.monotonic()
            if now >= deadline:
                limit = self._timeout_seconds
                raise ModelError(
                    f"no complete response within {limit:g} s",
                    retryable=True,
                    kind=FailureKind.TIMEOUT,
                )
            if now >= look_at:
                look_at = now + _LOOK_SECONDS
                if self._stopped():
                    return ModelInterrupted(
                        self._claim.step.id, self._claim.token, clean_text(self._text)
                    )
            try:
                item = self._items.get(timeout=self._patience(now, min(look_at, deadline)))
            except queue.Empty:
                self._publish()
                continue
            if isinstance(item, ModelReply):
                self._publish()
                return item
            if isinstance(item, _Broken):
                raise _as_model_error(item.error) from item.error
            self._take(item)

    def _patience(self, now: float, until: float) -> float:
        if self._pending:
            until = min(until, self._published_at + _BATCH_SECONDS)
        return max(until - now, 0.001)

    def _take(self, delta: TextDelta | ReasoningDelta) -> None:
        self._first_at = self._first_at or time.monotonic()
        if not self._shown:
            return
        kind = EventType.REASONING_DELTA
        if isinstance(delta, TextDelta):
            kind = EventType.TEXT_DELTA
            self._text += delta.text
        self._pending[kind] = self._pending.get(kind, "") + delta.text
        if time.monotonic() - self._published_at >= _BATCH_SECONDS:
            self._publish()

    def _publish(self) -> None:
        if not self._pending:
            return
        step = self._claim.step
        events = [
            LiveEvent(kind, {"step_id": step.id, "attempt": step.attempt, "text": clean_text(text)})
            for kind, text in self._pending.items()
        ]
        self._pending = {}
        self._published_at = time.monotonic()
        self._here.store.publish(self._claim.loaded.state.session_id, events)

    def _stopped(self) -> bool:
        try:
            return turn_is_stopped(self._here.store, self._claim.loaded.state.session_id)
        except StoreUnavailable:
            return False


async def _close(stream: AsyncIterator[object]) -> None:
    if isinstance(stream, AsyncGenerator):
        with contextlib.suppress(Exception):  # it has given its reply
            await stream.aclose()


def _as_model_error(error: BaseException) -> ModelError:
    if isinstance(error, ModelError):
        return error
    return ModelError(error_text(error), retryable=True)
