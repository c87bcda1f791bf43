"""When a framework's snapshot is given back, and with which results."""

from __future__ import annotations

import pytest

from celeriac.connectors.built_in_loop import BuiltInLoop
from celeriac.connectors.scripted_model import ScriptedModel
from celeriac.sessions.built_in import BuiltInTool
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.definition import AgentDefinition
from celeriac.sessions.errors import DefinitionError
from celeriac.sessions.harness import (
    SNAPSHOT_MAX_BYTES,
    ModelStepResult,
    read_snapshot,
    step_context,
    write_snapshot,
)
from celeriac.sessions.messages import CallReference, Message, Role
from celeriac.sessions.model import ModelReply
from tests.unit.invariants import request_of


class Framework(BuiltInLoop):
    name = "some-framework"
    version = "1.2"

    def __init__(self) -> None:
        super().__init__(ScriptedModel([]))


class NextVersion(Framework):
    version = "1.3"


def a_turn() -> list[Message]:
    calls = tuple(
        CallReference(id=ours, tool="look", arguments="{}", provider_id=theirs)
        for ours, theirs in (("call_a", "p1"), ("call_b", None))
    )
    return [
        Message(seq=0, role=Role.USER, text="hi", created_at=1),
        Message(seq=1, role=Role.ASSISTANT, calls=calls, created_at=1),
        Message(seq=2, role=Role.TOOL, call_id="call_a", tool="look", text="0",
                status=CallStatus.SUCCEEDED, created_at=1),
        Message(seq=3, role=Role.TOOL, call_id="call_b", tool="look", text="No.",
                status=CallStatus.REJECTED, created_at=1),
    ]  # fmt: skip


def kept() -> str:
    reply = ModelStepResult(text="", snapshot={"at": 1})
    text = write_snapshot(Framework(), reply, ["call_a", "call_b"])
    assert text
    return text


def test_a_snapshot_comes_back_with_the_results_of_all_its_calls() -> None:
    context = step_context(Framework(), request_of(a_turn()), read_snapshot(kept()))
    assert context.snapshot == {"at": 1}
    assert context.results is not None
    found = [(one.provider_id, one.call_id, one.status, one.text) for one in context.results]
    assert found == [
        ("p1", "call_a", CallStatus.SUCCEEDED, "0"),
        ("call_b", "call_b", CallStatus.REJECTED, "No."),
    ]


def test_one_of_another_version_or_none_at_all_is_not_given() -> None:
    for text in (kept(), None, "", "{}", "[1", "3"):
        context = step_context(NextVersion(), request_of(a_turn()), read_snapshot(text))
        assert (context.snapshot, context.results) == (None, None)


def test_after_anything_else_than_its_results_the_conversation_counts() -> None:
    turn = a_turn()
    steered = [*turn, Message(seq=4, role=Role.USER, text="stop", created_at=1)]
    summary = Message(seq=4, role=Role.SUMMARY, text="So far.", created_at=1)
    for messages in (steered, [summary, *turn[1:]], turn[:1]):
        context = step_context(Framework(), request_of(messages), read_snapshot(kept()))
        assert (context.snapshot, context.results) == ({"at": 1}, None)


def test_what_is_too_large_is_deleted_and_what_has_none_leaves_it() -> None:
    large = ModelStepResult(text="", snapshot="x" * SNAPSHOT_MAX_BYTES)
    assert write_snapshot(Framework(), large, []) == ""
    assert write_snapshot(Framework(), ModelStepResult(text=""), []) == ""
    assert write_snapshot(Framework(), ModelReply(text=""), []) is None


def test_what_only_our_own_loop_has_is_refused() -> None:
    with pytest.raises(DefinitionError, match="built_in_tools"):
        AgentDefinition(
            name="a",
            instructions="",
            harness=Framework(),
            built_in_tools=frozenset({BuiltInTool.ASK_USER}),
        )
