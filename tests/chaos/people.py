"""People who talk with their sessions by script, decide what is asked, and try again when nobody answers."""

from __future__ import annotations

import json
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from pydantic import JsonValue

from celeriac.sessions.calls import CallRecord, CallStatus
from celeriac.sessions.errors import Refused, StoreUnavailable
from celeriac.sessions.plans import PlanStatus
from celeriac.sessions.snapshot import Snapshot
from celeriac.sessions.state import SessionStatus
from tests.chaos.hands import Hands
from tests.chaos.ledger import Ledger
from tests.chaos.script import Delete, Execute, Pause, Say, Script, Steer, Stop

__all__ = ["People", "Talk"]

_LOOK_SECONDS = 0.05


@dataclass
class Talk:
    """One session, and all that its person knows of it."""

    script: Script
    over_http: bool
    starts_at: float
    """Seconds after the beginning of the storm."""
    session_id: str = ""
    at: int = 0
    """The act that comes next."""
    not_before: float = 0
    said: dict[str, str] = field(default_factory=dict)
    """Message id -> text of every message that was acknowledged, in order."""
    deleted: set[str] = field(default_factory=set)
    """Messages whose deletion was acknowledged."""
    maybe_deleted: set[str] = field(default_factory=set)
    steered: set[str] = field(default_factory=set)
    """Messages that were to overtake others."""
    verdicts: dict[str, bool] = field(default_factory=dict)
    """Call ID -> whether this person approved it, as was acknowledged."""
    answers: dict[str, JsonValue] = field(default_factory=dict)
    """Call ID -> this person's answer to a question, as was acknowledged."""
    asked_at: dict[str, float] = field(default_factory=dict)
    reconciled: dict[str, bool] = field(default_factory=dict)
    extra: int = 0
    done: bool = False


