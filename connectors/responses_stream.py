"""Reads events of OpenAI's Responses API: deltas as they come, and one complete reply or none at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from celeriac.connectors.broken_responses import broken, filtered, refused
from celeriac.connectors.litellm_fields import field_of, items_of, json_of, text_of
from celeriac.sessions.jsonsafe import clean_text
from celeriac.sessions.messages import Usage
from celeriac.sessions.model import (
    ModelCall,
    ModelError,
    ModelReply,
    ReasoningDelta,
    TextDelta,
)

__all__ = ["ResponsesReader"]

JsonObject = Mapping[str, JsonValue]
_BETWEEN = "\n\n"
_REASONING = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
_BEGINS = frozenset({"response.reasoning_summary_part.added", "response.output_item.added"})
_ENDS = frozenset({"response.completed", "response.incomplete"})


class ResponsesReader:
    """Collects one response.

    Args:
        model: The name that the request used.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._items: dict[int, JsonValue] = {}
        self._shown_text = self._shown_reasoning = False
        self._end: object = None

    @property
    def report(self) -> object:
        """What was reported of its usage, once it has ended."""
        return field_of(self._end, "usage")

    @property
    def reported_model(self) -> str | None:
        """The model that answered, as its provider names it."""
        return text_of(self._end, "model")

    def read(self, event: object) -> Iterator[TextDelta | ReasoningDelta]:
        """Take the next event and return what of it can be shown."""
        kind = str(getattr(field_of(event, "type"), "value", field_of(event, "type")))
        if kind == "response.output_item.done":
            self._keep(event)
        elif kind in _ENDS:
            self._end = field_of(event, "response")
        elif kind in _BEGINS:
            yield from self._between(kind, event)
        elif text := text_of(event, "delta"):
            yield from self._delta(kind, clean_text(text))

    def _delta(self, kind: str, text: str) -> Iterator[TextDelta | ReasoningDelta]:
        if kind == "response.output_text.delta":
            self._shown_text = True
            yield TextDelta(text)
        elif kind in _REASONING:
            self._shown_reasoning = True
            yield ReasoningDelta(text)

    def _between(self, kind: str, event: object) -> Iterator[TextDelta | ReasoningDelta]:
        """Part what follows from what was shown of an earlier part."""
        if kind == "response.reasoning_summary_part.added":
            if self._shown_reasoning:
                yield ReasoningDelta(_BETWEEN)
        elif self._shown_text and text_of(field_of(event, "item"), "type") == "message":
            yield TextDelta(_BETWEEN)

    def _keep(self, event: object) -> None:
        at = field_of(event, "output_index")
        self._items[at if isinstance(at, int) else len(self._items)] = json_of(
            field_of(event, "item")
        )

    def reply(self, usage: Usage) -> ModelReply:
        """Return the complete reply.

        Args:
            usage: What it used.

        Raises:
            ModelError: The response is cut or broken, or is a refusal, so that nothing of it may be used;
                what it used counts all the same.
        """
        try:
            return self._reply(usage)
        except ModelError as error:
            error.usage = usage
            raise

    def _reply(self, usage: Usage) -> ModelReply:
        if self._end is None:
            raise broken("the stream was cut before the answer was complete")
        if (status := text_of(self._end, "status")) in {"failed", "cancelled"}:
            raise broken(f"the provider ended the response as {status}")
        items = self._whole_items()
        text = _BETWEEN.join(filter(None, map(_message_text, items)))
        if (refusal := "".join(map(_refusal, items))).strip():
            raise refused(refusal)
        calls = [_call(item) for item in items if item.get("type") == "function_call"]
        finish = self._finish(has_text=bool(text.strip()), has_calls=bool(calls))
        if not text.strip() and not calls:
            raise broken("the model answered nothing")
        return ModelReply(
            text=text,
            calls=calls,
            reasoning=_BETWEEN.join(filter(None, map(_reasoning, items))),
            items=[dict(item) for item in items],
            items_api="responses",
            usage=usage,
            finish_reason=finish,
            model=self._model,
            reported_model=self.reported_model,
        )

    def _whole_items(self) -> Sequence[JsonObject]:
        found = [self._items[at] for at in sorted(self._items)]
        if not found:
            # Some servers send no event for an item that is done.
            found = [json_of(item) for item in items_of(self._end, "output")]
        return [item for item in found if isinstance(item, dict)]

    def _finish(self, *, has_text: bool, has_calls: bool) -> str:
        if text_of(self._end, "status") != "incomplete":
            return "tool_calls" if has_calls else "stop"
        reason = text_of(field_of(self._end, "incomplete_details"), "reason")
        if reason == "content_filter":
            if has_calls or not has_text:
                raise filtered()
            return "content_filter"
        if has_calls:
            raise broken("the answer reached the model's output limit within its tool calls")
        if not has_text:
            raise broken("the model reached its output limit before it answered")
        return "length"


def _call(item: JsonObject) -> ModelCall:
    name, call_id = item.get("name"), item.get("call_id")
    if not isinstance(name, str) or not name:
        raise broken("the response is broken: a call came without the name of its tool")
    if item.get("status") == "incomplete":
        raise broken(f"the response is broken: the arguments of {name} were cut")
    arguments = item.get("arguments")
    text = arguments if isinstance(arguments, str) and arguments.strip() else "{}"
    return ModelCall(name, text, call_id if isinstance(call_id, str) else None)


def _message_text(item: JsonObject) -> str:
    return "".join(_parts(item, "message", "content", "output_text"))


def _refusal(item: JsonObject) -> str:
    return "".join(_parts(item, "message", "content", "refusal"))


def _reasoning(item: JsonObject) -> str:
    summary = _parts(item, "reasoning", "summary", "summary_text")
    return _BETWEEN.join(summary or _parts(item, "reasoning", "content", "reasoning_text"))


def _parts(item: JsonObject, kind: str, holder: str, part: str) -> list[str]:
    """Return the texts of one kind of part of one kind of item."""
    if item.get("type") != kind:
        return []
    name = "refusal" if part == "refusal" else "text"
    found = [one for one in items_of(item, holder) if text_of(one, "type") == part]
    return [text_of(one, name) or "" for one in found]
