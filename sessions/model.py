"""What a model client is: one request in, deltas and then one reply out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import JsonValue

from celeriac.sessions.errors import CeleriacError
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.messages import ItemsApi, Message, Usage
from celeriac.sessions.model_settings import ModelSettings
from celeriac.sessions.tools import ToolDefinition

__all__ = [
    "ItemsApi",
    "ModelCall",
    "ModelClient",
    "ModelError",
    "ModelReply",
    "ModelRequest",
    "ReasoningDelta",
    "TextDelta",
]


class ModelError(CeleriacError):
    """One attempt of a model call failed.

    Args:
        message: What happened, without any key or header.
        retryable: Whether the same request may work later.
        retry_after_seconds: The wait that the provider asked for, if any.
        context_full: Whether the request was too long for the model.
        kind: What kind of failure it was, if that is known.
        usage: What the attempt used all the same; None when nothing, as far as is known.
    """

    def __init__(
        self,
        message: str,
        *,
        retryable: bool,
        retry_after_seconds: float | None = None,
        context_full: bool = False,
        kind: FailureKind | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds
        self.context_full = context_full
        self.kind = FailureKind.TOO_LARGE if context_full else kind
        self.usage = usage


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Everything a model client needs for one call."""

    model: str
    instructions: str
    messages: Sequence[Message]
    """The active context, oldest first; each call is directly followed by its result."""
    tools: Sequence[ToolDefinition]
    session_id: str
    turn_id: str
    attempt: int
    timeout_seconds: float
    settings: ModelSettings = field(default_factory=ModelSettings)
    images: Mapping[str, bytes] = field(default_factory=dict)
    """The images that are sent, by their id; of the messages' others only a word is."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's visible reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A tool call as the model wrote it; nothing about it is trusted."""

    name: str
    arguments: str
    provider_id: str | None = None


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A complete response. A broken or cut one is a `ModelError`, never a reply."""

    text: str
    calls: Sequence[ModelCall] = ()
    reasoning: str = ""
    items: Sequence[JsonValue] = ()
    """The provider's output items, verbatim."""
    items_api: ItemsApi = "chat"
    """The API whose items they are."""
    usage: Usage = field(default_factory=Usage)
    finish_reason: str | None = None
    model: str | None = None
    """The model that was asked: its items go back to no other."""
    reported_model: str | None = None
    """The model that answered, as its provider names it."""
    first_token_ms: int | None = None
    """Milliseconds to the first delta; measured by the step that reads the stream."""
    latency_ms: int | None = None
    """Milliseconds to this reply; measured likewise."""


class ModelClient(Protocol):
    """Talks to one model service. One request per call of `stream`; never retries by itself."""

    def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        """Yield deltas as they come and the complete reply last.

        Raises:
            ModelError: The attempt failed; nothing of it may be used.
        """
