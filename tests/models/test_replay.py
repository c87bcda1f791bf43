"""MH-12: what a model thought goes back as it came, byte for byte, whatever happens to workers and history.

The model server is not ours; with thinking on it refuses a request whose signed thinking is missing. What
went over the wire is compared, not what we believe to have sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import pytest

from celeriac.sessions.messages import Role
from tests.models.aimock import Aimock, Json
from tests.models.dialects import ANTHROPIC, RESPONSES, Dialect, environment
from tests.models.relay import Exchange, running_relay
from tests.node_tools import needs_node_tools
from tests.tasks.cluster import PATIENCE, Cluster
from tests.waiting import wait_until

pytestmark = [
    needs_node_tools,
    pytest.mark.skipif(find_spec("litellm") is None, reason="needs the extra litellm"),
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("replay"),
]

THINKING = (RESPONSES, ANTHROPIC)
THOUGHT: Json = {
    "reasoning": "Two looks are needed — naïve, but “sure”. \\u0000 <b>",
    "reasoningSignature": "EqQBCkYIBxgCKkBzaWduYXR1cmU+Lz09",
    "redactedThinking": ["ZW5jcnlwdGVkLXRoaW5raW5nLWRhdGE="],
}
FULL = {"input_tokens": 19_000, "output_tokens": 10, "prompt_tokens": 19_000}


def pair(turn: int) -> list[Json]:
    """Two calls at once, under ids that no other turn has."""
    return [
        {"id": f"call_left{turn}", "name": "look_up", "arguments": '{"item":"trowel"}'},
        {"id": f"call_right{turn}", "name": "look_up", "arguments": '{"item":"seeds"}'},
    ]


@pytest.fixture(scope="module")
def over_the_wire(
    running_aimock: Aimock, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[Dialect, Sequence[Exchange]]]:
    """Two conversations of three turns, one in each dialect: two models and two workers, one after the other."""
    running_aimock.reset()
    for dialect in THINKING:
        running_aimock.in_turn(
            {**THOUGHT, "content": "Let me look.", "toolCalls": pair(1)},
            {**THOUGHT, "content": "Three of each."},
            {**THOUGHT, "toolCalls": pair(2)},
            {**THOUGHT, "content": "Still three.", "usage": FULL},
            {"content": "The user asked twice for trowels and seeds; there are three of each."},
            {**THOUGHT, "toolCalls": pair(3)},
            {"content": "Three, I said."},
            model=dialect.model.partition("/")[2],
        )
    agents = str(Path(__file__).with_name("thinking_agents.py"))
    with (
        running_relay(running_aimock.url) as relay,
        Cluster(
            tmp_path_factory.mktemp("thinking"), agents=agents, env=environment(relay.url)
        ) as cluster,
    ):
        cluster.start_worker()
        client = cluster.client
        wait_until(client.agents, "a worker has told its agents", timeout_seconds=PATIENCE)
        ids = [
            client.create_session(
                agent="thinker", message="Trowels and seeds?", model=dialect.model
            ).session_id
            for dialect in THINKING
        ]
        assert [cluster.answer(one) for one in ids] == ["Three of each."] * 2
        cluster.kill_workers()
        cluster.start_worker()
        for answer in ("Still three.", "Three, I said."):
            for one in ids:
                client.send_message(one, "And now?")
            assert [cluster.answer(one) for one in ids] == [answer] * 2
        for one in ids:
            roles = [message.role for message in cluster.snapshot(one).messages]
            assert roles.count(Role.SUMMARY) == 1
        assert set(running_aimock.statuses()) == {200}, "the server refused a request"
        yield {
            dialect: [one for one in relay.exchanges if one.path == dialect.path]
            for dialect in THINKING
        }


def made_by(exchange: Exchange) -> list[str]:
    """What the model made in one response, item by item, as JSON."""
    made = _responses_items if "response" in exchange.path else _anthropic_blocks
    return [json.dumps(item) for item in made(exchange)]


def _responses_items(exchange: Exchange) -> list[object]:
    done = exchange.events[-1]
    assert done["type"] == "response.completed"
    return cast("list[object]", cast("dict[str, object]", done["response"])["output"])


def _anthropic_blocks(exchange: Exchange) -> list[object]:
    blocks: list[dict[str, object]] = []
    for event in exchange.events:
        if event["type"] == "content_block_start":
            blocks.append(dict(cast("dict[str, object]", event["content_block"])))
        if event["type"] == "content_block_delta":
            delta = cast("dict[str, str]", event["delta"])
            kind, block = delta["type"], blocks[-1]
            name = {
                "text_delta": "text",
                "thinking_delta": "thinking",
                "signature_delta": "signature",
            }
            if kind == "input_json_delta":
                block["_json"] = f"{block.get('_json', '')}{delta['partial_json']}"
            else:
                block[name[kind]] = f"{block.get(name[kind], '')}{delta[name[kind]]}"
    for block in blocks:
        if "_json" in block:
            block["input"] = json.loads(cast("str", block.pop("_json")))
    return list(blocks)


def sent_back(exchange: Exchange) -> list[list[str]]:
    """What of earlier responses a request holds: for each response its items in order, as JSON."""
    if "response" in exchange.path:
        items = cast("list[dict[str, object]]", exchange.request["input"])
        ours = {"function_call_output"}
        runs: list[list[str]] = [[]]
        for item in items:
            if item.get("role") == "user" or item.get("type") in ours:
                runs.append([])
            else:
                runs[-1].append(json.dumps(item))
        return [run for run in runs if run]
    messages = cast("list[dict[str, object]]", exchange.request["messages"])
    said = [
        cast("list[dict[str, object]]", one["content"])
        for one in messages
        if one["role"] == "assistant"
    ]
    return [[json.dumps(_unmarked(block)) for block in blocks] for blocks in said]


def _unmarked(block: dict[str, object]) -> dict[str, object]:
    """Without the mark that asks the provider to cache up to here; it is no part of the block."""
    return {name: value for name, value in block.items() if name != "cache_control"}


@pytest.mark.parametrize("dialect", THINKING, ids=lambda dialect: dialect.name)
def test_mh_12_what_a_model_made_goes_back_unchanged(
    over_the_wire: Mapping[Dialect, Sequence[Exchange]], dialect: Dialect
) -> None:
    exchanges = over_the_wire[dialect]
    made = [made_by(exchange) for exchange in exchanges]
    assert any("encrypted_content" in item or "signature" in item for item in made[0])
    assert len(made) == 7
    [summary] = [at for at, one in enumerate(exchanges) if "tools" not in one.request]
    assert summary == 4
    for at in range(1, summary):
        assert sent_back(exchanges[at]) == made[:at]
    # After the summary some responses are gone, but whole ones; none came back changed or in part.
    first, last = (sent_back(exchanges[at]) for at in (5, 6))
    assert len(first) < summary
    assert first == made[summary - len(first) : summary]
    assert last == [*first, made[5]]
