"""The demo model: what each command does, and what it says after results."""

from __future__ import annotations

import json

import pytest
from pydantic import JsonValue

from celeriac.connectors.demo_model import DemoModel
from celeriac.sessions.messages import Message
from celeriac.sessions.model import ModelError, ModelReply, TextDelta
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

BUILT_IN = named_tools("ask_user", "durable_wait", "write_todos")


def ask(
    *messages: Message | str,
    tools: tuple[str, ...] = (),
    instructions: str = "Be brief.",
    attempt: int = 1,
) -> ModelReply:
    told = [user(message) if isinstance(message, str) else message for message in messages]
    asked = request(
        *told,
        tools=[*named_tools(*tools), *BUILT_IN],
        instructions=instructions,
        attempt=attempt,
    )
    return reply_of(collect(DemoModel(seconds_per_word=0).stream(asked)))


def called(reply: ModelReply) -> list[tuple[str, JsonValue]]:
    return [(made.name, json.loads(made.arguments)) for made in reply.calls]


def test_a_plain_message_is_echoed_word_by_word() -> None:
    pieces = collect(DemoModel(seconds_per_word=0).stream(request(user("two  words\nhere"))))
    deltas = [piece.text for piece in pieces if isinstance(piece, TextDelta)]
    assert deltas == ["You ", "said: ", "two  ", "words\n", "here"]
    assert reply_of(pieces).text == "".join(deltas)
    assert reply_of(pieces).finish_reason == "stop"
    assert reply_of(pieces).model == "demo"


def test_a_long_text_comes_in_few_pieces_and_whole() -> None:
    text = "word " * 5000
    model = DemoModel(seconds_per_word=0.001, longest_seconds=0.02)
    pieces = collect(model.stream(request(user(text))))
    assert len(pieces) <= 22
    assert reply_of(pieces).text == f"You said: {text}"


def test_the_same_request_gets_the_same_reply() -> None:
    assert ask("hello") == ask("hello")


def test_several_steered_messages_are_all_echoed() -> None:
    assert ask("first", "second").text == "You said: first\nsecond"


def test_a_message_after_an_answer_stands_alone() -> None:
    assert ask("first", assistant("You said: first"), "second").text == "You said: second"


def test_tool_makes_one_call_with_the_arguments_as_typed() -> None:
    reply = ask('/tool look_up {"order_id":  "1001"}', tools=("look_up",))
    assert [(made.name, made.arguments) for made in reply.calls] == [
        ("look_up", '{"order_id":  "1001"}')
    ]
    assert reply.text == ""
    assert reply.finish_reason == "tool_calls"


def test_tool_without_arguments_calls_with_none() -> None:
    assert called(ask("/tool look_up", tools=("look_up",))) == [("look_up", {})]


def test_tools_makes_parallel_calls_with_nested_braces_and_strings() -> None:
    reply = ask(
        '/tools one {"a": {"b": "}"}, "c": "say \\"{\\""} two{"d": [1, {"e": 2}]} three',
        tools=("one", "two", "three"),
    )
    assert called(reply) == [
        ("one", {"a": {"b": "}"}, "c": 'say "{"'}),
        ("two", {"d": [1, {"e": 2}]}),
        ("three", {}),
    ]


def test_a_tool_the_agent_lacks_is_said_in_words() -> None:
    reply = ask("/tools look_up {} fly {}", tools=("look_up",))
    assert reply.calls == ()
    assert "no such tool now: fly" in reply.text
    assert "look_up" in reply.text


@pytest.mark.parametrize(
    ("command", "tool", "arguments"),
    [
        ("/ask Which one?", "ask_user", {"question": "Which one?"}),
        (
            "/choose a | b|c",
            "ask_user",
            {"question": "Which one?", "choices": ["a", "b", "c"]},
        ),
        ("/wait 5", "durable_wait", {"seconds": 5, "reason": "You asked me to wait."}),
        ("/wait 0.5", "durable_wait", {"seconds": 0.5, "reason": "You asked me to wait."}),
        ("/plan sow; reap;", "write_todos", {"todos": [{"title": "sow"}, {"title": "reap"}]}),
    ],
)
def test_built_in_commands_call_built_in_tools(command: str, tool: str, arguments: object) -> None:
    assert called(ask(command)) == [(tool, arguments)]


@pytest.mark.parametrize(
    "command",
    [
        "/tool",
        "/tool {}",
        '/tool look_up {"order_id": 1',
        "/tool look_up {} look_up {}",
        "/tools",
        "/tools look_up {]",
        "/ask",
        "/choose |",
        "/choose one",
        "/wait",
        "/wait soon",
        "/wait -1",
        "/wait nan",
        "/wait 1e999",
        "/plan ;",
        "/fail",
        "/fail -1",
        "/fail ²",
        "/unheard",
        "/",
    ],
)
def test_a_malformed_command_gets_a_helpful_answer(command: str) -> None:
    reply = ask(command, tools=("look_up",))
    assert reply.calls == ()
    assert "/" in reply.text


def test_help_lists_every_command() -> None:
    text = ask("/help").text
    for command in ("tool", "tools", "ask", "choose", "wait", "plan", "model", "fail"):
        assert f"/{command}" in text


def test_model_says_which_model_answers() -> None:
    asked = request(user("/model"), model="demo-two")
    assert "demo-two" in reply_of(collect(DemoModel(seconds_per_word=0).stream(asked))).text


def test_fail_fails_the_first_attempts_and_then_works() -> None:
    for attempt in (1, 2):
        with pytest.raises(ModelError, match=f"attempt {attempt}") as failure:
            ask("/fail 2", attempt=attempt)
        assert failure.value.retryable
    assert ask("/fail 2", attempt=3).text == "Attempt 3 worked."


def test_after_results_it_repeats_each_of_them() -> None:
    reply = ask(
        "/tools look_up {} cancel {}",
        assistant("", call("c1"), call("c2", "cancel")),
        result("c1", "look_up", '{"order":1}'),
        result("c2", "cancel", "A person rejected this call of cancel. They said: no"),
        notice("something Celeriac says"),
        tools=("look_up", "cancel"),
    )
    assert 'look_up returned: {"order":1}' in reply.text
    assert "cancel returned: A person rejected this call of cancel. They said: no" in reply.text
    assert reply.calls == ()


def test_instructions_are_shown_and_sign_every_answer() -> None:
    instructions = "Help.\n  DEMO-SIGNATURE: the new prompt \nAlways."
    assert "DEMO-SIGNATURE" in ask("/instructions", instructions=instructions).text
    for reply in (
        ask("hi", instructions=instructions),
        ask(assistant("", call("c")), result("c", "t", "ok"), instructions=instructions),
    ):
        assert reply.text.endswith(" — the new prompt")


def test_usage_counts_and_cost_stays_unknown() -> None:
    usage = ask("hello").usage
    assert usage.input_tokens
    assert usage.output_tokens
    assert usage.cost_usd is None


def test_a_request_without_messages_is_answered() -> None:
    assert "/help" in ask().text


def test_messages_of_an_earlier_turn_are_not_echoed_again() -> None:
    old = user("old").model_copy(update={"turn_id": "t1"})
    new = user("new").model_copy(update={"turn_id": "t2"})
    assert ask(old, new).text == "You said: new"
    assert ask(old, notice("the turn failed"), new).text == "You said: new"
