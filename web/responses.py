"""How the API answers when all is well."""

from __future__ import annotations

from flask import Response
from pydantic import BaseModel, JsonValue

from celeriac.sessions.jsonsafe import dump_json

__all__ = ["empty", "json_response", "model_response"]


def json_response(value: JsonValue, status: int = 200) -> Response:
    """Answer with a JSON value."""
    return Response(dump_json(value), status, content_type="application/json")


def model_response(model: BaseModel, status: int = 200) -> Response:
    """Answer with a model as JSON."""
    return Response(model.model_dump_json(), status, content_type="application/json")


def empty() -> Response:
    """Answer that it is done and there is nothing to say."""
    response = Response(status=204)
    del response.headers["Content-Type"]
    return response
