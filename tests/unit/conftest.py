"""How Hypothesis searches here: briefly at every run, and the same way each time in CI."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "unit",
    max_examples=40,
    # A busy machine must not make a test flicker.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("unit")
