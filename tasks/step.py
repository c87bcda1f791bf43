"""The one wrapper of every step: claim, run, commit. A step is a function from a claim to an input."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator

from celeriac.connectors.redaction import without_secrets
from celeriac.sessions.errors import NotFound, StoreUnavailable
from celeriac.sessions.inputs import Input, ModelReplied, StepFailed, StepReturned, ToolEnded
from celeriac.sessions.jsonsafe import clean_text
from celeriac.sessions.model import ModelError
from celeriac.sessions.state import StepName
from celeriac.sessions.store.loaded import Loaded
from celeriac.sessions.store.sessions import Claim, Verdict, new_claim_name
from celeriac.tasks.logs import log_facts
from celeriac.tasks.names import task_of
from celeriac.tasks.runtime import Runtime, runtime

__all__ = ["error_text", "run_step"]

_log = logging.getLogger(__name__)

_ERROR_MAX_CHARACTERS = 2_000
_FEW_SIBLINGS = 3

Work = Callable[[Runtime, Claim], Input]


def run_step(
    name: StepName, session_id: str, step_id: str, call_id: str | None, work: Work
) -> None:
    """Run one step, if it is still to be run and nobody else does.

    Args:
        name: Its kind.
        session_id: The session.
        step_id: The step.
        call_id: Its call, if any.
        work: Does the outside work and says what came of it.
    """
    here = runtime()
    about = {
        "session_id": session_id,
        "step_id": step_id,
        "step": name.value,
        "call_id": call_id,
        "worker": here.owner,
    }
    with log_facts(about) as facts:
        claim = claim_until_answered(here, name, session_id, step_id, call_id)
        if isinstance(claim, Verdict):
            # An expired claim is left to the wake loop: it knows whether the store was away, when every
            # lease looks expired and its worker may well be alive.
            _log.debug("Step %s of %s is not to be run: %s", step_id, session_id, claim.reason)
            return
        turn = claim.loaded.state.turn
        facts["task"] = task_of(claim.step)
        facts["attempt"] = claim.step.attempt
        facts["turn_id"] = turn.id if turn else None
        _run_claimed(here, claim, work)
    here.janitor.take(claim.messages)


def _run_claimed(here: Runtime, claim: Claim, work: Work) -> None:
    started = time.perf_counter()
    with here.leases.hold(claim), here.tracing.step(claim, here.owner) as tell:
        if here.stopping.is_set():
            outcome: Input = StepReturned(claim.step.id, claim.token, claim.step.call_id)
        else:
            outcome = _run(here, claim, work)
        tell(outcome)
        commit_until_answered(here, claim, outcome)
    if _log.isEnabledFor(logging.INFO):
        tool = claim.request.tool if claim.request else None
        milliseconds = (time.perf_counter() - started) * 1000
        _log.info(
            "%s  %s  %s, %.0f ms",
            claim.loaded.state.session_id,
            f"{claim.step.name.value} {tool}" if tool else claim.step.name.value,
            _in_words(outcome),
            milliseconds,
            extra={"facts": {"tool": tool, "duration_ms": round(milliseconds, 1)}},
        )


def _in_words(outcome: Input) -> str:
    match outcome:
        case ModelReplied(calls=calls):
            return (
                "calls " + ", ".join(call.request.tool for call in calls) if calls else "answered"
            )
        case ToolEnded(succeeded=succeeded):
            return "succeeded" if succeeded else "failed"
        case StepFailed(error=error):
            return f"broke: {error}"
        case StepReturned():
            return "given back, for this worker stops"
        case _:
            return type(outcome).__name__


def claim_until_answered(
    here: Runtime, name: StepName, session_id: str, step_id: str, call_id: str | None
) -> Claim | Verdict:
    """Claim a step; while the store is away it is tried again.

    A claim without an answer may have been made: a store that was frozen does it when it goes on. If nobody
    knew of it, its lease would run out and a single-attempt write that never began would count as unknown.
    """
    claim_name = new_claim_name()
    waits = _pauses()
    while True:
        try:
            return here.store.claim(
                session_id, step_id, name, call_id, here.owner, claim_name=claim_name
            )
        except StoreUnavailable as error:
            _log.warning("The claim of step %s of %s waits: %s", step_id, session_id, error)
            next(waits)


def _pauses() -> Iterator[None]:
    """Wait at each step, longer each time."""
    pause = threading.Event()
    wait = 0.05
    while True:
        pause.wait(wait)
        wait = min(wait * 2, 1.0)
        yield


def _run(here: Runtime, claim: Claim, work: Work) -> Input:
    try:
        return work(here, claim)
    except ModelError as error:
        return _model_failed(claim, error)
    except BaseException as error:  # noqa: BLE001 - whatever breaks is this attempt's outcome
        _log.exception("Step %s of %s broke", claim.step.id, claim.loaded.state.session_id)
        return StepFailed(claim.step.id, claim.token, error_text(error), claim.step.call_id)


def _model_failed(claim: Claim, error: ModelError) -> StepFailed:
    delay = error.retry_after_seconds
    return StepFailed(
        claim.step.id,
        claim.token,
        without_secrets(clean_text(str(error))),
        retryable=error.retryable,
        # Never before the moment that was asked for.
        delay_ms=None if delay is None else math.ceil(delay * 1000),
        kind=error.kind,
        usage=error.usage,
    )


def commit_until_answered(here: Runtime, claim: Claim, outcome: Input) -> None:
    """Commit an outcome; while the store is away it is kept and tried again.

    Whatever the store then holds is right: a commit that had been done makes the repetition a late result,
    which changes nothing.
    """
    session_id = claim.loaded.state.session_id
    waits = _pauses()
    crowded = _has_many_siblings(claim)
    loaded: Loaded | None = None if crowded else claim.loaded
    while True:
        try:
            with _queues.turn(session_id) if crowded else contextlib.nullcontext():
                state, changed = here.store.apply(session_id, outcome, loaded)
        except StoreUnavailable as error:
            _log.warning("Outcome of step %s of %s waits: %s", claim.step.id, session_id, error)
            next(waits)
            loaded = None
        except NotFound:
            _log.warning("Session %s is gone; the outcome of its step is dropped.", session_id)
            return
        else:
            if changed:
                here.tracing.moved_on(claim.loaded.state, state)
            return


class _Queues:
    """Lets siblings of one process commit one after the other: at the same moment all but one would fail.

    Only a matter of speed; what decides is the version.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[str, tuple[threading.Lock, list[None]]] = {}

    @contextlib.contextmanager
    def turn(self, session_id: str) -> Iterator[None]:
        """Wait for the siblings that came before."""
        with self._lock:
            lock, waiting = self._sessions.setdefault(session_id, (threading.Lock(), []))
            waiting.append(None)
        try:
            with lock:
                yield
        finally:
            with self._lock:
                waiting.pop()
                if not waiting:
                    del self._sessions[session_id]


_queues = _Queues()


def _has_many_siblings(claim: Claim) -> bool:
    """Whether what was read at the claim is surely stale: many calls of one response end meanwhile."""
    working = [step for step in claim.loaded.state.steps if not step.name.waits]
    return len(working) > _FEW_SIBLINGS


def error_text(error: BaseException) -> str:
    """Describe an exception for the record: its kind and message, without keys, bounded."""
    message = without_secrets(clean_text(str(error)).strip())
    kind = type(error).__name__
    return (f"{kind}: {message}" if message else kind)[:_ERROR_MAX_CHARACTERS]
