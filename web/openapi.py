"""Makes an OpenAPI 3.1 document of routes and their contract. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import cast

from pydantic import BaseModel, JsonValue
from pydantic.json_schema import models_json_schema
from werkzeug.routing import Rule

from celeriac.sessions.ids import (
    CALL_ID_PATTERN,
    IMAGE_ID_PATTERN,
    MESSAGE_ID_PATTERN,
    SESSION_ID_PATTERN,
)
from celeriac.web.answers import ProblemDetails
from celeriac.web.contract import EVENT_STREAM, Access, Route

__all__ = ["openapi_document"]

_Json = dict[str, JsonValue]

_PATH_ARGUMENTS = {
    "sid": ("The session's id.", SESSION_ID_PATTERN),
    "call_id": ("The Call ID.", CALL_ID_PATTERN),
    "message_id": ("The message's id.", MESSAGE_ID_PATTERN),
    "image_id": ("The image's id.", IMAGE_ID_PATTERN),
}
_EVENT: _Json = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "event": {"type": "string"},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
_PROBLEM = "application/problem+json"
_ABOUT = (
    "Times are Unix milliseconds. Errors are problem details with a stable `code`. "
    "503 comes with `Retry-After`: nothing is lost, try again."
)


def openapi_document(rules: Iterable[Rule], contract: Mapping[str, Route]) -> _Json:
    """Describe routes.

    Args:
        rules: The application's routes that are in the contract.
        contract: What each of them takes and answers, by endpoint.

    Returns:
        The document, JSON-able.
    """
    paths: dict[str, _Json] = {}
    schemas = _Schemas(contract.values())
    for rule in sorted(rules, key=lambda rule: rule.rule):
        route = contract[rule.endpoint]
        path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule)
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            paths.setdefault(path, {})[method.lower()] = _operation(rule, route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Celeriac", "version": version("celeriac"), "description": _ABOUT},
        "paths": cast("JsonValue", paths),
        "components": {
            "schemas": schemas.definitions,
            "securitySchemes": {
                "sessionToken": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "X-Agent-Session-Token",
                },
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


class _Schemas:
    """The schemas of all models, each under its name."""

    def __init__(self, routes: Iterable[Route]) -> None:
        models: dict[tuple[type[BaseModel], str], None] = {(ProblemDetails, "serialization"): None}
        for route in routes:
            if route.body is not None:
                models[route.body, "validation"] = None
            if isinstance(route.answer, type):
                models[route.answer, "serialization"] = None
        references, document = models_json_schema(
            list(models),  # type: ignore[arg-type]
            ref_template="#/components/schemas/{model}",
        )
        self._references = cast("Mapping[tuple[type[BaseModel], str], _Json]", references)
        self.definitions: JsonValue = document.get("$defs", {})

    def body(self, model: type[BaseModel]) -> _Json:
        return self._references[model, "validation"]

    def answer(self, model: type[BaseModel]) -> _Json:
        return self._references[model, "serialization"]


def _operation(rule: Rule, route: Route, schemas: _Schemas) -> _Json:
    operation: _Json = {
        "operationId": rule.endpoint.rpartition(".")[2],
        "summary": route.about,
        "tags": [rule.endpoint.partition(".")[0].removeprefix("api_")],
        "responses": _responses(route, schemas),
        "security": _security(route),
    }
    parameters = [*_path_parameters(rule), *_query_parameters(route)]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        content: _Json = {"schema": schemas.body(route.body)}
        if route.example is not None:
            content["example"] = route.example
        operation["requestBody"] = {
            "required": not route.body_optional,
            "content": {"application/json": content},
        }
    return operation


def _path_parameters(rule: Rule) -> list[JsonValue]:
    found: list[JsonValue] = []
    for name in re.findall(r"<(?:\w+:)?(\w+)>", rule.rule):
        about, pattern = _PATH_ARGUMENTS[name]
        schema: _Json = {"type": "string", "pattern": f"^(?:{pattern.pattern})$"}
        found.append(
            {"name": name, "in": "path", "required": True, "description": about, "schema": schema}
        )
    return found


def _query_parameters(route: Route) -> list[JsonValue]:
    return [
        {"name": one.name, "in": "query", "description": one.about, "schema": dict(one.schema)}
        for one in route.query
    ]


def _security(route: Route) -> JsonValue:
    match route.access:
        case Access.OPEN:
            return []
        case Access.SESSION:
            return [{"sessionToken": []}, {"bearer": []}]
        case Access.CREATOR:
            return [{"bearer": []}, {}]
        case Access.OPERATOR:
            return [{"bearer": []}]


def _responses(route: Route, schemas: _Schemas) -> JsonValue:
    found: _Json = {str(route.status): _success(route, schemas)}
    if route.may_be_empty:
        found["204"] = {"description": "There is nothing to stream."}
    errors = dict(route.errors)
    if route.body is not None:
        errors[400] = ", ".join(filter(None, [errors.get(400), "invalid_json, invalid_body"]))
        errors.setdefault(413, "request_too_large")
    if route.access is not Access.OPEN:
        errors.setdefault(400, "unknown_host")
        errors[403] = "no_session_access" if route.access is Access.SESSION else "role_too_small"
        errors.setdefault(401, "operator_needed")
        errors.setdefault(404, "unknown_session")
        errors.setdefault(503, "store_unavailable")
    problem: JsonValue = {_PROBLEM: {"schema": schemas.answer(ProblemDetails)}}
    for status, codes in sorted(errors.items()):
        found[str(status)] = {"description": f"Codes: {codes}.", "content": problem}
    if isinstance(route.answer, type) and route.access is Access.OPEN:
        found["503"] = _success(route, schemas)
    return found


def _success(route: Route, schemas: _Schemas) -> JsonValue:
    if route.answer is None:
        return {"description": "It is done."}
    if isinstance(route.answer, str):
        schema: _Json = _EVENT if route.answer == EVENT_STREAM else {}
        return {"description": route.about, "content": {route.answer: {"schema": schema}}}
    content: JsonValue = {"application/json": {"schema": schemas.answer(route.answer)}}
    return {"description": route.about, "content": content}
