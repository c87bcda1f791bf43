"""One request of OpenAI's Responses API, with nothing kept at the provider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from pydantic import JsonValue

from celeriac.connectors.litellm_module import LiteLlm
from celeriac.connectors.litellm_usage import usage_from
from celeriac.connectors.responses_items import input_items, response_tools
from celeriac.connectors.responses_stream import ResponsesReader
from celeriac.sessions.messages import Usage
from celeriac.sessions.model import ModelReply, ModelRequest, ReasoningDelta, TextDelta

__all__ = ["ResponsesCall"]

_ENCRYPTED = "reasoning.encrypted_content"


class ResponsesCall:
    """Sends one request and reads its stream.

    Args:
        litellm: The module.
        request: What to ask.
    """

    def __init__(self, litellm: LiteLlm, request: ModelRequest) -> None:
        self._litellm = litellm
        self._request = request
        self._reader = ResponsesReader(request.model)

    async def open(self, fixed: dict[str, object]) -> AsyncIterator[object]:
        """Send the request; `fixed` are arguments that no setting may change."""
        return await self._litellm.aresponses(**{**self._arguments(), **fixed})

    def _arguments(self) -> dict[str, object]:
        request, settings = self._request, self._request.settings
        effort = settings.reasoning_effort
        chosen = {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "max_output_tokens": settings.max_output_tokens,
            "reasoning": None if effort is None else {"effort": effort},
            "instructions": request.instructions if request.instructions.strip() else None,
            "tools": response_tools(request.tools) or None,
        }
        arguments: dict[str, object] = {k: v for k, v in chosen.items() if v is not None}
        arguments |= settings.extra
        items = input_items(request)
        more = arguments.get("extra_body")
        return {
            **arguments,
            "input": items,
            # litellm takes fields out of items that it knows; the provider gets them as it made them.
            "extra_body": {**(more if isinstance(more, dict) else {}), "input": items},
            "store": False,
            "include": _included(arguments.get("include")),
        }

    def read(self, chunk: object) -> Iterator[TextDelta | ReasoningDelta]:
        """Take the next event."""
        return self._reader.read(chunk)

    def reply(self) -> ModelReply:
        """Return the complete reply.

        Raises:
            ModelError: There is none.
        """
        return self._reader.reply(self._usage())

    def usage(self) -> Usage | None:
        """Return what was reported so far, if anything was."""
        return None if self._reader.report is None else self._usage()

    def _usage(self) -> Usage:
        reader = self._reader
        return usage_from(reader.report, self._litellm, self._request.model, reader.reported_model)


def _included(more: object) -> list[JsonValue]:
    """Ask for encrypted reasoning: it comes back with the next request, as nothing is kept there."""
    asked = [one for one in more if one != _ENCRYPTED] if isinstance(more, list) else []
    return [*asked, _ENCRYPTED]
