"""Celeriac's own loop as a harness: one request to a model client per step, and nothing to remember."""

from __future__ import annotations

from collections.abc import AsyncIterator

from celeriac.sessions.harness import ModelStepContext
from celeriac.sessions.model import (
    ModelClient,
    ModelReply,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
)

__all__ = ["BuiltInLoop"]


class BuiltInLoop:
    """Asks a model client; the conversation is all its state.

    Args:
        client: The client of the model that is asked.
    """

    name = "built-in"
    version = ""

    def __init__(self, client: ModelClient) -> None:
        self._client = client

    def run_model(
        self, context: ModelStepContext
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        """Send the request; see `Harness`."""
        return self._client.stream(context.request)

    def summarise(
        self, request: ModelRequest
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        """Send the request; see `Harness`."""
        return self._client.stream(request)
