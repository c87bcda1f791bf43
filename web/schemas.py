"""Bodies of API requests, and how they are read."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Annotated, Literal, NoReturn, TypeVar

from flask import request
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from celeriac.sessions.ids import MESSAGE_ID_PATTERN
from celeriac.sessions.jsonsafe import to_json_value
from celeriac.web.problems import Refusal

__all__ = [
    "Answer",
    "CancelTurn",
    "CreateSession",
    "Decide",
    "ExecutePlan",
    "Reconcile",
    "SendMessage",
    "SentImage",
    "Steer",
    "integer_argument",
    "read_body",
]

_MessageId = Annotated[str, Field(pattern=f"^(?:{MESSAGE_ID_PATTERN.pattern})$")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class SentImage(_Body):
    """An image of a message: PNG, JPEG, GIF or WebP, told by its bytes."""

    data: str = Field(json_schema_extra={"contentEncoding": "base64"})
    """Base64, without a ``data:`` prefix."""
    name: str = ""


class CreateSession(_Body):
    """``POST /api/sessions``."""

    agent: str | None = None
    model: str | None = None
    message: str | None = None
    message_id: _MessageId | None = None
    plan_mode: bool = False
    images: list[SentImage] = Field(default_factory=list, max_length=100)


class SendMessage(_Body):
    """``POST …/messages``."""

    text: str = ""
    """May be blank where there are images."""
    message_id: _MessageId | None = None
    plan_mode: bool = False
    images: list[SentImage] = Field(default_factory=list, max_length=100)
    model: str | None = None


class Steer(_Body):
    """``POST …/steer``: some of the queued messages (all of them when unset), a new text, or both."""

    message_ids: list[_MessageId] | None = Field(None, max_length=1000)
    text: str | None = None


class CancelTurn(_Body):
    """``POST …/cancel``."""

    turn_id: str | None = Field(None, max_length=64)


class Decide(_Body):
    """``POST …/decision``."""

    decision: Literal["approve", "reject"]
    note: str | None = None
    digest: str | None = Field(None, max_length=200)


class Answer(_Body):
    """``POST …/answer``: any JSON value but null; false, 0 and the empty text are answers."""

    answer: JsonValue


class ExecutePlan(_Body):
    """``POST …/plan/execute``: the revision that was reviewed."""

    revision: int = Field(ge=1, le=10**9)


class Reconcile(_Body):
    """``POST …/reconcile``."""

    outcome: Literal["succeeded", "failed"]
    note: str | None = None
    result: JsonValue = None


Body = TypeVar("Body", bound=BaseModel)


def read_body(model: type[Body], *, optional: bool = False) -> Body:
    """Read the request's JSON body.

    Args:
        model: What it must look like.
        optional: Whether no body at all means an empty object.

    Returns:
        The body; lone surrogates and NUL in its texts are replaced.

    Raises:
        Refusal: 400; it is no JSON object, or has a wrong, missing or unknown field.
    """
    raw = request.get_data()
    if not raw and optional:
        return model()
    if not request.is_json:
        # Also what keeps other sites out: a browser sends this type elsewhere only when asked to.
        raise _bad("Send a JSON object with `Content-Type: application/json`.", "invalid_json")
    try:
        value = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _bad(f"The body is not valid JSON: {error}.", "invalid_json") from None
    if not isinstance(value, dict):
        raise _bad("The body must be a JSON object.", "invalid_json")
    try:
        return model.model_validate(to_json_value(value))
    except ValidationError as error:
        raise _bad(_faults(error), "invalid_body") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _faults(error: ValidationError) -> str:
    faults = [
        f"{'.'.join(str(part) for part in item['loc'])[:80]}: {item['msg']}"
        for item in error.errors(include_input=False, include_url=False, include_context=False)
    ]
    more = f" (and {len(faults) - 5} more)" if len(faults) > 5 else ""
    return f"The body is wrong. {'; '.join(faults[:5])}{more}."


def _bad(detail: str, code: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, detail, code=code)


def integer_argument(name: str, *, lowest: int, highest: int) -> int | None:
    """Read a whole number from the query.

    Args:
        name: The argument.
        lowest: The smallest value allowed.
        highest: The largest value allowed.

    Returns:
        The number; None when the argument is absent.

    Raises:
        Refusal: 400; it is no such number.
    """
    text = request.args.get(name)
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) < 16 and lowest <= int(text) <= highest:
        return int(text)
    raise _bad(
        f"{name} must be a whole number from {lowest} to {highest}, not {text[:40]!r}.",
        "invalid_argument",
    )
