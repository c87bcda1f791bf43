"""Models at a provider, from real workers: waits, killed workers, other models, and no key anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import pytest
import redis

from celeriac.sessions.failures import FailureKind
from celeriac.sessions.messages import Role
from celeriac.sessions.snapshot import StepRecord
from celeriac.sessions.state import StepName
from tests.connectors.chat_server import USAGE, ChatServer, Failure, Stream, chat_server, chunk
from tests.tasks.cluster import PATIENCE, Cluster
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("providers"),
    pytest.mark.skipif(find_spec("litellm") is None, reason="needs the extra litellm"),
]

KEY = "9f8E7d6C5b4A3210zyXwVuTs"
HELLO = [chunk({"role": "assistant", "content": "Hel"}), chunk({"content": "lo"})]
WHOLE = Stream([*HELLO, chunk(finish="stop"), chunk(usage=USAGE)])


@pytest.fixture(scope="module")
def provider() -> Iterator[ChatServer]:
    with chat_server() as server:
        yield server


@pytest.fixture(scope="module")
def cluster(provider: ChatServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    env = {"OPENAI_API_BASE": provider.url, "OPENAI_API_KEY": KEY}
    agents = str(Path(__file__).with_name("provider_agents.py"))
    with Cluster(tmp_path_factory.mktemp("providers"), agents=agents, env=env) as made:
        yield made


@pytest.fixture
def pair(cluster: Cluster, provider: ChatServer) -> Iterator[Cluster]:
    cluster.restore(2)
    provider.script[:] = provider.script[: len(provider.requests)]
    yield cluster
    assert provider.problems == []


def answers(provider: ChatServer, *script: Stream | Failure) -> int:
    """Let the provider answer so from now on; return how often it was asked before."""
    provider.script += script
    return len(provider.requests)


def model_steps(cluster: Cluster, session_id: str) -> list[StepRecord]:
    return [one for one in cluster.client.steps(session_id) if one.name is StepName.RUN_MODEL]


def test_ll_05_a_provider_that_asks_to_wait_is_not_asked_before(
    pair: Cluster, provider: ChatServer
) -> None:
    busy = Failure(429, "Rate limit reached", headers={"Retry-After": "2"})
    before = answers(provider, busy, Failure(503, headers={"retry-after-ms": "1500"}), WHOLE)
    session_id = pair.say("hello")
    assert pair.answer(session_id) == "Hello"
    times = provider.times[before:]
    assert len(times) == 3, "one request for each attempt"
    assert times[1] - times[0] >= 2
    assert times[2] - times[1] >= 1.5
    steps = model_steps(pair, session_id)
    assert [one.failure for one in steps] == [FailureKind.BUSY, FailureKind.UNAVAILABLE, None]
    assert steps[-1].usage == pair.snapshot(session_id).messages[-1].usage
    assert pair.snapshot(session_id).usage.model_calls == 1


def test_ll_05_at_most_three_requests_and_none_for_what_is_final(
    pair: Cluster, provider: ChatServer
) -> None:
    before = answers(provider, *[Failure(500)] * 3)
    session_id = pair.say("hello")
    notice = pair.idle(session_id).messages[-1]
    assert (notice.role, notice.failure) == (Role.NOTICE, FailureKind.UNAVAILABLE)
    assert len(provider.requests) == before + 3
    answers(provider, Failure(429, "no", code="insufficient_quota"))
    pair.client.send_message(session_id, "again")
    assert pair.idle(session_id).messages[-1].failure is FailureKind.QUOTA
    assert len(provider.requests) == before + 4
    hour = Failure(429, headers={"Retry-After": "3600"})
    answers(provider, hour)
    pair.client.send_message(session_id, "and again")
    assert "asks to wait 3600 s" in pair.idle(session_id).messages[-1].text
    assert len(provider.requests) == before + 5


def test_what_a_killed_worker_had_streamed_is_withdrawn(
    pair: Cluster, provider: ChatServer
) -> None:
    answers(provider, Stream(HELLO, hang=True), WHOLE)
    session_id = pair.say("hello")

    def told() -> list[str]:
        return [one.json for one in pair.client.events(session_id, after="0-0").events]

    streamed = '"text.delta"'
    wait_until(
        lambda: any(streamed in one for one in told()), "text comes", timeout_seconds=PATIENCE
    )
    pair.worker_of(session_id).kill()
    assert pair.answer(session_id) == "Hello"
    kinds = [one.split('"', 4)[3] for one in told()]
    assert "text.delta" in kinds[: kinds.index("text.withdrawn")]
    assert [one.status for one in model_steps(pair, session_id)] == ["lost", "succeeded"]


def test_another_model_is_asked_from_its_messages_turn_on(
    pair: Cluster, provider: ChatServer
) -> None:
    before = answers(provider, WHOLE, WHOLE)
    session_id = pair.say("hello")
    pair.idle(session_id)
    pair.client.send_message(session_id, "and now?", model="openai/gpt-4o")
    snapshot = pair.idle(session_id)
    assert snapshot.model == "openai/gpt-4o"
    assert [one["model"] for one in provider.requests[before:]] == ["gpt-4o-mini", "gpt-4o"]
    asked = [one.model for one in snapshot.messages if one.role is Role.ASSISTANT]
    assert asked == ["openai/gpt-4o-mini", "openai/gpt-4o"]


def stored(client: redis.Redis) -> str:
    """All that the store holds."""
    read: dict[bytes, Callable[[bytes], object]] = {
        b"string": client.get,
        b"hash": client.hgetall,
        b"list": lambda key: client.lrange(key, 0, -1),
        b"set": client.smembers,
        b"zset": lambda key: client.zrange(key, 0, -1),
        b"stream": client.xrange,
    }
    keys = cast("Iterator[bytes]", client.scan_iter())
    return "\n".join(f"{key!r} {read[cast('bytes', client.type(key))](key)!r}" for key in keys)


def test_no_key_is_in_the_store_in_events_or_in_logs(pair: Cluster, provider: ChatServer) -> None:
    told = f"Incorrect API key provided: {KEY}. (Authorization: Bearer {KEY}; ?key={KEY})"
    answers(
        provider,
        Failure(500, told),
        Stream([*HELLO, {"error": {"message": told}}]),
        Failure(401, told),
    )
    session_id = pair.say("hello")
    notice = pair.idle(session_id).messages[-1]
    assert notice.failure is FailureKind.AUTHENTICATION
    assert "Incorrect API key provided: [removed]" in notice.text
    held = stored(pair.redis)
    assert session_id in held
    assert KEY not in held
    for worker in pair.workers:
        assert KEY not in worker.output()
