"""Reads chat chunks: deltas as they come, and one complete reply or none at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import JsonValue

from celeriac.connectors.broken_responses import broken, filtered, refused
from celeriac.connectors.litellm_fields import field_of, items_of, text_of
from celeriac.connectors.tool_call_assembly import BrokenCalls, ToolCallAssembly, ToolCallPiece
from celeriac.sessions.jsonsafe import clean_text, to_json_value
from celeriac.sessions.messages import Usage
from celeriac.sessions.model import (
    ModelCall,
    ModelError,
    ModelReply,
    ReasoningDelta,
    TextDelta,
)

__all__ = ["ChatReader"]


class ChatReader:
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
        self._refusal: list[str] = []
        self._refused = False
        self._signatures: list[JsonValue] = []

    def watch(self, raw: object) -> None:
        """Look at a chunk as the provider sent it, for what litellm leaves out: refusals and signatures."""
        choice = next(iter(items_of(raw, "choices")), None)
        delta = field_of(choice, "delta")
        self._refusal += filter(None, [text_of(delta, "refusal")])
        own = field_of(delta, "provider_specific_fields")
        self._refused = self._refused or text_of(own, "stop_reason") == "refusal"
        self._signatures += map(to_json_value, items_of(own, "thought_signatures"))

    def read(self, chunk: object) -> Iterator[TextDelta | ReasoningDelta]:
        """Take the next chunk and return what of it can be shown.

        Raises:
            ModelError: Its tool calls cannot be told apart.
        """
        self._response_id = self._response_id or text_of(chunk, "id")
        # The chunk with the usage has no choices.
        choice = next(iter(items_of(chunk, "choices")), None)
        if choice is None:
            return
        self._finish_reason = text_of(choice, "finish_reason") or self._finish_reason
        delta = field_of(choice, "delta")
        self._read_calls(delta)
        self._read_thinking(delta)
        if reasoning := text_of(delta, "reasoning_content"):
            self._reasoning.append(reasoning)
            yield ReasoningDelta(clean_text(reasoning))
        if text := text_of(delta, "content"):
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
            items_api="chat",
            usage=usage,
            finish_reason=self._finish_reason,
            model=self._model,
            reported_model=reported_model,
        )

    def _whole(self, *, certain_finish: bool) -> tuple[str, list[ModelCall]]:
        if self._finish_reason is None or not certain_finish:
            raise broken("the stream was cut before the answer was complete")
        text = clean_text("".join(self._text))
        if self._refusal or self._refused:
            raise refused("".join(self._refusal) or text)
        if self._finish_reason == "content_filter" and not (text and self._calls.empty):
            raise filtered()
        if self._finish_reason == "length" and not self._calls.empty:
            raise broken("the answer reached the model's output limit within its tool calls")
        calls = self._finished_calls()
        if not text.strip() and not calls:
            raise broken("the model answered nothing")
        return text, calls

    def _finished_calls(self) -> list[ModelCall]:
        try:
            made = self._calls.finish()
        except BrokenCalls as error:
            raise broken(f"the response is broken: {error}") from None
        return [
            ModelCall(clean_text(call.name), clean_text(call.arguments), call.provider_id)
            for call in made
        ]

    def _read_calls(self, delta: object) -> None:
        pieces = [_piece(call) for call in items_of(delta, "tool_calls")]
        try:
            self._calls.add(pieces)
        except BrokenCalls as error:
            raise broken(f"the response is broken: {error}") from None

    def _read_thinking(self, delta: object) -> None:
        """Join the pieces of thinking blocks; a signature ends its block."""
        for piece in items_of(delta, "thinking_blocks"):
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
        if self._signatures:
            item["provider_specific_fields"] = {"thought_signatures": list(self._signatures)}
        item["response_id"] = self._response_id
        return item


def _piece(call: object) -> ToolCallPiece:
    function = field_of(call, "function")
    index = field_of(call, "index")
    return ToolCallPiece(
        index=index if isinstance(index, int) else None,
        id=text_of(call, "id"),
        name=text_of(function, "name"),
        arguments=text_of(function, "arguments") or "",
    )
