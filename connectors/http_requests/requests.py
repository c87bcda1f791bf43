"""Configured requests: what a connection's configuration says of one, and how it is filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from jsonschema import SchemaError
from pydantic import JsonValue

from celeriac.connectors.schemas import validator_of
from celeriac.connectors.sdk.http import require_allowed_url
from celeriac.sessions.errors import ConfigurationError, ToolFailed

__all__ = ["ConfiguredRequest", "FilledRequest", "configured_requests"]

_PLACE = re.compile(r"\{([^{}]*)\}")
_OURS = frozenset(
    {
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "cookie",
        "host",
        "proxy-authorization",
        "transfer-encoding",
    }
)
_PLAIN = frozenset({"string", "integer", "number", "boolean"})
_WITHOUT_BODY = frozenset({"GET", "HEAD", "DELETE"})


@dataclass(frozen=True, slots=True)
class FilledRequest:
    """A request that is ready to be sent."""

    method: str
    url: str
    body: bytes | None


@dataclass(frozen=True, slots=True)
class ConfiguredRequest:
    """A request as the configuration describes it."""

    name: str
    method: str
    url: str
    description: str
    parameters: Mapping[str, JsonValue]
    optional: frozenset[str]
    query: frozenset[str]
    headers: Mapping[str, str] = field(default_factory=dict)
    idempotency_header: str | None = None
    key_format: str = "bare"

    @property
    def reads(self) -> bool:
        """Whether the method is one that changes nothing."""
        return self.method in {"GET", "HEAD"}

    @property
    def schema(self) -> dict[str, JsonValue]:
        """JSON Schema of the parameters."""
        required: list[JsonValue] = [one for one in self.parameters if one not in self.optional]
        return {
            "type": "object",
            "additionalProperties": False,
            "required": required,
            "properties": dict(self.parameters),
            "description": "Parameters of the request.",
        }

    def filled(self, values: Mapping[str, JsonValue]) -> FilledRequest:
        """Fill the parameters in; the same values always make the same bytes.

        Raises:
            ToolFailed: A value would leave its place in the path.
        """
        in_path = set(_PLACE.findall(self.url))
        url = _PLACE.sub(lambda place: _path_part(place[1], values[place[1]]), self.url)
        rest = {name: values[name] for name in sorted(values) if name not in in_path}
        in_query = {name: one for name, one in rest.items() if self._goes_to_query(name)}
        if in_query:
            pairs = [(name, _text(one)) for name, one in in_query.items()]
            url += ("&" if "?" in url else "?") + urlencode(pairs, quote_via=quote)
        if self.method in _WITHOUT_BODY:
            return FilledRequest(self.method, url, None)
        content = {name: one for name, one in rest.items() if name not in in_query}
        return FilledRequest(self.method, url, json.dumps(content, ensure_ascii=False).encode())

    def _goes_to_query(self, name: str) -> bool:
        return name in self.query or self.method in _WITHOUT_BODY


def configured_requests(
    configuration: Mapping[str, JsonValue],
) -> dict[str, ConfiguredRequest]:
    """Read and check the requests of a configuration that its schema has accepted.

    Raises:
        ConfigurationError: One cannot be used; the message names the field.
    """
    hosts = configuration["allowedHosts"]
    allowed = frozenset(str(host) for host in hosts) if isinstance(hosts, list) else frozenset()
    written = configuration["requests"]
    found: dict[str, ConfiguredRequest] = {}
    for name, value in (written if isinstance(written, dict) else {}).items():
        request = _request(name, value if isinstance(value, dict) else {})
        _check(request, allowed)
        found[name] = request
    return found


def _request(name: str, value: Mapping[str, JsonValue]) -> ConfiguredRequest:
    header = value.get("idempotencyHeader")
    return ConfiguredRequest(
        name=name,
        method=str(value["method"]),
        url=str(value["url"]),
        description=str(value["description"]),
        parameters=_mapping(value.get("parameters")),
        optional=_names(value.get("optional")),
        query=_names(value.get("query")),
        headers={key: str(text) for key, text in _mapping(value.get("headers")).items()},
        idempotency_header=None if header is None else str(header),
        key_format=str(value.get("keyFormat", "bare")),
    )


def _mapping(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _names(value: JsonValue) -> frozenset[str]:
    return frozenset(str(one) for one in value) if isinstance(value, list) else frozenset()


def _check(request: ConfiguredRequest, allowed: frozenset[str]) -> None:
    where = f"configuration.requests.{request.name}"
    try:
        require_allowed_url(_PLACE.sub("x", request.url), allowed)
    except ValueError as error:
        raise ConfigurationError(f"{where}.url: {error}") from None
    in_path = set(_PLACE.findall(request.url))
    for name in sorted((in_path | request.optional | request.query) - request.parameters.keys()):
        raise ConfigurationError(f"{where}.parameters does not declare {name!r}")
    for name in sorted(in_path & request.optional):
        raise ConfigurationError(
            f"{where}.optional: {name!r} is in the path, so it is always needed"
        )
    for name in request.headers:
        if name.lower() in _OURS:
            raise ConfigurationError(f"{where}.headers: {name} is not yours to set")
    if request.method in _WITHOUT_BODY or in_path or request.query:
        _check_plain(request, where, in_path)
    try:
        type(validator_of(request.schema)).check_schema(request.schema)
    except SchemaError as error:
        raise ConfigurationError(f"{where}.parameters: no JSON Schema: {error.message}") from None


def _check_plain(request: ConfiguredRequest, where: str, in_path: set[str]) -> None:
    for name, schema in request.parameters.items():
        in_url = name in in_path | request.query or request.method in _WITHOUT_BODY
        kind = schema.get("type") if isinstance(schema, dict) else None
        if in_url and kind not in _PLAIN:
            raise ConfigurationError(
                f"{where}.parameters.{name} is part of the URL, so its type is string, integer, number or boolean"
            )


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _path_part(name: str, value: JsonValue) -> str:
    text = _text(value)
    if text in {"", ".", ".."}:
        raise ToolFailed(f"rejected: nothing was sent: {name} cannot be {text!r}")
    return quote(text, safe="")
