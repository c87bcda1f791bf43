"""Any history, cut anywhere and sent to any model, is a request that the strictest provider takes."""

from __future__ import annotations

import json
from typing import Any, cast

from hypothesis import HealthCheck, given, settings, strategies as st
from pydantic import JsonValue

from celeriac.connectors.chat_messages import chat_messages
from celeriac.connectors.responses_items import input_items
from celeriac.connectors.wire_ids import wire_ids
from celeriac.sessions.messages import CallReference, ItemsApi, Message, Role
from celeriac.sessions.model import ModelRequest
from tests.connectors.requests import request, user
from tests.connectors.responses import called, reasoning, said
from tests.connectors.wire import wire_problems

MODELS = ("openai/gpt-5", "openai/gpt-5-mini", "anthropic/claude-sonnet-4-5", "gemini/gemini-3-pro")
APIS: tuple[ItemsApi, ...] = ("chat", "responses")
# Reused, missing, of the form of our own, hostile and very long ones.
THEIRS = st.sampled_from(
    [
        None,
        "",
        "0",
        "call_0",
        "call_1",
        "a b",
        "toolu_1",
        "é",
        "x" * 40,
        "call_a__thought__" + "A" * 900,
    ]
)


def respond(draw: st.DrawFn, seq: int, turn: int) -> list[Message]:
    """A response as some model made it over some API, and its results."""
    model, api = draw(st.sampled_from(MODELS)), draw(st.sampled_from(APIS))
    theirs = draw(st.lists(THEIRS, max_size=3))
    text = draw(st.sampled_from(["", "I will look."])) if theirs else "Done."
    calls = tuple(
        CallReference(id=f"call_{seq}_{n}", tool="look_up", arguments='{"a":  1}', provider_id=one)
        for n, one in enumerate(theirs)
    )
    if api == "responses":
        items: list[JsonValue] = [reasoning(seq)] if draw(st.booleans()) else []
        items += [said(text)] if text else []
        items += [called(one or "", '{"a":  1}') for one in theirs]
    else:
        thinking: JsonValue = [{"type": "thinking", "thinking": "Hm.", "signature": f"sig{seq}"}]
        items = [{"role": "assistant", "content": text, "thinking_blocks": thinking}]
    message = Message(
        seq=seq,
        role=Role.ASSISTANT,
        text=text,
        calls=calls,
        items=tuple(items),
        items_api=api,
        model=model,
        created_at=0,
        turn_id=f"t{turn}",
    )
    results = [
        Message(seq=seq, role=Role.TOOL, call_id=c.id, tool=c.tool, text="found", created_at=0)
        for c in calls
    ]
    return [message, *results]


@st.composite
def requests(draw: st.DrawFn) -> ModelRequest:
    messages: list[Message] = []
    for turn in range(draw(st.integers(1, 4))):
        messages.append(user(f"message {turn}"))
        for _ in range(draw(st.integers(0, 3))):
            messages += respond(draw, len(messages), turn)
    messages.append(user("and now?"))
    starts = [at for at, one in enumerate(messages) if one.role is not Role.TOOL]
    cut = draw(st.sampled_from(starts))
    summary = [Message(seq=0, role=Role.SUMMARY, text="Earlier.", created_at=0)] if cut else []
    return request(*summary, *messages[cut:], model=draw(st.sampled_from(MODELS)))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests())
def test_any_history_is_well_formed_over_both_apis(asked: ModelRequest) -> None:
    assert wire_problems({"input": cast("list[Any]", input_items(asked))}) == []
    assert wire_problems({"messages": cast("list[Any]", chat_messages(asked, "openai"))}) == []


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests(), st.sampled_from(APIS))
def test_ids_are_unique_and_stay_while_the_history_grows(
    asked: ModelRequest, api: ItemsApi
) -> None:
    ids = wire_ids(asked.messages, asked.model, api)
    assert len(set(ids.values())) == len(ids)
    for at in range(len(asked.messages)):
        before = wire_ids(asked.messages[:at], asked.model, api)
        # What a later message claims can only be an id that looks like one of ours.
        changed = {ids[own] for own, sent in before.items() if ids[own] != sent}
        assert all(one.startswith("call_") for one in changed)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests())
def test_what_the_same_model_wrote_over_responses_goes_back_byte_for_byte(
    asked: ModelRequest,
) -> None:
    sent = json.dumps(input_items(asked))
    for message in asked.messages:
        if message.model == asked.model and message.items_api == "responses":
            for item in message.items:
                if isinstance(item, dict) and item["type"] != "function_call":
                    assert json.dumps(item) in sent
        elif message.items_api == "responses" and message.role is Role.ASSISTANT:
            assert f'"rs_{message.seq}"' not in sent


def _replayed(provider: str, **fields: JsonValue) -> dict[str, JsonValue]:
    item: JsonValue = {"role": "assistant", "content": "Hm.", **fields}
    message = Message(
        seq=0, role=Role.ASSISTANT, text="Hm.", items=(item,), model="m", created_at=0
    )
    return chat_messages(request(user("a"), message, user("b"), model="m"), provider)[2]


def test_reasoning_goes_back_in_the_clear_only_to_providers_that_want_it() -> None:
    assert _replayed("deepseek", reasoning_content="So.")["reasoning_content"] == "So."
    assert "reasoning_content" not in _replayed("openai", reasoning_content="So.")


def test_geminis_signatures_go_back_to_gemini_alone() -> None:
    signed: JsonValue = {"thought_signatures": ["c2ln"]}
    assert (
        _replayed("gemini", provider_specific_fields=signed)["provider_specific_fields"] == signed
    )
    assert "provider_specific_fields" not in _replayed("openai", provider_specific_fields=signed)
