"""Real models, through litellm's chat completions, streaming; one HTTP request per attempt."""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Protocol, cast

from pydantic import JsonValue

from celeriac.connectors.chat_messages import chat_messages, chat_tools
from celeriac.connectors.litellm_errors import as_model_error
from celeriac.connectors.litellm_stream import StreamReader
from celeriac.connectors.litellm_usage import has_reported, reported_model, usage_of
from celeriac.sessions.model import (
    ModelError,
    ModelReply,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
)

__all__ = ["LiteLlmClient", "load_litellm", "preload"]

_loading = threading.Lock()


class _LiteLlm(Protocol):
    """What we use of litellm; its own types would make every type check read all of it."""

    telemetry: bool
    suppress_debug_info: bool
    disable_aiohttp_transport: bool
    provider_list: Sequence[str]

    def acompletion(self, **arguments: object) -> Awaitable[AsyncIterator[object]]: ...

    def get_llm_provider(self, model: str) -> tuple[str, str, object, object]: ...

    def get_model_info(self, model: str) -> Mapping[str, object]: ...


def preload() -> None:
    """Import litellm now: it takes seconds and 200 MB, which forked children then share."""
    load_litellm()


def load_litellm() -> _LiteLlm:
    """Return litellm, imported without asking the network and silent about itself."""
    with _loading:
        # Read while litellm is imported: without them it fetches price lists and tokenizers.
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        os.environ.setdefault("LITELLM_OFFLINE_MODE", "true")
        module = cast("_LiteLlm", importlib.import_module("litellm"))
        module.telemetry = False
        module.suppress_debug_info = True
        # One HTTP client for all providers; the other one warns about sessions that it leaves open.
        module.disable_aiohttp_transport = True
        return module


class LiteLlmClient:
    """Calls any model that litellm knows; keys come from the worker's environment."""

    def __init__(self) -> None:
        self._without_usage: set[str] = set()
        """Models whose provider refused to be asked for usage."""

    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        """Make one request and yield its deltas, then the reply.

        Raises:
            ModelError: The attempt failed, or the stream was cut.
        """
        deadline = asyncio.get_running_loop().time() + request.timeout_seconds
        reader = StreamReader(request.model)
        response: AsyncIterator[object] | None = None
        litellm: _LiteLlm | None = None
        try:
            # The import takes seconds the first time; other sessions' streams must go on meanwhile.
            litellm = await asyncio.to_thread(load_litellm)
            async with asyncio.timeout_at(deadline):
                response = await litellm.acompletion(**self._arguments(request))
            while (chunk := await _next(response, deadline)) is not None:
                for delta in reader.read(chunk):
                    yield delta
            yield reader.reply(
                usage_of(response, litellm, request.model),
                certain_finish=_finish_was_received(response),
                reported_model=reported_model(getattr(response, "chunks", ())),
            )
        except Exception as error:  # noqa: BLE001 - any fault breaks this attempt, no more
            failed = self._learn(request, error)
            if failed.usage is None and has_reported(response):
                failed.usage = usage_of(response, litellm, request.model)
            raise failed from None
        finally:
            await _close(response)

    def _arguments(self, request: ModelRequest) -> dict[str, object]:
        arguments: dict[str, object] = dict(request.settings.extra)
        arguments.update(
            model=request.model,
            messages=chat_messages(request),
            stream=True,
            timeout=request.timeout_seconds,
            # The session retries; a library that does so too would multiply the attempts.
            max_retries=0,
            num_retries=0,
        )
        tools: Sequence[JsonValue] = chat_tools(request.tools)
        if tools:
            arguments["tools"] = tools
        if request.model not in self._without_usage:
            arguments["stream_options"] = {"include_usage": True}
        return arguments

    def _learn(self, request: ModelRequest, error: Exception) -> ModelError:
        """Convert an error; a provider that refuses only the usage option is asked without it next."""
        converted = as_model_error(error)
        refused = not converted.retryable and "stream_options" in str(error)
        if refused and request.model not in self._without_usage:
            self._without_usage.add(request.model)
            return ModelError(
                str(converted), retryable=True, retry_after_seconds=0, kind=converted.kind
            )
        return converted


async def _next(response: AsyncIterator[object], deadline: float) -> object | None:
    # The timeout is entered per chunk, so that it never spans a yield of the stream.
    async with asyncio.timeout_at(deadline):
        return await anext(response, None)


def _finish_was_received(response: object) -> bool:
    """Say whether the provider itself ended the response; litellm makes up an end if it did not."""
    return any(
        getattr(response, name, None) is not None
        for name in ("received_finish_reason", "intermittent_finish_reason")
    )


async def _close(response: object | None) -> None:
    close = getattr(response, "aclose", None)
    if close is not None:
        await close()
