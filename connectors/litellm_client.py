"""Real models, through litellm, streaming; one HTTP request per attempt."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Protocol

from celeriac.connectors.litellm_chat import ChatCall
from celeriac.connectors.litellm_errors import as_model_error
from celeriac.connectors.litellm_keys import NO_KEY, has_own_server, needs_no_key
from celeriac.connectors.litellm_module import LiteLlm, info_of, load_litellm, provider_of
from celeriac.connectors.litellm_responses import ResponsesCall
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.messages import ItemsApi, Usage
from celeriac.sessions.model import (
    ModelError,
    ModelReply,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
)

__all__ = ["LiteLlmClient"]

_OF_OPENAI = frozenset({"openai", "azure"})


class _Call(Protocol):
    """One request over one of the APIs."""

    async def open(self, fixed: dict[str, object]) -> AsyncIterator[object]: ...

    def read(self, chunk: object) -> Iterator[TextDelta | ReasoningDelta]: ...

    def reply(self) -> ModelReply: ...

    def usage(self) -> Usage | None: ...


class LiteLlmClient:
    """Calls any model that litellm knows; keys come from the worker's environment."""

    def __init__(self) -> None:
        self._without_usage: set[str] = set()
        """Models whose provider refused to be asked for usage."""
        self._without_responses: set[str] = set()
        """Models whose server has no Responses API."""

    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        """Make one request and yield its deltas, then the reply.

        Raises:
            ModelError: The attempt failed, or the stream was cut.
        """
        deadline = asyncio.get_running_loop().time() + request.timeout_seconds
        response: AsyncIterator[object] | None = None
        call: _Call | None = None
        try:
            # The import takes seconds the first time; other sessions' streams must go on meanwhile.
            litellm = await asyncio.to_thread(load_litellm)
            call = self._call(litellm, request)
            async with asyncio.timeout_at(deadline):
                response = await call.open(_fixed(request))
            while (chunk := await _next(response, deadline)) is not None:
                for delta in call.read(chunk):
                    yield delta
            yield call.reply()
        except Exception as error:  # noqa: BLE001 - any fault breaks this attempt, no more
            failed = self._learn(request, call, error)
            if failed.usage is None and call is not None:
                failed.usage = call.usage()
            raise failed from None
        finally:
            await _close(response)

    def _call(self, litellm: LiteLlm, request: ModelRequest) -> _Call:
        if request.images and not _sees_images(litellm, request.model):
            request = replace(request, images={})
        api = request.settings.api or _api_of(litellm, request.model)
        if api == "responses" and request.model not in self._without_responses:
            return ResponsesCall(litellm, request)
        return ChatCall(litellm, request, with_usage=request.model not in self._without_usage)

    def _learn(self, request: ModelRequest, call: _Call | None, error: Exception) -> ModelError:
        """Convert an error; what only this provider does not have, it is asked without next time."""
        converted = as_model_error(error)
        if converted.retryable:
            return converted
        if isinstance(call, ResponsesCall):
            # A server of one's own with a model of OpenAI's name, e.g. a gateway, may speak chat only.
            missing = converted.kind is FailureKind.NOT_FOUND and has_own_server(os.environ)
            lacks = missing and request.settings.api is None
            known = self._without_responses
        else:
            lacks = "stream_options" in str(error)
            known = self._without_usage
        if not lacks or request.model in known:
            return converted
        known.add(request.model)
        return ModelError(
            str(converted), retryable=True, retry_after_seconds=0, kind=converted.kind
        )


def _api_of(litellm: LiteLlm, model: str) -> ItemsApi:
    """Choose the API of a model: responses for what OpenAI calls reasoning models, chat for all others.

    Chat completions lose those models' reasoning between calls. The list of models is litellm's own.
    """
    if provider_of(litellm, model) not in _OF_OPENAI:
        return "chat"
    known = info_of(litellm, model)
    if known is None:
        return "chat"  # somebody else's, behind the same API
    reasons = known.get("mode") == "responses" or known.get("supports_reasoning")
    return "responses" if reasons else "chat"


def _sees_images(litellm: LiteLlm, model: str) -> bool:
    """Say whether a model takes images; one that litellm does not know is taken to."""
    known = info_of(litellm, model)
    return known is None or bool(known.get("supports_vision"))


def _fixed(request: ModelRequest) -> dict[str, object]:
    """Return the arguments that are not the agent's to choose."""
    keyless = needs_no_key(request.model, os.environ) and "api_key" not in request.settings.extra
    return {
        **({"api_key": NO_KEY} if keyless else {}),
        "model": request.model,
        "stream": True,
        "timeout": request.timeout_seconds,
        # The session retries; a library that does so too would multiply the attempts.
        "max_retries": 0,
        "num_retries": 0,
    }


async def _next(response: AsyncIterator[object], deadline: float) -> object | None:
    # The timeout is entered per chunk, so that it never spans a yield of the stream.
    async with asyncio.timeout_at(deadline):
        return await anext(response, None)


async def _close(response: object | None) -> None:
    close = getattr(response, "aclose", None)
    if close is not None:
        await close()
