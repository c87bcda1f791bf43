"""The ways in which models are asked, and how litellm is told to find them at a server of the tests."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ANTHROPIC",
    "CHAT",
    "CHAT_ONLY",
    "DIALECTS",
    "OPENAI_KEY",
    "RESPONSES",
    "Dialect",
    "environment",
]

OPENAI_KEY = "sk-test-0123456789abcdef"
_ANTHROPIC_KEY = "sk-ant-test-0123456789"


@dataclass(frozen=True)
class Dialect:
    """A provider's API.

    Args:
        name: What the tests call it.
        model: A model that is asked in it.
        path: Where the request goes.
    """

    name: str
    model: str
    path: str


CHAT = Dialect("chat", "openai/gpt-4o-mini", "/v1/chat/completions")
RESPONSES = Dialect("responses", "openai/gpt-5-mini", "/v1/responses")
ANTHROPIC = Dialect("anthropic", "anthropic/claude-sonnet-4-5", "/v1/messages")
CHAT_ONLY = "openai/gpt-5"
"""A model of the Responses API for tests in which the server does not have that API."""
DIALECTS = (CHAT, RESPONSES, ANTHROPIC)


def environment(url: str) -> dict[str, str]:
    """Return what a user sets to have every dialect spoken to one server.

    Args:
        url: The server's, without ``/v1``.
    """
    return {
        "OPENAI_API_KEY": OPENAI_KEY,
        "OPENAI_API_BASE": f"{url}/v1",
        "ANTHROPIC_API_KEY": _ANTHROPIC_KEY,
        "ANTHROPIC_API_BASE": url,
    }
