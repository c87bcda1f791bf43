"""One request of chat completions, which litellm speaks with every provider."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator

from celeriac.connectors.chat_messages import (
    chat_messages,
    chat_tools,
    has_cache_marks,
    mark_cached,
)
from celeriac.connectors.chat_stream import ChatReader
from celeriac.connectors.litellm_module import LiteLlm, provider_of
from celeriac.connectors.litellm_usage import has_reported, reported_model, usage_of
from celeriac.sessions.messages import Usage
from celeriac.sessions.model import ModelReply, ModelRequest, ReasoningDelta, TextDelta

__all__ = ["ChatCall"]


class ChatCall:
    """Sends one request and reads its stream.

    Args:
        litellm: The module.
        request: What to ask.
        with_usage: Whether the provider is asked to report what the call used.
    """

    def __init__(self, litellm: LiteLlm, request: ModelRequest, *, with_usage: bool) -> None:
        self._litellm = litellm
        self._request = request
        self._with_usage = with_usage
        self._reader = ChatReader(request.model)
        self._stream: object = None

    async def open(self, fixed: dict[str, object]) -> AsyncIterator[object]:
        """Send the request; `fixed` are arguments that no setting may change."""
        stream = await self._litellm.acompletion(**{**self._arguments(), **fixed})
        self._stream = stream
        _watch(stream, self._reader.watch)
        return stream

    def _arguments(self) -> dict[str, object]:
        request, settings = self._request, self._request.settings
        provider = provider_of(self._litellm, request.model)
        messages, tools = chat_messages(request, provider), chat_tools(request.tools)
        if settings.prompt_caching and has_cache_marks(provider, request.model):
            mark_cached(messages, tools)
        chosen = {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "max_tokens": settings.max_output_tokens,
            "reasoning_effort": settings.reasoning_effort,
        }
        arguments: dict[str, object] = {k: v for k, v in chosen.items() if v is not None}
        arguments |= settings.extra
        arguments["messages"] = messages
        if tools:
            arguments["tools"] = tools
        if self._with_usage:
            arguments["stream_options"] = {"include_usage": True}
        return arguments

    def read(self, chunk: object) -> Iterator[TextDelta | ReasoningDelta]:
        """Take the next chunk."""
        return self._reader.read(chunk)

    def reply(self) -> ModelReply:
        """Return the complete reply.

        Raises:
            ModelError: There is none.
        """
        return self._reader.reply(
            usage_of(self._stream, self._litellm, self._request.model),
            certain_finish=_finish_was_received(self._stream),
            reported_model=reported_model(getattr(self._stream, "chunks", ())),
        )

    def usage(self) -> Usage | None:
        """Return what was reported so far, if anything was."""
        if not has_reported(self._stream):
            return None
        return usage_of(self._stream, self._litellm, self._request.model)


def _finish_was_received(response: object) -> bool:
    """Say whether the provider itself ended the response; litellm makes up an end if it did not."""
    return any(
        getattr(response, name, None) is not None
        for name in ("received_finish_reason", "intermittent_finish_reason")
    )


class _Watched:
    """The provider's own stream within litellm's, each chunk seen as it came."""

    def __init__(self, inner: AsyncIterable[object], see: Callable[[object], None]) -> None:
        self._inner = inner
        self._chunks = aiter(inner)
        self._see = see

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> object:
        chunk = await anext(self._chunks)
        self._see(chunk)
        return chunk

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def _watch(response: object, see: Callable[[object], None]) -> None:
    inner: object = getattr(response, "completion_stream", None)
    if isinstance(inner, AsyncIterable):
        response.completion_stream = _Watched(inner, see)  # type: ignore[attr-defined]
