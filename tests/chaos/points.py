"""Named points at which a worker kills or freezes itself, drawn from the seed and the name of the work.

Workers that load `tests.chaos.agents` get the points around claims, commits and looks of the wake loop by
wrapping the store's methods; the product knows nothing of them. What happens at a point depends on nothing
but the seed, the label of the work, the point and the attempt; only the looks of the wake loop have no label
that repeats.
"""

from __future__ import annotations

import functools
import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from celeriac.sessions.inputs import StepReport, WokenUp
from celeriac.sessions.store.sessions import Claim, SessionStore
from tests.chaos.ledger import Ledger

__all__ = ["LEDGER", "draw", "install", "pass_point", "strike"]

LEDGER = Ledger(Path(os.environ.get("CHAOS_LEDGER", os.devnull)))
SEED = os.environ.get("CHAOS_SEED", "0")
RATE = float(os.environ.get("CHAOS_RATE", "0"))
"""How often a point that is passed kills or freezes, from 0 to 1."""
LOOKS = 0.1
"""Looks are many where work has piled up, and a worker that dies at each of the first ones never works it off."""
LEASE = float(os.environ.get("CELERIAC_LEASE_SECONDS", "8"))

Method = Callable[..., object]


class _Work(threading.local):
    label = ""
    attempt = 0


_work = _Work()


def draw(*names: object) -> float:
    """Return a number from 0 to 1 that the seed and these names decide."""
    text = "/".join(str(name) for name in (SEED, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6]) / 2**48


def pass_point(point: str, label: str, attempt: int, *, rate: float = RATE) -> None:
    """Pass a named point; perhaps this process does not live to return."""
    lot = draw(label, point, attempt)
    if lot >= rate:
        return
    if lot < rate * 0.6:
        strike("kill", point, label, attempt)
    else:
        # Half of them shorter than the lease.
        how_long = draw(label, point, attempt, "freeze")
        seconds = LEASE * (how_long + 0.1 if how_long < 0.5 else 1 + how_long)
        LEDGER.strike("freeze", point, label, attempt, seconds)
        os.kill(os.getpid(), signal.SIGSTOP)


def strike(kind: str, point: str, label: str, attempt: int) -> None:
    """Enter in the ledger how this process ends, and end it."""
    LEDGER.strike(kind, point, label, attempt, None)
    if kind == "exit":
        os._exit(7)
    os.kill(os.getpid(), signal.SIGKILL)


def install() -> None:
    """Put the points around what the store does for a worker."""
    _wrap(SessionStore, "claim", _claiming)
    _wrap(SessionStore, "apply", _applying)


def _wrap(owner: type, name: str, wrapper: Callable[[Method], Method]) -> None:
    setattr(owner, name, wrapper(getattr(owner, name)))


def _claiming(claim: Method) -> Method:
    @functools.wraps(claim)
    def wrapped(*args: object, **options: object) -> object:
        answer = claim(*args, **options)
        if isinstance(answer, Claim):
            _work.label, _work.attempt = _label_of(answer), answer.step.attempt
            pass_point("after claim", _work.label, _work.attempt)
        return answer

    return wrapped


def _applying(apply: Method) -> Method:
    @functools.wraps(apply)
    def wrapped(
        store: SessionStore, session_id: str, event: object, *args: object, **options: object
    ) -> object:
        if isinstance(event, WokenUp):
            # Which looks there are is up to the moment; the same draw for all would kill every worker.
            _work.label, _work.attempt = session_id, time.monotonic_ns()
            what, rate = "look", RATE * LOOKS
        elif isinstance(event, StepReport):
            what, rate = "commit", RATE
        else:
            return apply(store, session_id, event, *args, **options)
        pass_point(f"before {what}", _work.label, _work.attempt, rate=rate)
        answer = apply(store, session_id, event, *args, **options)
        pass_point(f"after {what}", _work.label, _work.attempt, rate=rate)
        return answer

    return wrapped


def _label_of(claim: Claim) -> str:
    if claim.request is not None:
        arguments = claim.request.arguments
        return str(arguments.get("label")) if isinstance(arguments, dict) else "?"
    turn = claim.loaded.state.turn
    if turn is None or not turn.message_ids:
        return f"plan of {turn.id if turn else None}"
    return f"{turn.message_ids[0]}/{claim.step.name.value}-{turn.model_calls}"
