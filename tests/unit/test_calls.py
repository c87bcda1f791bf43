"""What the model is told about each kind of ending."""

from __future__ import annotations

import itertools

import pytest

from celeriac.sessions.calls import (
    DID_NOT_RUN,
    CallOutcome,
    CallStatus,
    Decision,
    DecisionVerb,
    result_text,
)
from celeriac.sessions.codec import read_record
from tests.unit.world import NOON


def outcome(status: CallStatus, **fields: object) -> CallOutcome:
    return CallOutcome.model_validate({"status": status, "settled_at": NOON, **fields})


def decision(verb: DecisionVerb, note: str | None = None) -> Decision:
    return Decision(verb=verb, by="Ann", at=NOON, digest="d", note=note)


ENDINGS = {
    "succeeded": outcome(CallStatus.SUCCEEDED, result="done", attempts=1),
    "failed": outcome(CallStatus.FAILED, error="no such order", attempts=1),
    "did not run": outcome(CallStatus.FAILED, error=f"{DID_NOT_RUN}no such tool"),
    "unknown": outcome(CallStatus.OUTCOME_UNKNOWN, error="timed out", attempts=1),
    "rejected": outcome(CallStatus.REJECTED, decision=decision(DecisionVerb.REJECT)),
    "cancelled": outcome(CallStatus.CANCELLED, error="The user stopped the turn."),
    "reconciled: it did": outcome(CallStatus.SUCCEEDED, reconciled_by="Ann", attempts=1),
    "reconciled: it did not": outcome(CallStatus.FAILED, reconciled_by="Ann", attempts=1),
}


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(ENDINGS, 2)))
def test_different_facts_have_different_words(one: str, other: str) -> None:
    assert result_text("refund", ENDINGS[one]) != result_text("refund", ENDINGS[other])


@pytest.mark.parametrize("ending", sorted(set(ENDINGS) - {"rejected"}))
def test_only_a_rejection_speaks_of_a_rejection(ending: str) -> None:
    assert "reject" not in result_text("refund", ENDINGS[ending])
    assert "reject" in result_text("refund", ENDINGS["rejected"])


def test_an_unknown_outcome_is_never_called_a_failure_and_asks_for_care() -> None:
    text = result_text("refund", ENDINGS["unknown"])
    assert "failed" not in text.lower()
    assert "may or may not have taken effect" in text
    assert "Do not call it again" in text
    assert "timed out" in text


def test_a_call_that_did_not_run_begins_with_the_documented_words() -> None:
    assert result_text("refund", ENDINGS["did not run"]).startswith(
        "Error: the tool did not run, so it is safe to call again: "
    )


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("plain text", "plain text"),
        ("", ""),
        ('"quoted"', '"quoted"'),
        (None, "null"),
        (False, "false"),
        (0, "0"),
        ({"a": [1, None, "é"]}, '{"a":[1,null,"é"]}'),
        ([], "[]"),
    ],
)
def test_a_result_is_given_as_text_or_as_json(result: object, text: str) -> None:
    assert result_text("refund", outcome(CallStatus.SUCCEEDED, result=result)) == text


def test_the_note_of_a_rejection_reaches_the_model() -> None:
    noted = outcome(CallStatus.REJECTED, decision=decision(DecisionVerb.REJECT, "wrong amount"))
    assert result_text("refund", noted).endswith("They said: wrong amount")


def test_a_note_of_an_approval_is_not_taken_for_a_rejections() -> None:
    approved = outcome(
        CallStatus.SUCCEEDED, result="ok", decision=decision(DecisionVerb.APPROVE, "fine")
    )
    assert result_text("refund", approved) == "ok"


def test_a_failure_without_a_message_still_says_something() -> None:
    assert result_text("refund", outcome(CallStatus.FAILED)) == (
        "Error: refund failed without a message"
    )


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (CallStatus.SUCCEEDED, "refund took effect (Ann: I looked)."),
        (CallStatus.FAILED, "Error: refund did not take effect (Ann: I looked)."),
    ],
)
def test_what_a_person_found_out_is_told_with_their_note(status: CallStatus, words: str) -> None:
    assert result_text("refund", outcome(status, reconciled_by="Ann", note="I looked")) == words


def test_an_outcome_that_was_written_before_notes_were_kept_can_be_read() -> None:
    raw = '{"status":"failed","error":"I looked","reconciled_by":"Ann","settled_at":1}'
    read = read_record(CallOutcome, raw)
    assert read.note is None
    assert result_text("refund", read) == "Error: refund did not take effect (Ann: I looked)."


def test_a_reconciled_result_is_given_as_any_other() -> None:
    late = outcome(CallStatus.SUCCEEDED, reconciled_by="late result", result={"id": 7})
    assert result_text("refund", late) == '{"id":7}'


def test_a_call_that_was_tried_is_not_said_to_be_cancelled_before_it_ran() -> None:
    assert "before it ran" in result_text("look_up", outcome(CallStatus.CANCELLED))
    tried = result_text("look_up", outcome(CallStatus.CANCELLED, attempts=1))
    assert "before it gave a result" in tried


@pytest.mark.parametrize(
    ("verb", "words"),
    [(DecisionVerb.APPROVE, "approved"), (DecisionVerb.REJECT, "rejected")],
)
def test_a_decision_says_who_decided_what_and_when(verb: DecisionVerb, words: str) -> None:
    assert decision(verb).describe() == f"{words} by Ann at 2026-11-30 12:00:00 UTC"


@pytest.mark.parametrize("status", list(CallStatus))
def test_a_status_is_settled_or_open(status: CallStatus) -> None:
    settled = {"succeeded", "failed", "outcome_unknown", "rejected", "cancelled"}
    assert status.settled == (status.value in settled)
