"""Traces: one for each turn, whichever workers run its steps; usage and names, and no texts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import redis
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from celeriac.connectors.scripted_model import Script, ScriptedModel
from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.definition import AgentDefinition
from celeriac.sessions.errors import ConfigurationError, ToolFailed
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.inputs import MessageSent
from celeriac.sessions.messages import Usage
from celeriac.sessions.model import ModelCall, ModelError, ModelReply
from celeriac.sessions.settings import Settings
from celeriac.sessions.state import StepName
from celeriac.sessions.tools import tool
from celeriac.tasks import step as step_module, tracing
from celeriac.tasks.call_tool import call_tool
from celeriac.tasks.otel import OtelTracing, TurnIds, turn_span_context
from celeriac.tasks.run_model import run_model
from celeriac.tasks.runtime import Runtime

SECRET_TEXT = "the customer is called Rosalind"
USAGE = Usage(input_tokens=12, output_tokens=3, cached_tokens=4, cost_usd=0.25)
seen_in_tools: list[int] = []


@tool(effect=ToolEffect.READ)
async def look(name: str) -> str:
    """Look on the loop."""
    seen_in_tools.append(get_current_span().get_span_context().span_id)
    return f"{name} was seen"


@tool(effect=ToolEffect.READ, timeout_seconds=30)
def look_in_thread(name: str) -> str:
    """Look in a thread of its own."""
    seen_in_tools.append(get_current_span().get_span_context().span_id)
    raise ToolFailed(f"{name} is nowhere")


def agent(*script: Script) -> AgentDefinition:
    return AgentDefinition(
        name="desk",
        instructions=SECRET_TEXT,
        models=["openai/gpt-x"],
        model_clients={"openai/gpt-x": ScriptedModel(script)},
        tools=[look, look_in_thread],
    )


@dataclass
class Worker:
    """A worker of this process, with the spans that it wrote."""

    here: Runtime
    spans: InMemorySpanExporter


Workers = Callable[..., list[Worker]]


@pytest.fixture
def make_workers(
    settings: Settings, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workers]:
    assert redis_client.ping()
    made: list[Worker] = []

    def make(definition: AgentDefinition, sampler: Sampler | None = None) -> list[Worker]:
        for name in ("w1", "w2"):
            provider = TracerProvider(id_generator=TurnIds(), sampler=sampler)
            spans = InMemorySpanExporter()
            provider.add_span_processor(SimpleSpanProcessor(spans))
            here = Runtime(settings, {"desk": definition}, name)
            here.tracing = OtelTracing(provider)
            made.append(Worker(here, spans))
        return made

    seen_in_tools.clear()
    yield make
    for worker in made:
        worker.here.life.end()
    monkeypatch.undo()


def run_turn(
    workers: list[Worker], monkeypatch: pytest.MonkeyPatch, text: str = SECRET_TEXT
) -> str:
    """Run a turn, each step by another worker than the one before."""
    store = workers[0].here.store
    session_id = "ses_" + "0" * 24
    store.create(session_id, "desk", "openai/gpt-x", MessageSent("m1", text))
    number = 0
    while steps := store.load(session_id).state.steps:
        worker = workers[number % 2]
        monkeypatch.setattr(step_module, "runtime", lambda worker=worker: worker.here)
        step = steps[0]
        run = run_model if step.name is StepName.RUN_MODEL else call_tool
        run.run(session_id, step.id, step.call_id)
        number += 1
    return session_id


def spans_of(workers: list[Worker]) -> list[ReadableSpan]:
    found = [span for worker in workers for span in worker.spans.get_finished_spans()]
    return sorted(found, key=lambda span: span.start_time or 0)


def named(spans: list[ReadableSpan], name: str) -> list[ReadableSpan]:
    return [span for span in spans if span.name == name]


def facts(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


CALLS = ModelReply(
    text=SECRET_TEXT,
    calls=[
        ModelCall("look", '{"name": "Rosalind"}'),
        ModelCall("look_in_thread", '{"name": "Rosalind"}'),
    ],
    usage=USAGE,
    finish_reason="tool_calls",
    reported_model="gpt-x-2026",
)
ANSWER = ModelReply(text=SECRET_TEXT, usage=USAGE, finish_reason="stop")


def test_a_turn_is_one_trace_over_several_workers(
    make_workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = make_workers(agent(CALLS, ANSWER))
    session_id = run_turn(workers, monkeypatch)
    spans = spans_of(workers)
    root_ids = turn_span_context(session_id, "t1")

    assert {span.context.trace_id for span in spans if span.context} == {root_ids.trace_id}
    (root,) = named(spans, "invoke_agent desk")
    assert root.context is not None
    assert (root.context.span_id, root.parent) == (root_ids.span_id, None)
    steps = [*named(spans, "RunModel"), *named(spans, "CallTool")]
    assert len(steps) == 4
    assert {step.parent.span_id for step in steps if step.parent} == {root_ids.span_id}
    assert {facts(step)["celeriac.worker"] for step in steps} == {w.here.owner for w in workers}
    assert len({span.context.span_id for span in spans if span.context}) == len(spans)


def test_model_and_tool_calls_are_named_by_the_conventions_with_usage(
    make_workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = make_workers(agent(CALLS, ANSWER))
    session_id = run_turn(workers, monkeypatch)
    spans = spans_of(workers)

    chat = named(spans, "chat gpt-x")[0]
    assert chat.kind is SpanKind.CLIENT
    about = facts(chat)
    assert about.pop("celeriac.first_token_ms", 0) is not None
    assert about == {
        "gen_ai.conversation.id": session_id,
        "gen_ai.agent.name": "desk",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-x",
        "gen_ai.request.stream": True,
        "gen_ai.response.model": "gpt-x-2026",
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "celeriac.cost_usd": 0.25,
    }
    (looked,) = named(spans, "execute_tool look")
    assert facts(looked)["gen_ai.tool.call.id"] == facts_of_call(workers, session_id)[0]
    assert looked.status.status_code is StatusCode.UNSET
    (failed,) = named(spans, "execute_tool look_in_thread")
    assert facts(failed)["error.type"] == "tool_failed"
    assert failed.status.status_code is StatusCode.ERROR
    # What a tool traces itself, on the loop or in its thread, is below its span.
    assert [span.context.span_id for span in (looked, failed) if span.context] == seen_in_tools


def facts_of_call(workers: list[Worker], session_id: str) -> list[str]:
    page = workers[0].here.store.records.messages(session_id, None, 10)
    return [call.id for message in page.messages for call in message.calls]


def test_no_text_argument_result_or_error_is_in_a_span(
    make_workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = ModelError(f"{SECRET_TEXT} is too long", retryable=False, kind=FailureKind.BAD_REQUEST)
    workers = make_workers(agent(CALLS, broken))
    run_turn(workers, monkeypatch)
    spans = spans_of(workers)

    assert facts(named(spans, "chat gpt-x")[1])["error.type"] == "bad_request"
    assert facts(named(spans, "RunModel")[1])["error.type"] == "bad_request"
    written = "".join(span.to_json() for span in spans)
    for word in ("Rosalind", "customer", "nowhere"):
        assert word not in written


@pytest.mark.parametrize(
    "sampler", [ALWAYS_OFF, ParentBased(TraceIdRatioBased(0.0))], ids=["off", "ratio"]
)
def test_a_turn_that_is_not_sampled_writes_no_span(
    make_workers: Workers, monkeypatch: pytest.MonkeyPatch, sampler: Sampler
) -> None:
    workers = make_workers(agent(ANSWER), sampler)
    run_turn(workers, monkeypatch)
    assert spans_of(workers) == []


def test_without_the_setting_nothing_of_it_is_imported() -> None:
    # redis-py imports the SDK by itself where it is installed.
    program = (
        "import sys, celeriac.tasks.run_model, celeriac.tasks.call_tool, celeriac.tasks.worker;"
        "from celeriac.tasks.tracing import open_tracing; from celeriac.sessions.settings import Settings;"
        "print(type(open_tracing(Settings())).__name__,"
        " 'celeriac.tasks.otel' in sys.modules, 'opentelemetry.exporter' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["NoTracing", "False", "False"]


def test_a_worker_that_shall_trace_without_the_extra_says_what_to_install(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = settings.model_copy(update={"otel": True})
    tracing.check_tracing(wanted)
    monkeypatch.setattr(tracing, "find_spec", lambda _: None)
    tracing.check_tracing(settings)
    with pytest.raises(ConfigurationError, match=r"celeriac\[otel\]"):
        tracing.check_tracing(wanted)
