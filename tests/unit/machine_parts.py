"""What the random histories of a session are made of: calls, claims, and the truth that only the test knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from pydantic import JsonValue

from celeriac.sessions.built_in import BuiltInTool
from celeriac.sessions.calls import DID_NOT_RUN, CallOutcome, CallStatus, ToolEffect
from celeriac.sessions.inputs import PlannedCall
from celeriac.sessions.plans import TodoStatus
from celeriac.sessions.state import Step
from tests.unit.world import EFFECTS, ONCE, PROVIDER, planned, question, timer, todos

__all__ = ["PEOPLE", "Call", "Claimed", "check_truth", "opened", "response"]

STATUSES = [status.value for status in TodoStatus]

PEOPLE = frozenset({"Ann", PROVIDER})
"""Who settles an unknown outcome without having run anything."""


@dataclass
class Claimed:
    """A claim that some worker holds, or believes to hold."""

    step: Step
    entered: bool = False
    """Whether the worker handed the call to its tool."""

    @property
    def runs_tool(self) -> bool:
        return self.step.call_id is not None and not self.step.name.background


@dataclass
class Call:
    """What really happened to a call, as nobody but the test knows."""

    effect: ToolEffect
    asks: bool
    refused: bool
    built_in: BuiltInTool | None = None
    due: int | None = None
    """When the time of a wait is over."""
    entered: int = 0
    approved: bool = False
    returned: set[int] = field(default_factory=set)
    """Tokens of the attempts that returned and whose worker said so."""
    failed_for_certain: bool = False
    answers: list[JsonValue] = field(default_factory=list)
    """Answers that were taken."""


def response(dice: Random, first: int, *, plan_only: bool) -> list[PlannedCall]:
    """The calls of a response, of every kind and mixed; none is a final answer."""
    ids = [f"call_{first + number}" for number in range(dice.choice([0, 1, 1, 2, 3, 5]))]
    kinds = [BuiltInTool.WRITE_TODOS] if plan_only else [None, None, None, *BuiltInTool]
    return [_call(dice, call_id, dice.choice(kinds)) for call_id in ids]


def _call(dice: Random, call_id: str, kind: BuiltInTool | None) -> PlannedCall:
    match kind:
        case BuiltInTool.ASK_USER:
            return question(call_id)
        case BuiltInTool.DURABLE_WAIT:
            return timer(call_id, dice.choice([1, 5, 3_600, 30 * 24 * 3_600]))
        case BuiltInTool.WRITE_TODOS:
            return todos(call_id, look=dice.choice(STATUSES), write=dice.choice(STATUSES))
        case None:
            asks = dice.random() < 0.4
            expires = dice.choice([None, 2_000, 60_000]) if asks else None
            return planned(
                call_id,
                dice.choice(EFFECTS),
                asks=asks,
                approval_timeout_ms=expires,
                ordered=dice.random() < 0.5,
                reconcile_after_ms=dice.choice([None, 0, 2_000]),
            )


def opened(call: PlannedCall, now: int) -> Call:
    arguments = call.request.arguments
    seconds = arguments.get("seconds") if isinstance(arguments, dict) else None
    return Call(
        call.request.effect,
        call.requires_approval,
        call.refused is not None,
        call.built_in,
        due=now + int(seconds * 1000) if isinstance(seconds, (int, float)) else None,
    )


def check_truth(outcome: CallOutcome, call: Call) -> None:
    """Compare an outcome with what really happened; nothing is known for certain but what was reported."""
    untouched = call.entered == 0 or call.effect is ToolEffect.READ
    match outcome.status:
        case CallStatus.SUCCEEDED:
            assert call.returned
        case CallStatus.FAILED:
            assert untouched or call.failed_for_certain
        case CallStatus.OUTCOME_UNKNOWN:
            assert not call.returned, "a result was lost"
        case CallStatus.REJECTED:
            assert untouched
            assert call.asks
        case _:
            assert untouched
    assert outcome.attempts <= (1 if call.effect is ONCE else 3)
    assert not (outcome.error or "").startswith(DID_NOT_RUN) or call.entered == 0
    assert not call.refused or outcome.attempts == 0
