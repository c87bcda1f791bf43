"""How one attempt of an operation ends: in a branch that its manifest declares."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import JsonValue

__all__ = ["Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of an attempt.

    Attempts that certainly did nothing raise `celeriac.ToolNotRun`, and those of which nobody knows
    `celeriac.ToolOutcomeUnknown`; everything else is one of the manifest's branches.
    """

    branch: str
    """Id of a branch of the operation; the manifest says how the call is then recorded."""
    value: JsonValue = None
    """What the model reads of a call that succeeded."""
    message: str = ""
    """Why it did not succeed; without anything of the provider's that may be secret."""
