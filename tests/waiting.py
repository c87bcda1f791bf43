"""Wait for a condition instead of for a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest


def wait_until(
    predicate: Callable[[], object], description: str, *, timeout_seconds: float = 10
) -> None:
    """Return as soon as `predicate` holds; fail the test, naming `description`, when it never does."""
    pause = threading.Event()
    deadline = time.monotonic() + timeout_seconds
    while not predicate():
        if time.monotonic() >= deadline:
            pytest.fail(f"waited {timeout_seconds:g} s in vain until {description}")
        pause.wait(0.01)
