"""The request for a summary fits and is well-formed whatever is summarised; a bad summary is none."""

from __future__ import annotations

import pytest

from celeriac.connectors.demo_model import DemoModel
from celeriac.connectors.history import problems_of
from celeriac.connectors.summaries import INSTRUCTIONS, summary_of, summary_request
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.context import request_tokens
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.model import ModelCall, ModelError, ModelReply
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

UNKNOWN = result("call_a", "pay", "Outcome unknown.").model_copy(
    update={"status": CallStatus.OUTCOME_UNKNOWN}
)
OLDER = [
    Message(seq=9, role=Role.SUMMARY, text="It began.", created_at=0),
    user("Please pay."),
    assistant("I will.", call("call_a", "pay", '{"amount": 5}')),
    UNKNOWN,
    notice("This turn failed: no."),
]


def test_everything_is_in_the_transcript_as_plain_text() -> None:
    asked = summary_request(request(user("hi"), tools=named_tools("pay")), OLDER, 10_000)
    assert asked.instructions == INSTRUCTIONS
    assert asked.tools == ()
    [message] = asked.messages
    assert message.text == (
        "The transcript:\n\n"
        "[Earlier summary]\nIt began.\n\n"
        "[User]\nPlease pay.\n\n"
        '[Agent]\nI will.\n(calls pay, call_a: {"amount": 5})\n\n'
        "[Result of pay, call_a: outcome_unknown]\nOutcome unknown.\n\n"
        "[Note of the system]\nThis turn failed: no."
    )


@pytest.mark.parametrize("limit", [1_000, 4_000, 50_000])
def test_mh_14_huge_texts_are_cut_so_that_the_request_fits(limit: int) -> None:
    older = [
        *OLDER,
        user("é" * 300_000),
        assistant("", call("call_b", "look", '{"text": "' + "x" * 90_000 + '"}')),
        result("call_b", "look", "字" * 90_000),
    ]
    asked = summary_request(request(user("hi")), older, limit)
    assert problems_of(asked) == []
    assert request_tokens(asked) <= limit + 100
    assert "600,000 bytes in full" in asked.messages[0].text
    assert "Please pay." in asked.messages[0].text


def test_of_too_many_messages_the_middle_is_left_out_and_that_is_said() -> None:
    older = [user(f"message {number}") for number in range(5_000)]
    asked = summary_request(request(user("hi")), older, 2_000)
    text = asked.messages[0].text
    assert request_tokens(asked) <= 2_100
    assert "message 0\n" in text
    assert "message 4999" in text
    assert "messages are left out here]" in text


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (ModelReply(text=" \n"), "empty"),
        (ModelReply(text="a", calls=[ModelCall("pay", "{}")]), "tool calls"),
        (ModelReply(text="It beg", finish_reason="length"), "cut"),
        (ModelReply(text="It beg", finish_reason="content_filter"), "cut"),
    ],
)
def test_mh_04_a_bad_summary_is_a_failed_attempt(reply: ModelReply, why: str) -> None:
    with pytest.raises(ModelError, match=why) as failure:
        summary_of(reply)
    assert failure.value.retryable


def test_a_summary_is_stored_clean() -> None:
    assert summary_of(ModelReply(text=" so\x00far\n", finish_reason="stop")) == "so\ufffdfar"


def test_the_demo_model_summarises() -> None:
    asked = summary_request(request(user("hi")), OLDER, 10_000)
    text = summary_of(reply_of(collect(DemoModel(seconds_per_word=0).stream(asked))))
    assert "- [User] Please pay." in text
    assert len(text) < 600
