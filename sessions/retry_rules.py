"""Rules of retries: when the next attempt of a step may begin. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from celeriac.sessions.draft import Draft
from celeriac.sessions.jsonsafe import truncate_text
from celeriac.sessions.state import STATE_TEXT_BYTES, Step, StepTiming

__all__ = ["retry", "wait_ms"]


def retry(
    draft: Draft,
    step: Step,
    error: str,
    *,
    delay_ms: int | None,
    backoff_seconds: float | None,
    word: str,
    facts: Mapping[str, object] | None = None,
) -> None:
    """Schedule the next attempt of a step; the wait holds no worker and no message."""
    draft.attempt_ended(step, word, error=error, note="will be tried again", facts=facts)
    wait = wait_ms(draft, step, delay_ms, backoff_seconds)
    at = draft.now + wait
    timing = StepTiming(not_before=at, due=at) if wait else draft.sent_now()
    again = step.evolve(
        attempt=step.attempt + 1,
        last_error=truncate_text(error, STATE_TEXT_BYTES),
        last_failure=(facts or {}).get("failure"),
        timing=timing,
    )
    draft.replace_step(again)
    if wait == 0:
        draft.change.send.append(again)


def wait_ms(draft: Draft, step: Step, delay_ms: int | None, backoff_seconds: float | None) -> int:
    """Return the wait before the next attempt: what was asked for, else one that doubles, up to a maximum.

    Args:
        draft: The change in the making.
        step: The step whose attempt ended.
        delay_ms: The wait that a provider asked for.
        backoff_seconds: The first wait, where a tool has one of its own.
    """
    if delay_ms is not None:
        return delay_ms
    rules = draft.rules
    base = rules.retry_base_ms if backoff_seconds is None else int(backoff_seconds * 1000)
    return int(min(base * 2 ** (step.attempt - 1), max(rules.retry_max_ms, base)))
