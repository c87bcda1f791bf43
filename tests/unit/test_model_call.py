"""How a step reads a streamed response: small batches for pages, times, and what a failed attempt used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest

from celeriac.connectors.scripted_model import Scripted, ScriptedModel
from celeriac.sessions.definition import AgentDefinition
from celeriac.sessions.events import EventType, LiveEvent
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.inputs import ModelInterrupted
from celeriac.sessions.messages import Usage
from celeriac.sessions.model import (
    ModelClient,
    ModelError,
    ModelReply,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
)
from celeriac.sessions.state import ControlVerb
from celeriac.sessions.store.loaded import Loaded
from celeriac.sessions.store.sessions import Claim
from celeriac.tasks.loop import LoopThread
from celeriac.tasks.model_call import read_step
from celeriac.tasks.runtime import Runtime
from celeriac.tasks.tracing import NoTracing
from tests.unit.invariants import request_of
from tests.unit.world import World

KEY = "9f8E7d6C5b4A3210zyXwVuTs"
Delta = TextDelta | ReasoningDelta


@dataclass
class Reader:
    """A step that reads from a client, with a store that keeps what is published."""

    loop: LoopThread
    world: World
    published: list[LiveEvent] = field(default_factory=list)

    def publish(self, _: str, events: Sequence[LiveEvent]) -> None:
        self.published += events

    def load(self, _: str) -> Loaded:
        return Loaded(self.world.state, "1", 1)

    def read(self, client: ModelClient) -> ModelReply | ModelInterrupted:
        here = cast("Runtime", SimpleNamespace(store=self, loop=self.loop, tracing=NoTracing()))
        step = self.world.state.steps[0]
        claim = Claim(self.load(""), step, step.timing.token, None, self.world.log)
        agent = AgentDefinition(
            name="a", instructions="", models=["demo"], model_clients={"demo": client}
        )
        return read_step(here, claim, agent, request_of(self.world.log))

    def error(self, client: ModelClient) -> ModelError:
        with pytest.raises(ModelError) as failure:
            self.read(client)
        return failure.value

    def shown(self, kind: EventType) -> str:
        return "".join(str(one.data["text"]) for one in self.published if one.type is kind)


@pytest.fixture(scope="module")
def loop() -> LoopThread:
    return LoopThread()


@pytest.fixture
def reader(loop: LoopThread) -> Reader:
    world = World()
    world.send("hello")
    world.start_model()
    return Reader(loop, world)


DELTAS: list[Delta] = [ReasoningDelta("Hm"), ReasoningDelta(".")]
DELTAS += [TextDelta(f"{number} ") for number in range(300)]
TEXT = "".join(delta.text for delta in DELTAS[2:])


def test_deltas_are_published_in_few_batches_and_none_is_lost(reader: Reader) -> None:
    reply = reader.read(ScriptedModel([Scripted(TEXT, DELTAS)]))
    assert isinstance(reply, ModelReply)
    assert reader.shown(EventType.TEXT_DELTA) == TEXT
    assert reader.shown(EventType.REASONING_DELTA) == "Hm."
    assert len(reader.published) < len(DELTAS) / 3
    assert {(one.data["step_id"], one.data["attempt"]) for one in reader.published} == {
        (reader.world.state.steps[0].id, 1)
    }


def test_a_reply_says_how_long_it_took(reader: Reader) -> None:
    reply = reader.read(ScriptedModel([Scripted("Hi", [TextDelta("Hi")])]))
    assert isinstance(reply, ModelReply)
    assert reply.first_token_ms is not None
    assert reply.latency_ms is not None
    assert 0 <= reply.first_token_ms <= reply.latency_ms
    silent = reader.read(ScriptedModel([ModelReply(text="")]))
    assert isinstance(silent, ModelReply)
    assert silent.first_token_ms is None


def test_an_attempt_that_began_to_stream_used_something_and_one_that_did_not_nothing(
    reader: Reader,
) -> None:
    cut = ModelError("cut", retryable=True)
    assert reader.error(ScriptedModel([Scripted(cut, DELTAS)])).usage == Usage()
    busy = ModelError("busy", retryable=True)
    assert reader.error(ScriptedModel([busy])).usage is None
    known = Usage(input_tokens=3)
    cut = ModelError("cut", retryable=True, usage=known)
    assert reader.error(ScriptedModel([Scripted(cut, DELTAS)])).usage is known


class Endless:
    """Streams one text and then nothing more."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelReply]:
        yield TextDelta("So far")
        await asyncio.Event().wait()


def test_no_end_in_time_is_a_timeout_that_used_something(reader: Reader) -> None:
    error = reader.error(Endless())
    assert (error.kind, error.retryable) == (FailureKind.TIMEOUT, True)
    assert error.usage == Usage()


def test_a_stopped_turn_keeps_what_was_shown(reader: Reader) -> None:
    reader.world.cancel()
    control = reader.world.turn.control
    assert control is not None
    assert control.verb is ControlVerb.CANCEL
    interrupted = reader.read(Endless())
    assert isinstance(interrupted, ModelInterrupted)
    assert interrupted.text == "So far"


def test_what_a_client_of_somebody_elses_raises_holds_no_key(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INHOUSE_API_KEY", KEY)
    error = reader.error(ScriptedModel([ValueError(f"GET /v1?key=abc123&k={KEY} gave 500")]))
    assert str(error) == "ValueError: GET /v1?key=[removed]&k=[removed] gave 500"
    assert error.retryable
