"""What the model of every kit does: one script, whatever framework asks.

A message may be ``/calls [["tool", {...}], ...]`` (arguments that are a text go as they are), ``/recall`` (say all
that the model can read), ``/hold <gate> <text>`` (say a part, wait for the gate, then the rest) or
``/hand <agent>`` (hand off, where a framework can). Anything else is echoed. After results it says them.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

__all__ = ["Heard", "Said", "hold", "note", "respond"]


@dataclass(frozen=True)
class Heard:
    """One message as a framework gave it to its model."""

    role: Literal["user", "assistant", "tool"]
    text: str


@dataclass(frozen=True)
class Said:
    """What the model puts out."""

    text: str = ""
    calls: Sequence[tuple[str, str]] = ()
    hand_to: str | None = None
    gate: str = ""
    reasoning: str = field(default="I think.")


def respond(speaker: str, heard: Sequence[Heard]) -> Said:
    """Say what the model of an agent answers to a request; each request leaves a note."""
    asked = max((at for at, one in enumerate(heard) if one.role == "user"), default=-1)
    results = [one.text for one in heard[asked + 1 :] if one.role == "tool"]
    text = heard[asked].text if heard else ""
    note("model", [f"{one.role}: {one.text}" for one in heard])
    if text.startswith("/hand "):
        where = text.removeprefix("/hand ")
        return Said(f"{speaker} here.") if speaker == where else Said(hand_to=where)
    if results:
        return Said("Results: " + " | ".join(results))
    if text.startswith("/calls "):
        calls = json.loads(text.removeprefix("/calls "))
        return Said(
            "Let me see. ",
            [
                (name, given if isinstance(given, str) else json.dumps(given))
                for name, given in calls
            ],
        )
    if text.startswith("/recall"):
        return Said(" | ".join(f"{one.role}: {one.text}" for one in heard))
    if text.startswith("/hold "):
        _, gate, words = text.split(" ", 2)
        return Said(words, gate=gate)
    if text.startswith("The transcript:"):
        return Said("SUMMARY of what was said.")
    return Said(f"{speaker} heard: {text}")


async def hold(gate: str) -> None:
    """Wait until the gate is open."""
    while gate and not (_root() / f"gate-{gate}").exists():
        await asyncio.sleep(0.02)


def _root() -> Path:
    return Path(os.environ["HARNESS_DIR"])


def note(what: str, value: object) -> None:
    """Append one line; a single small write to a file opened for appending is whole."""
    with (_root() / "notes").open("ab", buffering=0) as file:
        file.write(json.dumps([what, os.getpid(), value]).encode() + b"\n")
