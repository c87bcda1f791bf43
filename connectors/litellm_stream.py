"""Reads litellm's chunks: deltas as they come, and one complete reply or none at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import BaseModel, JsonValue

from celeriac.connectors.tool_call_assembly import BrokenCalls, ToolCallAssembly, ToolCallPiece
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.jsonsafe import clean_text, to_json_value
from celeriac.sessions.messages import Usage
from celeriac.sessions.model import (
    ModelCall,
    ModelError,
    ModelReply,
    ReasoningDelta,
    TextDelta,
)

__all__ = ["StreamReader"]


class StreamReader:
    """Collects one response.

    Args:
        model: The name that the request used.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._thinking: list[dict[str, JsonValue]] = []
        self._calls = ToolCallAssembly()
        self._finish_reason: str | None = None
        self._response_id: str | None = None

    def read(self, chunk: object) -> Iterator[TextDelta | ReasoningDelta]:
        """Take the next chunk and return what of it can be shown.

        Raises:
            ModelError: Its tool calls cannot be told apart.
        """
        self._response_id = self._response_id or _text(chunk, "id")
        # The chunk with the usage has no choices.
        choice = next(iter(_list(chunk, "choices")), None)
        if choice is None:
            return
        self._finish_reason = _text(choice, "finish_reason") or self._finish_reason
        delta = getattr(choice, "delta", None)
        self._read_calls(delta)
        self._read_thinking(delta)
        if reasoning := _text(delta, "reasoning_content"):
            self._reasoning.append(reasoning)
            yield ReasoningDelta(clean_text(reasoning))
        if text := _text(delta, "content"):
            self._text.append(text)
            yield TextDelta(clean_text(text))

    def reply(
        self, usage: Usage, *, certain_finish: bool, reported_model: str | None = None
    ) -> ModelReply:
        """Return the complete reply.

        Args:
            usage: What it used.
            certain_finish: Whether the provider itself said that the response ended.
            reported_model: The model that answered, as its provider names it.

        Raises:
            ModelError: The response is cut or broken, so that nothing of it may be used; what it used
                counts all the same.
        """
        try:
            text, calls = self._whole(certain_finish=certain_finish)
        except ModelError as error:
            error.usage = usage
            raise
        return ModelReply(
            text=text,
            calls=calls,
            reasoning=clean_text("".join(self._reasoning)),
            items=(self._item(text, calls),),
            usage=usage,
            finish_reason=self._finish_reason,
            model=self._model,
            reported_model=reported_model,
        )

    def _whole(self, *, certain_finish: bool) -> tuple[str, list[ModelCall]]:
        if self._finish_reason is None or not certain_finish:
            raise _broken("the stream was cut before the answer was complete")
        text = clean_text("".join(self._text))
        if self._finish_reason == "content_filter" and not (text and self._calls.empty):
            raise ModelError(
                "the provider's content filter stopped the answer, or the model refused it",
                retryable=False,
                kind=FailureKind.CONTENT_POLICY,
            )
        if self._finish_reason == "length" and not self._calls.empty:
            raise _broken("the answer reached the model's output limit within its tool calls")
        calls = self._finished_calls()
        if not text.strip() and not calls:
            raise _broken("the model answered nothing")
        return text, calls

    def _finished_calls(self) -> list[ModelCall]:
        try:
            made = self._calls.finish()
        except BrokenCalls as error:
            raise _broken(f"the response is broken: {error}") from None
        return [
            ModelCall(clean_text(call.name), clean_text(call.arguments), call.provider_id)
            for call in made
        ]

    def _read_calls(self, delta: object) -> None:
        pieces = [_piece(call) for call in _list(delta, "tool_calls")]
        try:
            self._calls.add(pieces)
        except BrokenCalls as error:
            raise _broken(f"the response is broken: {error}") from None

    def _read_thinking(self, delta: object) -> None:
        """Join the pieces of thinking blocks; a signature ends its block."""
        for piece in _list(delta, "thinking_blocks"):
            block = to_json_value(piece)
            if not isinstance(block, dict):
                continue
            block.pop("index", None)  # litellm's own; providers refuse it
            last = self._thinking[-1] if self._thinking else None
            ended = last is None or last.get("type") != "thinking" or last.get("signature")
            if last is None or ended or block.get("type") != "thinking":
                self._thinking.append(block)
                continue
            last["thinking"] = f"{last.get('thinking') or ''}{block.get('thinking') or ''}"
            last["signature"] = block.get("signature") or ""

    def _item(self, text: str, calls: Sequence[ModelCall]) -> JsonValue:
        """Return the assistant message as the provider made it, with the provider's own ids."""
        item: dict[str, JsonValue] = {"role": "assistant", "content": text or None}
        if calls:
            item["tool_calls"] = [
                {
                    "id": call.provider_id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in calls
            ]
        if self._reasoning:
            item["reasoning_content"] = clean_text("".join(self._reasoning))
        if self._thinking:
            item["thinking_blocks"] = list(self._thinking)
        item["response_id"] = self._response_id
        return item


def _broken(what: str) -> ModelError:
    return ModelError(what, retryable=True, kind=FailureKind.BROKEN)


def _piece(call: object) -> ToolCallPiece:
    function = getattr(call, "function", None)
    index = getattr(call, "index", None)
    return ToolCallPiece(
        index=index if isinstance(index, int) else None,
        id=_text(call, "id"),
        name=_text(function, "name"),
        arguments=_text(function, "arguments") or "",
    )


def _list(holder: object, name: str) -> Sequence[object]:
    value = _get(holder, name)
    return value if isinstance(value, list) else ()


def _text(holder: object, name: str) -> str | None:
    value = _get(holder, name)
    return value if isinstance(value, str) and value else None


def _get(holder: object, name: str) -> object:
    if isinstance(holder, Mapping) and not isinstance(holder, BaseModel):
        return holder.get(name)
    return getattr(holder, name, None)
