"""What models and tools write that broke others: ids that come twice, and text that is no text."""

from __future__ import annotations

import asyncio
import json

import pytest
from pydantic import JsonValue

from celeriac.connectors.history import problems_of
from celeriac.connectors.toolset import Toolset, build_toolset
from celeriac.sessions.calls import CallStatus, DecisionVerb, ToolEffect
from celeriac.sessions.client import SessionClient
from celeriac.sessions.definition import AgentDefinition
from celeriac.sessions.ids import CALL_ID_PATTERN
from celeriac.sessions.inputs import PlannedCall
from celeriac.sessions.jsonsafe import to_json_value
from celeriac.sessions.messages import Message
from celeriac.sessions.model import ModelCall, ModelRequest
from celeriac.sessions.state import StepName
from celeriac.sessions.store.sessions import SessionStore
from celeriac.sessions.tools import tool
from tests.store.driving import answer, claim, new_session, open_step, respond, tool_ended


@tool(effect=ToolEffect.READ)
def look_up(order: int) -> int:
    """Look an order up."""
    return order


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True)
def cancel_item(item: int) -> int:
    """Cancel an item."""
    return item


@tool(effect=ToolEffect.READ)
def echo(text: str) -> str:
    """Give a text back."""
    return text


@pytest.fixture(scope="module")
def tools() -> Toolset:
    agent = AgentDefinition(name="desk", instructions="", tools=[look_up, cancel_item, echo])
    return asyncio.run(build_toolset(agent))


def plan(tools: Toolset, name: str, arguments: str, provider_id: str | None) -> PlannedCall:
    made = tools.plan(ModelCall(name, arguments, provider_id), "t1", 1)
    assert made.refused is None
    return made


def assert_sendable(messages: tuple[Message, ...] | list[Message]) -> None:
    """The strictest provider takes this history, in JSON that is UTF-8."""
    request = ModelRequest("demo", "", messages, (), "ses_x", "t1", 1, 1)
    assert problems_of(request) == []
    for one in messages:
        raw = json.dumps(one.model_dump(mode="json"), ensure_ascii=False)
        assert "\x00" not in raw.encode().decode()


def test_mh_06_ids_that_a_provider_uses_again_are_never_trusted(
    session_client: SessionClient, session_store: SessionStore, tools: Toolset
) -> None:
    sid = new_session(session_store)
    first = plan(tools, "look_up", '{"order": 1}', "call_0")
    respond(session_store, sid, first)
    tool_ended(session_store, claim(session_store, sid), "one")
    answer(session_store, sid)

    session_client.send_message(sid, "cancel it")
    second = plan(tools, "cancel_item", '{"item": 2}', "call_0")
    respond(session_store, sid, second)
    assert open_step(session_store, sid).name is StepName.AWAIT_TOOL_APPROVAL
    assert session_client.call(sid, first.request.id).result == "one"
    session_client.decide(sid, second.request.id, DecisionVerb.APPROVE, by="Ana")
    tool_ended(session_store, claim(session_store, sid), "two")
    answer(session_store, sid)

    session_client.send_message(sid, "again")
    twins = [plan(tools, "cancel_item", '{"item": 3}', "call_0") for _ in range(2)]
    respond(session_store, sid, *twins)
    asking = [call.id for call in session_client.snapshot(sid).calls if not call.status.settled]
    assert asking == [call.request.id for call in twins], "no earlier approval counts"
    session_client.decide(sid, asking[0], DecisionVerb.APPROVE, by="Ana")
    session_client.decide(sid, asking[1], DecisionVerb.REJECT, by="Ana")
    tool_ended(session_store, claim(session_store, sid), "three")
    answer(session_store, sid)

    session_client.send_message(sid, "and now?")
    nameless = [plan(tools, "look_up", '{"order": 4}', None) for _ in range(2)]
    respond(session_store, sid, *nameless)
    for result in ("four", "five"):
        tool_ended(session_store, claim(session_store, sid), result)
    answer(session_store, sid)

    shown = session_client.snapshot(sid)
    assert [(call.result, call.status) for call in shown.calls] == [
        ("one", CallStatus.SUCCEEDED),
        ("two", CallStatus.SUCCEEDED),
        ("three", CallStatus.SUCCEEDED),
        (None, CallStatus.REJECTED),
        ("four", CallStatus.SUCCEEDED),
        ("five", CallStatus.SUCCEEDED),
    ]
    ids = [call.id for call in shown.calls]
    assert len(set(ids)) == 6
    assert all(CALL_ID_PATTERN.fullmatch(one) for one in ids)
    assert_sendable(shown.messages)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("ok\ud83d", "ok\ufffd"),
        ("a\x00b", "a\ufffdb"),
        ("say \\u0000 aloud", "say \\u0000 aloud"),
        ("\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"), "\U0001f600"),
    ],
    ids=["lone surrogate", "NUL", "visible escape", "emoji"],
)
def test_mh_08_text_of_every_origin_is_stored_so_that_everything_can_read_it(
    session_client: SessionClient,
    session_store: SessionStore,
    tools: Toolset,
    given: str,
    stored: str,
) -> None:
    sid = new_session(session_store)
    call = plan(tools, "echo", json.dumps({"text": given}), given)
    assert call.request.arguments == {"text": stored}
    respond(session_store, sid, call)
    value: JsonValue = to_json_value({given: [given], "text": given})
    tool_ended(session_store, claim(session_store, sid), value)
    answer(session_store, sid)
    session_client.send_message(sid, given)

    shown = session_client.snapshot(sid)

    assert shown.messages[-1].text == stored
    assert shown.calls[0].result == {stored: [stored], "text": stored}
    assert json.loads(shown.messages[2].text) == shown.calls[0].result
    assert_sendable(shown.messages)
    assert_sendable(list(claim(session_store, sid).messages))
    assert shown.model_dump_json().encode()
