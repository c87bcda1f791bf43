"""The scripted model and the history validator behind it."""

from __future__ import annotations

import pytest

from celeriac.connectors.history import HistoryError, problems_of
from celeriac.connectors.scripted_model import Scripted, ScriptedModel
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.model import ModelError, ModelReply, ModelRequest, TextDelta
from tests.connectors.requests import (
    assistant,
    call,
    collect,
    named_tools,
    notice,
    reply_of,
    request,
    result,
    user,
)


def test_replies_come_in_order_and_requests_are_recorded() -> None:
    def follow(asked: ModelRequest) -> str:
        return f"after {len(asked.messages)}"

    model = ScriptedModel(["one", ModelReply(text="two"), follow])
    texts = [reply_of(collect(model.stream(request(user("hi"))))).text for _ in range(3)]
    assert texts == ["one", "two", "after 1"]
    assert len(model.requests) == 3


def test_an_exception_breaks_the_stream_after_its_deltas() -> None:
    model = ScriptedModel(
        [Scripted(ModelError("cut", retryable=True), deltas=[TextDelta("Hel")]), "Hello"]
    )
    with pytest.raises(ModelError, match="cut"):
        collect(model.stream(request(user("hi"))))
    assert reply_of(collect(model.stream(request(user("hi"))))).text == "Hello"


def test_an_ended_script_fails_or_repeats() -> None:
    with pytest.raises(ModelError, match="no reply for request 1"):
        collect(ScriptedModel([]).stream(request(user("hi"))))
    model = ScriptedModel(["again"], repeat_last=True)
    for _ in range(3):
        assert reply_of(collect(model.stream(request(user("hi"))))).text == "again"


def test_a_malformed_request_is_refused_and_remembered() -> None:
    model = ScriptedModel(["never"])
    with pytest.raises(HistoryError):
        collect(model.stream(request(user(" "))))
    assert model.problems == ["message 0 (user) is empty"]


SUMMARY = Message(seq=9, role=Role.SUMMARY, text="It began.", covers_before=4, created_at=0)
WELL_FORMED: list[list[Message]] = [
    [user("hi")],
    [user("hi"), assistant("hello"), user("again")],
    [
        user("hi"),
        assistant("", call("a"), call("b")),
        result("a", "look_up", ""),
        result("b", "look_up", "é 🙂 \\u0000"),
    ],
    [user("hi"), assistant("", call("a")), result("a", "look_up", "x"), notice("y"), user("z")],
    [SUMMARY, assistant("", call("a")), result("a", "look_up", "x")],
]


@pytest.mark.parametrize("messages", WELL_FORMED)
def test_a_well_formed_history_has_no_problems(messages: list[Message]) -> None:
    assert problems_of(request(*messages)) == []


MALFORMED: list[tuple[str, list[Message]]] = [
    ("no messages", []),
    ("ends before the results of ['a']", [user("x"), assistant("", call("a"))]),
    ("no call awaits", [user("x"), result("a", "t", "r")]),
    (
        "no call awaits",
        [assistant("", call("a")), result("a", "t", "1"), result("a", "t", "2")],
    ),
    (
        "the next is 'a'",
        [assistant("", call("a"), call("b")), result("b", "t", "1"), result("a", "t", "2")],
    ),
    (
        "comes before the results",
        [assistant("", call("a")), notice("between"), result("a", "t", "1")],
    ),
    (
        "used 2 times",
        [
            assistant("", call("a")),
            result("a", "t", "1"),
            assistant("", call("a")),
            result("a", "t", "2"),
        ],
    ),
    ("no Call ID", [assistant("", call("x" * 41)), result("x" * 41, "t", "1")]),
    ("no Call ID", [assistant("", call("a.b")), result("a.b", "t", "1")]),
    ("is empty", [user("x"), assistant("")]),
    ("message 1 is a summary", [user("x"), SUMMARY, user("y")]),
    ("has output items", [user("x").model_copy(update={"items": ({"type": "reasoning"},)})]),
    ("lone surrogate", [user("a\ud83d")]),
    ("lone surrogate", [assistant("", call("a", arguments="\x00")), result("a", "t", "1")]),
    (
        "lone surrogate",
        [Message(seq=0, role=Role.ASSISTANT, text="x", created_at=0, items=({"\ud83d": ["y"]},))],
    ),
    (
        "no strict JSON",
        [Message(seq=0, role=Role.ASSISTANT, text="x", created_at=0, items=(float("nan"),))],
    ),
]


@pytest.mark.parametrize(("problem", "messages"), MALFORMED)
def test_a_malformed_history_is_named(problem: str, messages: list[Message]) -> None:
    found = problems_of(request(*messages))
    assert any(problem in line for line in found), found


def test_a_tool_offered_twice_and_bad_instructions_are_named() -> None:
    found = problems_of(request(user("x"), tools=named_tools("a", "a"), instructions="\x00"))
    assert len(found) == 2
