"""How large a request is, and where a conversation may be cut so that every provider still takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from celeriac.connectors.history import problems_of
from celeriac.connectors.summaries import summary_request
from celeriac.sessions.calls import CallStatus, ToolEffect
from celeriac.sessions.context import (
    active_context,
    choose_cut,
    message_tokens,
    request_size,
    request_tokens,
    text_tokens,
)
from celeriac.sessions.messages import CallReference, Message, Role, Usage
from celeriac.sessions.tools import ToolDefinition
from tests.unit.invariants import request_of


class Talk:
    """Builds a log as `advance` would write it."""

    def __init__(self) -> None:
        self.log: list[Message] = []
        self.turn = 0
        self.context_from = 0

    def add(self, role: Role, text: str = "", **fields: object) -> Message:
        values = {"seq": len(self.log), "role": role, "text": text, "created_at": 1}
        message = Message.model_validate({**values, "turn_id": f"t{self.turn}", **fields})
        self.log.append(message)
        return message

    def user(self, text: str = "go", *, notice: str | None = None) -> None:
        self.turn += 1
        if notice is not None:
            self.add(Role.NOTICE, notice)
        self.add(Role.USER, text)

    def calls(self, count: int = 1, result: str = "found", text: str = "") -> None:
        first = len(self.log)
        ids = [f"call_{first}_{number}" for number in range(count)]
        calls = [CallReference(id=one, tool="look", arguments='{"of": 1}') for one in ids]
        items = ({"type": "thinking", "thinking": "", "signature": "c2ln"}, {"content": text})
        self.add(Role.ASSISTANT, text, calls=tuple(calls), items=items)
        for one in ids:
            self.add(Role.TOOL, result, call_id=one, tool="look", status=CallStatus.SUCCEEDED)

    def answer(self, text: str = "done", **fields: object) -> None:
        self.add(Role.ASSISTANT, text, **fields)

    def summary(self, before: int, text: str = "It began.") -> None:
        self.add(Role.SUMMARY, text, covers_before=before)
        self.context_from = before

    @property
    def context(self) -> list[Message]:
        return active_context(self.log[self.context_from :])


def seqs(messages: Sequence[Message]) -> list[int]:
    return [message.seq for message in messages]


# --- the active context


def test_without_a_summary_the_context_is_the_conversation() -> None:
    talk = Talk()
    talk.user()
    talk.answer()
    assert talk.context == talk.log


def test_the_newest_summary_comes_first_and_older_ones_are_part_of_it() -> None:
    talk = Talk()
    talk.user()  # 0
    talk.answer()  # 1
    talk.user()  # 2
    talk.summary(2)  # 3
    talk.answer()  # 4
    talk.user()  # 5
    talk.answer()  # 6
    assert seqs(talk.context) == [3, 2, 4, 5, 6]
    talk.user()  # 7
    talk.summary(2)  # 8: covers the summary 3, which is still among the messages that are read
    assert seqs(talk.context) == [8, 2, 4, 5, 6, 7]
    talk.summary(5)  # 9
    assert seqs(talk.context) == [9, 5, 6, 7]


# --- sizes


def test_tokens_are_estimated_from_bytes() -> None:
    assert text_tokens("") == 0
    assert text_tokens("a") == 1
    assert text_tokens("x" * 3500) == 1000
    assert text_tokens("字" * 3500) == 3000


def test_what_a_provider_put_out_is_not_counted_twice() -> None:
    plain = Message(seq=0, role=Role.ASSISTANT, text="x" * 3500, created_at=0)
    verbatim = plain.model_copy(update={"items": ({"content": "x" * 3500},)})
    assert message_tokens(plain) < message_tokens(verbatim) < message_tokens(plain) + 10
    thinking = plain.model_copy(update={"items": ({"thinking": "y" * 7000},)})
    assert message_tokens(thinking) > 2000


def test_instructions_and_tools_count() -> None:
    talk = Talk()
    talk.user()
    request = request_of(talk.context)
    tool = ToolDefinition(
        name="look",
        description="d" * 350,
        input_schema={"type": "object", "description": "s" * 350},
        effect=ToolEffect.READ,
    )
    longer = replace(request, instructions="i" * 350, tools=[tool])
    assert request_tokens(longer) - request_tokens(request) > 290


def test_the_providers_own_count_is_used_and_only_what_came_since_is_estimated() -> None:
    talk = Talk()
    talk.user("x" * 100_000)
    talk.answer(usage=Usage(input_tokens=5_000, output_tokens=2))
    talk.user("y" * 350)
    assert 5_100 < request_tokens(request_of(talk.context)) < 5_130


def test_a_count_of_before_the_summary_says_nothing() -> None:
    talk = Talk()
    talk.user()
    talk.answer()
    talk.user()
    talk.answer(usage=Usage(input_tokens=90_000))
    talk.user()
    talk.summary(2)
    assert request_tokens(request_of(talk.context)) < 100
    talk.answer(usage=Usage(input_tokens=700))
    assert 700 < request_tokens(request_of(talk.context)) < 720


@pytest.mark.parametrize(
    "usage", [None, Usage(), Usage(input_tokens=0, output_tokens=0)], ids=["none", "?", "zero"]
)
def test_ll_03_without_a_count_of_the_provider_the_size_is_an_estimate_and_says_so(
    usage: Usage | None,
) -> None:
    talk = Talk()
    talk.user("x" * 3500)
    talk.answer(usage=usage)
    size = request_size(request_of(talk.context))
    assert size.tokens > 1_000
    assert size.counted is None
    assert "an estimate" in size.describe()


def test_ll_03_what_a_cache_had_is_part_of_the_count_and_counted_once() -> None:
    talk = Talk()
    talk.user("x" * 100_000)
    talk.answer(usage=Usage(input_tokens=5_000, cached_tokens=4_000, cache_write_tokens=900))
    size = request_size(request_of(talk.context))
    assert size.counted == 5_000
    assert 5_000 < size.tokens < 5_020
    assert "5,000 counted by the provider" in size.describe()


# --- the cut


def test_the_newest_messages_stay() -> None:
    talk = Talk()
    for _ in range(20):
        talk.user("x" * 350)
        talk.answer("y" * 350)
    cut = choose_cut(talk.context, 500)
    assert cut is not None
    kept = [message for message in talk.log if message.seq >= cut]
    assert len(kept) == 4


def test_a_cut_is_at_the_beginning_of_a_turn_where_that_keeps_not_too_much() -> None:
    talk = Talk()
    for _ in range(5):
        talk.user("x" * 350, notice="n")
        talk.calls(result="y" * 350)
        talk.answer("z" * 350)
    cut = choose_cut(talk.context, 300)
    assert cut is not None
    assert talk.log[cut].role is Role.NOTICE
    assert seqs(talk.log[cut:]) == seqs(talk.log)[-5:]


def test_a_cut_in_a_long_turn_keeps_a_response_with_its_results() -> None:
    talk = Talk()
    talk.user()
    for _ in range(10):
        talk.calls(3, result="y" * 350)
    cut = choose_cut(talk.context, 400)
    assert cut is not None
    assert talk.log[cut].role is Role.ASSISTANT
    assert cut == seqs(talk.log)[-4]


def test_the_newest_message_stays_however_large_it_is() -> None:
    talk = Talk()
    talk.user("x" * 50_000)
    talk.answer("y" * 50_000)
    talk.user("z" * 100_000)
    assert choose_cut(talk.context, 10) == 2


def test_where_nothing_worth_it_can_be_taken_away_there_is_no_cut() -> None:
    talk = Talk()
    talk.user("short")
    assert choose_cut(talk.context, 10) is None
    talk.calls(result="y" * 100_000)
    assert choose_cut(talk.context, 10) is None
    talk.answer()
    assert choose_cut(talk.context, 10) == talk.log[-1].seq


def test_a_summary_alone_is_not_summarised_again() -> None:
    talk = Talk()
    talk.user()
    talk.answer()
    talk.user("x" * 5_000)
    talk.summary(2, "s" * 50_000)
    assert choose_cut(talk.context, 10) is None


TEXT = st.integers(min_value=1, max_value=400).map(lambda size: "x" * size)


@st.composite
def conversations(draw: st.DrawFn) -> Talk:
    """Turns with parallel calls, notices, steered messages and earlier compactions at any point."""
    talk = Talk()
    for _ in range(draw(st.integers(1, 6))):
        talk.user(draw(TEXT), notice=draw(st.none() | TEXT))
        for _ in range(draw(st.integers(0, 2))):
            talk.add(Role.USER, draw(TEXT))  # steered together
        for _ in range(draw(st.integers(0, 4))):
            _maybe_compact(draw, talk)
            talk.calls(draw(st.integers(1, 3)), draw(TEXT), draw(st.just("") | TEXT))
        _maybe_compact(draw, talk)
        match draw(st.sampled_from(["answer", "interrupted", "failed", "open"])):
            case "answer":
                talk.answer(draw(TEXT))
            case "interrupted":
                talk.answer(draw(TEXT), interrupted=True)
                talk.add(Role.NOTICE, "The user stopped this turn.")
            case "failed":
                talk.add(Role.NOTICE, "This turn failed: no.")
            case _:
                pass
    if not talk.log[-1].text or talk.log[-1].role is Role.ASSISTANT:
        talk.user(draw(TEXT))
    return talk


def _maybe_compact(draw: st.DrawFn, talk: Talk) -> None:
    if draw(st.integers(0, 3)) == 0:
        cut = choose_cut(talk.context, draw(st.integers(0, 300)))
        if cut is not None:
            talk.summary(cut)


@given(conversations(), st.integers(0, 1_000), st.integers(50, 3_000))
def test_mh_04_mh_12_any_compaction_leaves_requests_that_every_provider_takes(
    talk: Talk, keep: int, limit: int
) -> None:
    context = talk.context
    assert problems_of(request_of(context)) == []
    cut = choose_cut(context, keep)
    if cut is None:
        return
    older = [m for m in context if m.role is Role.SUMMARY or m.seq < cut]
    asked = summary_request(request_of(context), older, limit)
    assert problems_of(asked) == []
    assert asked.tools == ()
    kept = [m for m in context if m.role is not Role.SUMMARY and m.seq >= cut]
    talk.summary(cut)
    after = talk.context
    assert problems_of(request_of(after)) == []
    # What stays is as it was, reasoning and all, and nothing is lost but to the summary.
    assert after[1:] == kept
    assert {m.seq for m in older} | {m.seq for m in kept} == {m.seq for m in context}
    _calls_are_whole(older[1:] if older[0].role is Role.SUMMARY else older)


def _calls_are_whole(messages: Sequence[Message]) -> None:
    made = [call.id for message in messages for call in message.calls]
    assert [message.call_id for message in messages if message.role is Role.TOOL] == made


@given(conversations(), st.integers(0, 1_000))
def test_compacting_again_and_again_comes_to_an_end(talk: Talk, keep: int) -> None:
    for _ in range(60):
        cut = choose_cut(talk.context, keep)
        if cut is None:
            return
        assert cut > talk.context_from
        talk.summary(cut)
    raise AssertionError("there was always something left to cut")
