"""Questions of `ask_user`: whatever a person answers becomes the result, once."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from celeriac.sessions.built_in import (
    MOST_CHOICES,
    BuiltInTool,
    parse_built_in,
    parse_choices,
)
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.errors import Conflict, NotFound, Refused
from celeriac.sessions.messages import Role
from celeriac.sessions.state import SessionStatus, StepName
from celeriac.sessions.tools import InvalidArguments
from celeriac.sessions.views import call_record, session_summary
from tests.unit.world import World, planned, question, timer


def asked() -> World:
    world = World()
    world.calling(question())
    return world


def code(world: World, answer: JsonValue = "x", call_id: str = "call_a") -> str | None:
    before = world.state
    with pytest.raises(Refused) as caught:
        world.answer(answer, call_id)
    assert world.state is before
    return caught.value.code


def test_a_question_waits_for_a_person_and_for_nothing_else() -> None:
    world = asked()
    assert world.steps == [StepName.AWAIT_QUESTION_ANSWER]
    assert world.looks == (SessionStatus.WAITING, None)
    assert world.call().status is CallStatus.AWAITING_ANSWER
    assert session_summary(world.state).waiting_for == "answer: ask_user"
    assert [step.name for step in world.sent] == [StepName.RUN_MODEL], "no worker hears of it"
    world.pass_time(400 * 24 * 3600 * 1000)
    assert not world.wake()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("blue", "blue"),
        (False, "false"),
        (True, "true"),
        (0, "0"),
        ("", "(The user gave an empty answer.)"),
        ({"size": 3, "colours": ["red"]}, '{"size":3,"colours":["red"]}'),
        ([], "[]"),
    ],
    ids=str,
)
def test_dh_02_every_answer_is_one(answer: JsonValue, text: str) -> None:
    world = asked()
    assert world.answer(answer)
    outcome = world.outcomes["call_a"]
    assert (outcome.status, outcome.answered_by) == (CallStatus.SUCCEEDED, "Ann")
    assert outcome.result == answer
    assert type(outcome.result) is type(answer)
    assert world.conversation[-1] == (Role.TOOL, text)
    assert world.steps == [StepName.RUN_MODEL], "the same turn goes on"
    assert world.turn.id == "t1"
    assert world.history[-2].status == "answered"


def test_dh_02_each_answer_settles_its_own_question() -> None:
    world = World()
    world.calling(question("call_a", "Sure?"), question("call_b", "How many?"))
    world.answer(False, "call_a")
    assert world.steps == [StepName.AWAIT_QUESTION_ANSWER]
    shown = [
        call_record(world.requests[c], world.outcomes.get(c), world.state)
        for c in ("call_a", "call_b")
    ]
    assert [one.status for one in shown] == [CallStatus.SUCCEEDED, CallStatus.AWAITING_ANSWER]
    assert shown[0].result is False
    assert code(world, True, "call_a") == "already_answered"
    world.answer(0, "call_b")
    assert [m.text for m in world.log if m.role is Role.TOOL] == ["false", "0"]


def test_dh_02_the_second_answer_is_refused_also_after_the_turn_went_on() -> None:
    world = asked()
    world.answer("")
    assert code(world, "other") == "unknown_call", "the client then looks at the record"
    world.reply()
    assert code(world) == "unknown_call"


def test_an_answer_needs_a_question() -> None:
    world = World()
    with pytest.raises(NotFound):
        world.answer("x")
    world.calling(planned("call_a", asks=True), timer("call_b"), question("call_c"))
    assert code(world, call_id="call_a") == "not_awaiting_answer"
    assert code(world, call_id="call_b") == "not_awaiting_answer"
    world.cancel()
    assert code(world, call_id="call_c") == "unknown_call"


def test_an_answer_after_steer_while_a_sibling_runs_is_refused_as_cancelled() -> None:
    world = World()
    world.calling(question("call_a"), planned("call_b"))
    running = world.start_call("call_b")
    world.steer(world.send("never mind"))
    assert code(world) == "not_awaiting_answer"
    with pytest.raises(Conflict, match="it is cancelled"):
        world.answer("x")
    world.ended(running)
    assert "cancelled before anybody answered" in world.told("call_a")


def test_a_queued_message_does_not_answer_a_question() -> None:
    world = asked()
    world.send("the blue one")
    assert world.steps == [StepName.AWAIT_QUESTION_ANSWER]
    world.answer("blue")
    world.reply()
    assert world.conversation[-1] == (Role.USER, "the blue one")


# --- arguments


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"question": ""},
        {"question": "  \n"},
        {"question": "x" * 4_001},
        {"question": None},
        {"question": ["a"]},
        {"question": "a", "more": 1},
        {"question": "a", "choices": []},
        {"question": "a", "choices": ["x"]},
        {"question": "a", "choices": ["x", " x "]},
        {"question": "a", "choices": ["x", ""]},
        {"question": "a", "choices": ["x", "y" * 201]},
        {"question": "a", "choices": [1, 2]},
        {"question": "a", "choices": [str(n) for n in range(MOST_CHOICES + 1)]},
        [],
        "question",
        None,
    ],
)
def test_a_question_out_of_bounds_is_refused_in_short_words(arguments: JsonValue) -> None:
    with pytest.raises(InvalidArguments) as caught:
        parse_built_in(BuiltInTool.ASK_USER, arguments)
    assert "invalid arguments" in str(caught.value)
    assert len(str(caught.value)) < 600


def test_choices_are_read_from_what_is_stored() -> None:
    made = question("call_a", "Which?", "red", " blue ")
    assert parse_choices(made.request.arguments) == ("red", "blue")
    assert parse_choices(question().request.arguments) == ()
    assert parse_choices({"choices": "broken"}) == ()
