"""What a strict provider would refuse in a request, as it came over the wire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

Json = Mapping[str, object]


def wire_problems(body: Json) -> list[str]:
    """List what is wrong with a request of chat completions, Anthropic's messages or responses."""
    if "input" in body:
        return _input_problems(cast("Sequence[Json]", body["input"]))
    messages = cast("Sequence[Json]", body.get("messages", ()))
    problems: list[str] = []
    awaited: list[object] = []
    for at, message in enumerate(messages):
        results = [*_results(message)]
        problems += [f"message {at} answers {one!r}" for one in results if one not in awaited]
        problems += [f"message {at} leaves {one!r} out" for one in awaited if not results]
        awaited = [one for one in awaited if one not in results] if results else []
        awaited += _calls(message)
        problems += [f"message {at}: {problem}" for problem in _content_problems(message)]
    return problems + [f"{one!r} has no result" for one in awaited]


def _input_problems(items: Sequence[Json]) -> list[str]:
    """Calls have one result each, after them and before anybody else speaks; reasoning is never alone."""
    problems: list[str] = []
    awaited: list[object] = []
    seen: set[object] = set()
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "function_call_output":
            if item["call_id"] in awaited:
                awaited.remove(item["call_id"])
            else:
                problems.append(f"item {at} answers {item['call_id']!r}")
            continue
        if awaited and item.get("role") == "user":
            problems.append(f"item {at} comes before the results of {awaited}")
        if kind == "function_call":
            if item["call_id"] in seen:
                problems.append(f"item {at} uses the id {item['call_id']!r} again")
            seen.add(item["call_id"])
            awaited.append(item["call_id"])
        following = items[at + 1] if at + 1 < len(items) else {}
        partner = following.get("type") in {"reasoning", "function_call"} or (
            following.get("role") == "assistant"
        )
        if kind == "reasoning" and not partner:
            problems.append(f"item {at} is reasoning without what it led to")
    return problems + [f"{one!r} has no result" for one in awaited]


def _blocks(message: Json) -> Sequence[Json]:
    content = message.get("content")
    return (
        [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    )


def _calls(message: Json) -> Iterator[object]:
    for call in cast("Sequence[Json]", message.get("tool_calls") or ()):
        yield call["id"]
    for block in _blocks(message):
        if block["type"] == "tool_use":
            yield block["id"]


def _results(message: Json) -> Iterator[object]:
    if message["role"] == "tool":
        yield message["tool_call_id"]
    for block in _blocks(message):
        if block["type"] == "tool_result":
            yield block["tool_use_id"]


def _content_problems(message: Json) -> Iterator[str]:
    """No empty text; thinking comes before what it led to, signed, and never alone."""
    content = message.get("content")
    if not content and (content is not None or not message.get("tool_calls")):
        yield "it is empty"
    kinds = [str(block["type"]) for block in _blocks(message)]
    thought = [kind in {"thinking", "redacted_thinking"} for kind in kinds]
    if thought != sorted(thought, reverse=True):
        yield f"thinking comes late: {kinds}"
    if thought and all(thought):
        yield "thinking is alone"
    for block in _blocks(message):
        if block["type"] == "thinking" and not block.get("signature"):
            yield "thinking is not signed"
        if block["type"] == "text" and not str(block["text"]).strip():
            yield "a text is blank"
