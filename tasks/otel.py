"""Traces in OpenTelemetry's terms: one trace for each turn, its spans named by the GenAI conventions.

The ids of a turn's trace and of its root span are made from the ids of session and turn. So the steps of a turn
belong together, whichever workers run them, and nothing about traces is stored. The root span itself is written
by the worker whose step ended the turn. Spans hold no texts, arguments, results or error messages.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import version

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from celeriac.sessions.inputs import Input, ModelInterrupted, StepFailed, ToolEnded
from celeriac.sessions.messages import Usage
from celeriac.sessions.model import ModelError, ModelReply, ModelRequest
from celeriac.sessions.state import SessionState
from celeriac.sessions.store.sessions import Claim
from celeriac.sessions.tools import ToolDefinition

__all__ = ["OtelTracing", "TurnIds", "provider_of_this_process", "turn_span_context"]

_Attributes = dict[str, str | int | float | bool | tuple[str, ...]]

_PROVIDERS: Mapping[str, str] = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex_ai": "gcp.vertex_ai",
    "xai": "x_ai",
}
"""Names of the conventions, where LiteLLM's are others."""

_planned: ContextVar[SpanContext | None] = ContextVar("celeriac_planned_span", default=None)


class TurnIds(RandomIdGenerator):
    """Makes random ids, but for the root spans of turns."""

    def generate_trace_id(self) -> int:
        """Return the id of a new trace."""
        planned = _planned.get()
        return planned.trace_id if planned else super().generate_trace_id()

    def generate_span_id(self) -> int:
        """Return the id of a new span."""
        planned = _planned.get()
        return planned.span_id if planned else super().generate_span_id()


def provider_of_this_process() -> TracerProvider:
    """Return the provider that the worker's own code or its environment has set up, or set one up.

    Ours sends over OTLP; the standard variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME, …) say where.
    """
    current = trace.get_tracer_provider()
    if isinstance(current, TracerProvider):
        return current
    name = os.environ.get("OTEL_SERVICE_NAME", "celeriac")
    resource = Resource.create({"service.name": name})
    made = TracerProvider(resource=resource, id_generator=TurnIds())
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    # For the instrumented clients that tools use: their spans belong below ours.
    trace.set_tracer_provider(made)
    return made


def turn_span_context(session_id: str, turn_id: str, *, sampled: bool = True) -> SpanContext:
    """Return the ids of a turn's trace and root span.

    Args:
        session_id: The session.
        turn_id: The turn, unique in its session.
        sampled: Whether the trace is recorded.
    """
    digest = hashlib.sha256(f"{session_id}/{turn_id}".encode()).digest()
    return SpanContext(
        trace_id=int.from_bytes(digest[:16]) or 1,
        span_id=int.from_bytes(digest[16:24]) or 1,
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT),
    )