class People:
    """One thread of people; each of them lives on when a request fails.

    Args:
        talks: Their sessions.
        hands: How they reach them.
        ledger: Where they look up what really happened.
        seed: Decides how they decide.
    """

    def __init__(self, talks: Sequence[Talk], hands: Hands, ledger: Ledger, seed: int) -> None:
        self.talks = talks
        self.errors: list[str] = []
        self._hands = hands
        self._ledger = ledger
        self._seed = seed
        self._began = time.monotonic()

    def talk_until(self, stop: threading.Event) -> None:
        """Go on with every session until told to stop."""
        self._began = time.monotonic()
        while not stop.wait(_LOOK_SECONDS):
            for talk in self.talks:
                if talk.done or self._now < max(talk.starts_at, talk.not_before):
                    continue
                try:
                    self._go_on(talk)
                except StoreUnavailable:
                    # The store or the web is away: whoever talks tries again.
                    talk.not_before = self._now + 0.2
                except Exception:  # noqa: BLE001 - one person's trouble is a finding, not everybody's end
                    self.errors.append(f"{talk.session_id}: {traceback.format_exc()}")
                    talk.done = True

    @property
    def _now(self) -> float:
        return time.monotonic() - self._began

    def _go_on(self, talk: Talk) -> None:
        if not talk.session_id:
            talk.session_id = self._hands.create()
        snapshot = self._hands.snapshot(talk.session_id)
        for call in snapshot.calls:
            if call.status in {CallStatus.AWAITING_APPROVAL, CallStatus.AWAITING_ANSWER}:
                self._reply(talk, call)
            if call.id in snapshot.unknown_calls:
                self._look_up(talk, call)
        self._act(talk, snapshot)

    # --- what the script says

    def _act(self, talk: Talk, snapshot: Snapshot) -> None:
        idle = snapshot.status is SessionStatus.IDLE
        if talk.at == len(talk.script.acts):
            self._end(talk, snapshot)
            return
        try:
            done = self._perform(talk, snapshot, idle=idle)
        except Refused:
            # The turn or the message has moved on; only a message itself must never be refused.
            if isinstance(talk.script.acts[talk.at], Say):
                raise
            done = True
        talk.at += done

    def _perform(self, talk: Talk, snapshot: Snapshot, *, idle: bool) -> bool:
        session_id, plan = talk.session_id, snapshot.plan
        match talk.script.acts[talk.at]:
            case Say(at_once=False) | Execute() if not idle:
                return False
            case Say() as say:
                self._say(talk, say.message_id, say.text, plan_mode=say.plan_mode)
            case Execute() if plan is not None and plan.status is PlanStatus.DRAFT:
                self._hands.execute(session_id, plan.revision)
            case Steer(message_id):
                talk.steered |= set(talk.said) if message_id is None else {message_id}
                self._hands.steer(session_id, message_id)
            case Stop() if snapshot.turn is not None:
                self._hands.stop(session_id, snapshot.turn.id)
            case Delete(message_id):
                self._delete(talk, message_id)
            case Pause(seconds):
                talk.not_before = self._now + seconds
            case _:
                pass
        return True

    def _say(self, talk: Talk, message_id: str, text: str, *, plan_mode: bool = False) -> None:
        self._hands.send(talk.session_id, text, message_id, plan_mode=plan_mode)
        talk.said[message_id] = text

    def _delete(self, talk: Talk, message_id: str) -> None:
        already = message_id in talk.maybe_deleted
        talk.maybe_deleted.add(message_id)
        try:
            self._hands.delete(talk.session_id, message_id)
        except Refused:
            # Taken up by a turn, or deleted by an earlier try whose answer was lost.
            if not already:
                talk.maybe_deleted.remove(message_id)
            return
        talk.deleted.add(message_id)

    def _end(self, talk: Talk, snapshot: Snapshot) -> None:
        if snapshot.status is not SessionStatus.IDLE:
            talk.done = talk.script.left in {
                _label(call)
                for call in snapshot.calls
                if call.status is CallStatus.AWAITING_APPROVAL
            }
        elif snapshot.queue:
            # A stopped turn leaves messages in the queue; the next message lets them go first.
            message_id = f"{talk.script.number}-more-{talk.extra}"
            text = json.dumps({"label": message_id})
            self._say(talk, message_id, text)
            talk.extra += 1
        else:
            talk.done = True

    # --- what is asked of people

    def _reply(self, talk: Talk, call: CallRecord) -> None:
        label = _label(call)
        if label == talk.script.left:
            return
        chance = Random(f"{self._seed}/{label}/reply")
        asked_at = talk.asked_at.setdefault(call.id, self._now)
        if self._now < asked_at + chance.choice((0, 0.1, 1)):
            return
        try:
            if call.status is CallStatus.AWAITING_APPROVAL:
                self._decide(talk, call, chance)
            else:
                arguments = call.arguments if isinstance(call.arguments, dict) else {}
                answer = chance.choice(
                    ("left", "right") if "choices" in arguments else ("", 0, False)
                )
                self._hands.answer(talk.session_id, call.id, answer)
                talk.answers[call.id] = answer
        except Refused as error:
            if error.code not in _TOO_LATE:
                raise

    def _decide(self, talk: Talk, call: CallRecord, chance: Random) -> None:
        approve, forgets, contradicts = (chance.random() < at for at in (0.75, 0.3, 0.1))
        if forgets and call.tool == "charge_soon":
            return
        self._hands.decide(talk.session_id, call, approve=approve)
        talk.verdicts[call.id] = approve
        if contradicts:
            try:
                self._hands.decide(talk.session_id, call, approve=not approve)
            except Refused as error:
                if error.code != "already_decided":
                    raise
            else:
                raise AssertionError(f"call {call.id} was decided twice")

    def _look_up(self, talk: Talk, call: CallRecord) -> None:
        """Reconcile some unknown outcomes by what the ledger says, after a while."""
        if call.tool == "sql_book":
            return  # its own ledger tells, by itself
        since = talk.asked_at.setdefault(f"unknown {call.id}", self._now)
        chance = Random(f"{self._seed}/{_label(call)}/reconcile")
        if call.id in talk.reconciled or chance.random() < 0.5 or self._now < since + 1:
            return
        happened = self._ledger.happened(call.id)
        talk.reconciled[call.id] = happened
        try:
            self._hands.reconcile(talk.session_id, call.id, succeeded=happened)
        except Refused as error:
            if error.code != "not_unknown":
                raise


_TOO_LATE = {"unknown_call", "not_awaiting_approval", "not_awaiting_answer", "already_answered"}
"""A stop or steer was quicker, or an earlier try whose answer was lost."""


def _label(call: CallRecord) -> str:
    arguments = call.arguments if isinstance(call.arguments, dict) else {}
    return str(arguments.get("label") or arguments.get("question") or call.id)
