"""What must be true of each call: beside the ledger, the history of its steps and the words of its person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from celeriac.sessions.calls import DID_NOT_RUN, CallRecord, CallStatus, DecisionVerb, ToolEffect
from celeriac.sessions.snapshot import StepRecord
from celeriac.sessions.state import StepName
from tests.chaos.hands import PERSON
from tests.chaos.ledger import Entry
from tests.chaos.people import Talk

__all__ = ["attempt_faults", "effect_faults", "person_faults", "result_faults"]

_CALL_STEPS = {StepName.CALL_TOOL, StepName.CALL_SINGLE_ATTEMPT_TOOL}
_LATE = "late result"


def effect_faults(
    call: CallRecord, entered: Sequence[Entry], effects: Sequence[Entry]
) -> Iterator[str]:
    """Compare what is recorded with what really happened."""
    writes = call.effect is not ToolEffect.READ
    if call.effect is ToolEffect.NON_IDEMPOTENT_WRITE and max(len(entered), len(effects)) > 1:
        yield f"DOUBLE: a single-attempt write was entered {len(entered)} times, and happened {len(effects)} times"
    yield from _connector_faults(call, effects)
    if {entry.key for entry in (*entered, *effects)} - {call.id}:
        yield f"its attempts have other keys: {[entry.key for entry in entered]}"
    status = call.status
    by_person = call.reconciled_by not in {None, _LATE}
    if status is CallStatus.SUCCEEDED and entered and not (effects or not writes):
        yield "it succeeded, and nothing happened"
    if status is CallStatus.SUCCEEDED and not entered and not _is_built_in(call):
        yield "it succeeded, and its tool was never entered"
    if status is CallStatus.FAILED:
        yield from _failed_faults(call, entered, effects, by_person=by_person)
    if status is CallStatus.REJECTED and entered:
        yield "it was rejected, and its tool was entered"
    if status is CallStatus.CANCELLED and writes and entered:
        yield "the write was cancelled as not run, and its tool was entered"
    if call.requires_approval and entered and not _approved(call):
        yield f"it ran without an approval: {call.decision}"


def _connector_faults(call: CallRecord, effects: Sequence[Entry]) -> Iterator[str]:
    if call.source is not None and len(effects) > 1:
        yield f"DOUBLE: a connector's write happened {len(effects)} times"
    if _was_looked_up(call) and bool(effects) is not (call.status is CallStatus.SUCCEEDED):
        yield f"it was looked up as {call.status.value}, and happened {len(effects)} times"


def _failed_faults(
    call: CallRecord, entered: Sequence[Entry], effects: Sequence[Entry], *, by_person: bool
) -> Iterator[str]:
    error = call.error or ""
    if error.startswith(DID_NOT_RUN) and entered:
        yield "it says that the tool did not run, and the tool was entered"
    if not error.startswith(DID_NOT_RUN) and call.attempts == 0 and not by_person:
        yield f"no attempt of it was made, and it does not say so: {error}"
    if effects and not by_person:
        yield f"it is recorded as failed, and it happened: {error}"
    writes = call.effect is not ToolEffect.READ
    if writes and not by_person and not error.startswith((DID_NOT_RUN, "planned: ")):
        yield f"a write was recorded as failed that may have happened: {error}"


def _was_looked_up(call: CallRecord) -> bool:
    return (call.reconciled_by or "").startswith("a look-up at ")


def _is_built_in(call: CallRecord) -> bool:
    return call.tool in {"ask_user", "durable_wait", "write_todos"}


def _approved(call: CallRecord) -> bool:
    return call.decision is not None and call.decision.verb is DecisionVerb.APPROVE


def person_faults(talk: Talk, call: CallRecord) -> Iterator[str]:
    verdict = talk.verdicts.get(call.id)
    if verdict is not None and (call.decision is None or _approved(call) is not verdict):
        yield f"its person's decision (approved: {verdict}) is not on record: {call.decision}"
    if verdict is False and call.status is not CallStatus.REJECTED:
        yield f"it was rejected, and is {call.status.value}"
    if call.reconciled_by == PERSON:
        said = talk.reconciled.get(call.id)
        if said is not (call.status is CallStatus.SUCCEEDED):
            yield f"its person said that it happened: {said}; it is {call.status.value}"
    elif call.reconciled_by not in {None, _LATE} and not _was_looked_up(call):
        yield f"it was reconciled by {call.reconciled_by}"
    if call.id in talk.answers and repr(talk.answers[call.id]) != repr(call.result):
        yield f"it was answered {talk.answers[call.id]!r}, its result is {call.result!r}"


def attempt_faults(call: CallRecord, records: Sequence[StepRecord]) -> Iterator[str]:
    """Compare a call's record with the history of its steps."""
    made = [one for one in records if one.name in _CALL_STEPS and one.status != "returned"]
    claimed = [one for one in made if one.worker is not None]
    last = made[-1].status if made else None
    if call.effect is ToolEffect.NON_IDEMPOTENT_WRITE and len(claimed) > 1:
        yield f"a single-attempt write was claimed {len(claimed)} times"
    if call.attempts > len(claimed):
        yield f"it counts {call.attempts} attempts, its history {len(claimed)}"
    if (call.status is CallStatus.OUTCOME_UNKNOWN or call.reconciled_by) and not claimed:
        yield "its outcome was unknown, and no worker ever had it"
    if last not in _last_words(call):
        yield f"it is {call.status.value}, but its last attempt {last}"
    waits = [one.status for one in records if one.name is StepName.AWAIT_TOOL_APPROVAL]
    if call.status is CallStatus.REJECTED and waits != ["rejected"]:
        yield f"it was rejected, but its waits ended {waits}"
    if _approved(call) and waits != ["approved"]:
        yield f"it was approved, but its waits ended {waits}"


def _last_words(call: CallRecord) -> set[str | None]:
    """How the history may name the last attempt of a call that ended so; None: there was none."""
    if call.reconciled_by is not None:
        return {"outcome_unknown", "cancelled"}
    if _is_built_in(call):
        return {None}
    words: dict[CallStatus, set[str | None]] = {
        CallStatus.SUCCEEDED: {"succeeded"},
        CallStatus.FAILED: {"failed", "lost", None},
        CallStatus.OUTCOME_UNKNOWN: {"outcome_unknown", "cancelled"},
        CallStatus.CANCELLED: {"cancelled", None},
    }
    return words.get(call.status, {None})


def result_faults(call: CallRecord, records: Sequence[StepRecord]) -> Iterator[str]:
    """A result is the one of this very call; a wait waited as long as it should, and ended once."""
    if call.status is not CallStatus.SUCCEEDED or call.reconciled_by == PERSON:
        return
    arguments = call.arguments if isinstance(call.arguments, dict) else {}
    if "label" in arguments and not str(call.result).endswith(f" {arguments['label']}"):
        yield f"its result is of another call: {call.result!r}"
    if call.tool == "durable_wait":
        ends = [one.status for one in records]
        waited = call.result.get("waited_seconds") if isinstance(call.result, dict) else None
        if ends != ["fired"] or not isinstance(waited, float | int):
            yield f"its wait ended {ends} with {call.result!r}"
        elif waited < float(str(arguments["seconds"])) - 0.001:
            yield f"it should wait {arguments['seconds']} s, and waited {waited} s"