class OtelTracing:
    """Traces the steps of this process.

    Args:
        provider: Where the spans go.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("celeriac", version("celeriac"))

    def _turn(self, session_id: str, turn_id: str) -> SpanContext:
        # The sampler decides by the trace's id, so on every worker alike.
        made = turn_span_context(session_id, turn_id)
        found = self._provider.sampler.should_sample(None, made.trace_id, "invoke_agent")
        sampled = found.decision is Decision.RECORD_AND_SAMPLE
        return made if sampled else turn_span_context(session_id, turn_id, sampled=False)

    @contextmanager
    def _span(
        self,
        name: str,
        attributes: _Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        context: Context | None = None,
    ) -> Iterator[Span]:
        with self._tracer.start_as_current_span(
            name,
            context=context,
            kind=kind,
            attributes=attributes,
            # Both would write the error's message.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except ModelError as error:
                _failed(span, error.kind.value if error.kind else "model_error")
                raise
            except BaseException as error:
                _failed(span, type(error).__qualname__)
                raise

    @contextmanager
    def step(self, claim: Claim, worker: str) -> Iterator[Callable[[Input], None]]:
        """Trace one attempt of a step, below its turn."""
        state, step = claim.loaded.state, claim.step
        turn_id = _turn_id(claim)
        parent = trace.NonRecordingSpan(self._turn(state.session_id, turn_id))
        attributes = _about(state) | {
            "celeriac.turn.id": turn_id,
            "celeriac.step.id": step.id,
            "celeriac.step.name": step.name.value,
            "celeriac.step.attempt": step.attempt,
            "celeriac.worker": worker,
        }
        context = trace.set_span_in_context(parent, Context())
        with self._span(step.name.value, attributes, context=context) as span:
            yield lambda outcome: _tell_input(span, outcome)

    @contextmanager
    def model_call(
        self, claim: Claim, request: ModelRequest
    ) -> Iterator[Callable[[ModelReply | ModelInterrupted], None]]:
        """Trace one request to a model."""
        provider, slash, _ = request.model.partition("/")
        attributes = _about(claim.loaded.state) | {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDERS.get(provider, provider) if slash else "_OTHER",
            "gen_ai.request.model": request.model.partition("/")[2] or request.model,
            "gen_ai.request.stream": True,
        }
        name = f"chat {attributes['gen_ai.request.model']}"
        with self._span(name, attributes, kind=SpanKind.CLIENT) as span:
            yield lambda reply: span.set_attributes(_about_reply(reply))

    @contextmanager
    def tool_call(self, claim: Claim, tool: ToolDefinition) -> Iterator[Callable[[Input], None]]:
        """Trace one attempt that enters a tool."""
        attributes = _about(claim.loaded.state) | {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool.name,
            "gen_ai.tool.type": "function" if tool.source is None else "extension",
            "gen_ai.tool.call.id": claim.step.call_id or "",
            "celeriac.tool.effect": tool.effect.value,
        }
        with self._span(f"execute_tool {tool.name}", attributes) as span:
            yield lambda outcome: _tell_input(span, outcome)

    def moved_on(self, before: SessionState, after: SessionState) -> None:
        """Write the root span of a turn that an outcome has ended."""
        turn = before.turn
        if turn is None or (after.turn is not None and after.turn.id == turn.id):
            return
        if not isinstance(self._provider.id_generator, TurnIds):
            return  # somebody else's provider would make it a trace of its own
        token = _planned.set(self._turn(before.session_id, turn.id))
        try:
            span = self._tracer.start_span(
                f"invoke_agent {before.agent}",
                context=Context(),
                start_time=turn.started_at * 1_000_000,
                attributes=_about(before)
                | {"gen_ai.operation.name": "invoke_agent", "celeriac.turn.id": turn.id},
            )
        finally:
            _planned.reset(token)
        # Both by the store's clock, or a wrong clock here would turn it around.
        span.end(max(after.updated_at, turn.started_at) * 1_000_000)

    def close(self) -> None:
        """Send what was not yet sent."""
        self._provider.force_flush(5_000)


def _turn_id(claim: Claim) -> str:
    """Return the turn that a step belongs to; a look-up for a call belongs to the call's."""
    if claim.request is not None:
        return claim.request.turn_id
    turn = claim.loaded.state.turn
    return turn.id if turn else claim.step.id


def _about(state: SessionState) -> _Attributes:
    return {"gen_ai.conversation.id": state.session_id, "gen_ai.agent.name": state.agent}


def _about_reply(reply: ModelReply | ModelInterrupted) -> _Attributes:
    if isinstance(reply, ModelInterrupted):
        return {"celeriac.interrupted": True}
    found: dict[str, str | int | float | tuple[str, ...] | None] = {
        "gen_ai.response.model": reply.reported_model or reply.model,
        "gen_ai.response.finish_reasons": (reply.finish_reason,) if reply.finish_reason else None,
        "celeriac.first_token_ms": reply.first_token_ms,
        **_about_usage(reply.usage),
    }
    return {name: value for name, value in found.items() if value is not None}


def _about_usage(usage: Usage) -> Mapping[str, int | float | None]:
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        "celeriac.cost_usd": usage.cost_usd,
    }


def _tell_input(span: Span, outcome: Input) -> None:
    span.set_attribute("celeriac.outcome", type(outcome).__name__)
    if isinstance(outcome, StepFailed):
        _failed(span, outcome.kind.value if outcome.kind else "attempt_failed")
        if outcome.usage is not None:
            used = _about_usage(outcome.usage)
            span.set_attributes({k: v for k, v in used.items() if v is not None})
    elif isinstance(outcome, ToolEnded) and not outcome.succeeded:
        _failed(span, "tool_failed")


def _failed(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))
