"""What people read of model calls: what is unknown is called so, and a failure says what to do."""

from __future__ import annotations

import pytest

from celeriac.sessions.failures import FailureKind
from celeriac.sessions.messages import Message, Role, Usage
from celeriac.web.model_words import (
    answer_facts,
    answer_line,
    failure_words,
    retry_words,
    usage_words,
)

PRICED = Usage(input_tokens=1000, output_tokens=200, cost_usd=0.0124).of_one_call()
UNPRICED = Usage(input_tokens=50, output_tokens=5).of_one_call()
UNKNOWN = Usage().of_one_call()

SUMS = {
    "No model call yet": Usage(),
    "1 model call · 1,200 tokens · $0.0124": PRICED,
    "1 model call · 55 tokens · cost unknown": UNPRICED,
    "1 model call · cost unknown": UNKNOWN,
    "3 model calls · 1,310 tokens · at least $0.0124 (2 calls without a price)": (
        PRICED.plus(UNPRICED).plus(UNPRICED)
    ),
    "2 model calls · at least 1,200 tokens (1 call whose tokens nobody counted)"
    " · at least $0.0124 (1 call without a price)": PRICED.plus(UNKNOWN),
    "2 model calls · 2,400 tokens · $0.0248": PRICED.plus(PRICED),
    "1 model call · less than $0.0001": Usage(cost_usd=0.00001, model_calls=1),
    "1 model call · $1,234.50": Usage(cost_usd=1234.5, model_calls=1),
}


@pytest.mark.parametrize(("words", "usage"), SUMS.items())
def test_a_sum_says_what_it_lacks(words: str, usage: Usage) -> None:
    assert usage_words(usage) == words


def answer(**fields: object) -> Message:
    values = {"seq": 1, "role": Role.ASSISTANT, "text": "Hello", "created_at": 1}
    return Message.model_validate({**values, **fields})


def test_an_answer_says_what_it_took() -> None:
    message = answer(
        model="openai/gpt-5-mini",
        reported_model="gpt-5-mini-2025-08-07",
        finish_reason="stop",
        usage=Usage(
            input_tokens=1200,
            output_tokens=300,
            cached_tokens=1000,
            cache_write_tokens=100,
            reasoning_tokens=256,
            cost_usd=0.0009,
        ),
        first_token_ms=420,
        latency_ms=2140,
        turn_usage=PRICED.plus(UNPRICED),
    )
    assert answer_line(message) == "gpt-5-mini-2025-08-07 · 1,500 tokens · $0.0009 · 2.1 s"
    assert {fact.name: fact.words for fact in answer_facts(message)} == {
        "Model": "gpt-5-mini-2025-08-07, asked for as openai/gpt-5-mini",
        "Read": "1,200 tokens (1,000 from the provider's cache, 100 put into it)",
        "Written": "300 tokens (256 of them reasoning)",
        "Cost": "$0.0009",
        "Time": "2.1 s, the first token after 420 ms",
        "Ended": "finished",
        "Whole turn": "2 model calls · 1,255 tokens · at least $0.0124 (1 call without a price)",
    }


def test_what_is_not_known_is_not_called_zero() -> None:
    message = answer(model="demo", usage=Usage(), finish_reason="odd_reason")
    assert answer_line(message) == "demo"
    assert {fact.name: fact.words for fact in answer_facts(message)} == {
        "Model": "demo",
        "Read": "unknown",
        "Written": "unknown",
        "Cost": "unknown",
        "Ended": "odd_reason",
    }
    assert answer_line(answer()) == ""


def test_each_failure_has_words_of_its_own() -> None:
    assert len({failure_words(kind) for kind in FailureKind}) == len(FailureKind)
    assert retry_words(FailureKind.BUSY) != retry_words(None) == retry_words(FailureKind.QUOTA)
