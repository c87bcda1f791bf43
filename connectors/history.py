"""Checks a model request the way the strictest provider would, so that tests find what it would refuse."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from pydantic import JsonValue

from celeriac.sessions.ids import CALL_ID_PATTERN
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.model import ModelRequest

__all__ = ["HistoryError", "problems_of", "validate_request"]

_UNSENDABLE = re.compile("[\ud800-\udfff\x00]")


class HistoryError(AssertionError):
    """A request that no provider should get; it is a fault of ours, never of the model.

    Args:
        problems: What is wrong, one line each.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("the request is malformed:\n  " + "\n  ".join(problems))
        self.problems = tuple(problems)


def validate_request(request: ModelRequest) -> None:
    """Check that a request keeps every rule that some provider enforces.

    Raises:
        HistoryError: It breaks some; all of them are listed.
    """
    problems = problems_of(request)
    if problems:
        raise HistoryError(problems)


def problems_of(request: ModelRequest) -> list[str]:
    """List what is wrong with a request; empty when nothing is."""
    return [
        *_tool_problems(request),
        *_pairing_problems(request.messages),
        *_place_problems(request.messages),
        *_id_problems(request.messages),
        *_text_problems(request),
    ]


def _tool_problems(request: ModelRequest) -> Iterator[str]:
    for name, count in Counter(tool.name for tool in request.tools).items():
        if count > 1:
            yield f"the tool {name} is offered {count} times"


def _pairing_problems(messages: Sequence[Message]) -> Iterator[str]:
    """Each call has one result, directly after its response, in call order; nothing is between."""
    if not messages:
        yield "there are no messages"
    expected: list[str] = []
    for at, message in enumerate(messages):
        if message.role is Role.TOOL:
            yield from _result_problems(at, message, expected)
            continue
        if expected:
            yield f"message {at} ({message.role}) comes before the results of {expected}"
        expected = [call.id for call in message.calls]
    if expected:
        yield f"the request ends before the results of {expected}"


def _place_problems(messages: Sequence[Message]) -> Iterator[str]:
    """A summary comes first; what a provider put out is part of the response that it belongs to."""
    for at, message in enumerate(messages):
        if message.role is Role.SUMMARY and at > 0:
            yield f"message {at} is a summary; it stands for what is before it"
        if message.items and message.role is not Role.ASSISTANT:
            yield f"message {at} ({message.role}) has output items of a model"


def _result_problems(at: int, message: Message, expected: list[str]) -> Iterator[str]:
    if not expected:
        yield f"message {at} is a result of {message.call_id!r} that no call awaits here"
    elif message.call_id == expected[0]:
        expected.pop(0)
    else:
        yield f"message {at} is a result of {message.call_id!r}; the next is {expected[0]!r}"
        if message.call_id in expected:
            expected.remove(message.call_id)


def _id_problems(messages: Sequence[Message]) -> Iterator[str]:
    ids = Counter(call.id for message in messages for call in message.calls)
    for call_id, count in ids.items():
        if count > 1:
            yield f"the Call ID {call_id!r} is used {count} times"
        if CALL_ID_PATTERN.fullmatch(call_id) is None:
            yield f"{call_id!r} is no Call ID: at most 40 of [A-Za-z0-9_-]"


def _text_problems(request: ModelRequest) -> Iterator[str]:
    if _UNSENDABLE.search(request.instructions):
        yield "the instructions contain a NUL or a lone surrogate"
    for at, message in enumerate(request.messages):
        if _is_empty(message):
            yield f"message {at} ({message.role}) is empty"
        for text in _texts(message):
            if _UNSENDABLE.search(text):
                yield f"message {at} ({message.role}) contains a NUL or a lone surrogate"
        try:
            json.dumps(message.items, allow_nan=False)
        except ValueError as error:
            yield f"message {at}: its items are no strict JSON: {error}"


def _is_empty(message: Message) -> bool:
    # A tool may return an empty text: the call was made, so its result cannot be left out.
    says_something = message.text.strip() or message.calls or message.images
    return not (says_something or message.role is Role.TOOL)


def _texts(message: Message) -> Iterator[str]:
    yield message.text
    yield message.reasoning
    for call in message.calls:
        yield call.arguments
    for item in message.items:
        yield from _strings(item)


def _strings(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _strings(item)
