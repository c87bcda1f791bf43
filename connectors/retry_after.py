"""How long a server asks to wait. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

__all__ = ["retry_after_seconds", "retry_delay_in"]

_DELAY = re.compile(r"retryDelay\W{1,8}(\d{1,9}(?:\.\d{1,9})?)s")


def retry_after_seconds(headers: Mapping[str, str], now: float) -> float | None:
    """Read the wait from response headers.

    Args:
        headers: Response headers, under names of any case.
        now: The time in Unix seconds, for a wait given as a date.

    Returns:
        Seconds from now, never negative; None when the server says nothing that can be understood.
    """
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    milliseconds = _number(lower.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = lower.get("retry-after")
    seconds = _number(text)
    return seconds if seconds is not None else _until(text, now)


def retry_delay_in(text: str) -> float | None:
    """Read the wait that Google gives in the error itself, as ``"retryDelay": "34.07s"``.

    Args:
        text: The error.

    Returns:
        Seconds from now; None when there is none.
    """
    found = _DELAY.search(text)
    return float(found.group(1)) if found else None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _until(text: str | None, now: float) -> float | None:
    if not text:
        return None
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None
