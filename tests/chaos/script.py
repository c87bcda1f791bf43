"""What each session's person says and does: all of it drawn from the seed before anything runs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from pydantic import JsonValue

__all__ = ["Act", "Delete", "Execute", "Pause", "Say", "Script", "Steer", "Stop", "script_of"]

_READS = ("look", "look_async")
_CONNECTORS = ("stripe_create_refund", "sql_book")
_WRITES = (
    "put",
    "put_approved",
    "charge",
    "charge_async",
    "charge_timed",
    "charge_soon",
    "charge_approved",
    *_CONNECTORS,
)
_ENDS = (
    "raise-early",
    "raise-late",
    "memory-early",
    "memory-late",
    "system-late",
    "interrupt-early",
    "interrupt-late",
)
_DEADLY_ENDS = ("exit-early", "exit-late", "kill-early", "kill-late")


@dataclass(frozen=True, slots=True)
class Say:
    """Send a message: once the session is idle, or at once."""

    message_id: str
    text: str
    at_once: bool = False
    plan_mode: bool = False


@dataclass(frozen=True, slots=True)
class Execute:
    """Have the plan carried out that the last turn drafted."""


@dataclass(frozen=True, slots=True)
class Steer:
    """Apply a queued message, or (None) all of them."""

    message_id: str | None


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the turn that is open."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Take a message out of the queue again."""

    message_id: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for so many seconds."""

    seconds: float


Act = Say | Execute | Steer | Stop | Delete | Pause


@dataclass(frozen=True, slots=True)
class Script:
    """One session from beginning to end."""

    number: int
    acts: Sequence[Act]
    left: str | None
    """Label of the call whose approval is left waiting through everything; None when there is none."""


def script_of(seed: int, number: int) -> Script:
    """Write the script of one session.

    Args:
        seed: Decides everything, together with the number.
        number: Which session.
    """
    writer = _Writer(Random(f"{seed}/{number}"), number)
    for _ in range(writer.chance.randint(2, 5)):
        writer.turn()
    left = None
    if number % 5 == 4:
        left = f"{number}-left"
        call: tuple[str, dict[str, JsonValue]] = ("charge_approved", {"label": left})
        writer.say([[call]])
    return Script(number, tuple(writer.acts), left)


class _Writer:
    def __init__(self, chance: Random, number: int) -> None:
        self.chance = chance
        self.acts: list[Act] = []
        self._number = number
        self._said = 0

    def turn(self) -> None:
        """A message, and what its person does while it is worked on."""
        if self.chance.random() < 0.08:
            todos: JsonValue = [{"title": "sow"}, {"title": "reap"}]
            self.say([[("write_todos", {"todos": todos})]], plan_mode=True)
            self.acts.append(Execute())
            return
        self.say(self._rounds())
        match self.chance.choices(
            ("wait", "queue", "steer", "steer all", "stop", "delete"), (8, 2, 2, 1, 2, 1)
        ):
            case ["queue"]:
                self._pause()
                self.say(self._rounds(), at_once=True)
            case ["steer"]:
                self._pause()
                self.acts.append(Steer(self.say(self._rounds(), at_once=True)))
            case ["steer all"]:
                self._pause()
                self.say([], at_once=True)
                self.say(self._rounds(), at_once=True)
                self.acts.append(Steer(None))
            case ["stop"]:
                self._pause()
                self.acts.append(Stop())
            case ["delete"]:
                self._pause()
                self.acts.append(Delete(self.say([], at_once=True)))
            case _:
                pass

    def say(
        self,
        rounds: Sequence[Sequence[tuple[str, dict[str, JsonValue]]]],
        *,
        at_once: bool = False,
        plan_mode: bool = False,
    ) -> str:
        """A message; return its id."""
        message_id = f"{self._number}-{self._said}"
        self._said += 1
        wish = {
            "label": message_id,
            "words": self.chance.choice((0, 2, 5, 10)),
            "fail": self.chance.choices((0, 1, 2, 3), (17, 1, 1, 1))[0],
            "rounds": rounds,
        }
        self.acts.append(Say(message_id, json.dumps(wish), at_once, plan_mode))
        return message_id

    def _pause(self) -> None:
        self.acts.append(Pause(round(self.chance.uniform(0, 1), 2)))

    def _rounds(self) -> list[list[tuple[str, dict[str, JsonValue]]]]:
        return [
            [self._call(number, at) for at in range(self.chance.choice((1, 1, 2, 3, 5)))]
            for number in range(self.chance.choice((0, 1, 1, 2, 3)))
        ]

    def _call(self, number: int, at: int) -> tuple[str, dict[str, JsonValue]]:
        label = f"{self._number}-{self._said}/{number}.{at}"
        kind = self.chance.choices(("read", "write", "built-in", "wrong"), (3, 8, 2, 1))[0]
        if kind == "built-in":
            return self._built_in(label)
        if kind == "wrong":
            wrong: list[tuple[str, dict[str, JsonValue]]] = [
                ("no_such_tool", {"label": label}),
                ("charge", {}),
                ("charge", {"label": label, "pause": "long"}),
            ]
            return self.chance.choice(wrong)
        name = self.chance.choice(_READS if kind == "read" else _WRITES)
        if name == "stripe_create_refund":
            return name, {"payment": f"ch_{re.sub('[^0-9A-Za-z]', '_', label)}", "amount": 1}
        if name == "sql_book":
            return name, {"parameters": {"label": label}}
        arguments: dict[str, JsonValue] = {"label": label, "pause": self._tool_pause(name)}
        end = self.chance.choices(("", "refuse", "break", "die"), (40, 3, 5, 1))[0]
        if end == "refuse":
            arguments["end"] = "refuse"
        elif end:
            arguments["end"] = self.chance.choice(_ENDS if end == "break" else _DEADLY_ENDS)
        return name, arguments

    def _tool_pause(self, name: str) -> float:
        if name == "charge_timed" and self.chance.random() < 0.3:
            return 1.0
        return self.chance.choice((0.0, 0.0, 0.05, 0.2, self.chance.choice((0.5, 3.0))))

    def _built_in(self, label: str) -> tuple[str, dict[str, JsonValue]]:
        calls: list[tuple[str, dict[str, JsonValue]]] = [
            ("ask_user", {"question": label}),
            ("ask_user", {"question": label, "choices": ["left", "right"]}),
            ("durable_wait", {"seconds": 1 + round(self.chance.random(), 2), "reason": label}),
            ("write_todos", {"todos": [{"title": label}]}),
        ]
        return self.chance.choice(calls)
