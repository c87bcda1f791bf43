"""Servers of one's own behind OpenAI's API. They may need no key, but the client libraries do: they get a word."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["NO_KEY", "has_own_server", "needs_no_key"]

NO_KEY = "none"
"""What is sent as the key where there is none; servers that check keys refuse it."""


def has_own_server(environment: Mapping[str, str]) -> bool:
    """Say whether models of OpenAI's API are asked at a server that the environment names."""
    return bool(environment.get("OPENAI_API_BASE") or environment.get("OPENAI_BASE_URL"))


def needs_no_key(model: str, environment: Mapping[str, str]) -> bool:
    """Say whether a model is at a server of one's own that was named without a key.

    Args:
        model: A model's name.
        environment: The worker's environment variables.
    """
    has_key = environment.get("OPENAI_API_KEY")
    return model.startswith("openai/") and has_own_server(environment) and not has_key
