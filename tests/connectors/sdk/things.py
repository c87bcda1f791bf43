"""A connector of the tests' own, whose operations do what a test says; found as an installed one would be."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest

from celeriac.connectors.sdk import registry
from celeriac.connectors.sdk.connector import Call, Connector
from celeriac.connectors.sdk.manifest import Manifest
from celeriac.connectors.sdk.outcomes import Outcome

__all__ = ["KEY", "SECRET", "Things", "install"]

SECRET = "a-credential-Qm3Vt8aa1Zz"
KEY = "CELERIAC_CONNECTION_MAIN_"

_OBJECT = {"type": "object", "additionalProperties": False}
_NAME = {"name": {"type": "string", "description": "Its name."}}
_ENDS = [
    {"id": "done", "record": "succeeded"},
    {"id": "rejected", "record": "failed"},
    {"id": "uncertain", "record": "outcome_unknown"},
    {"id": "defect", "record": "failed"},
]

_MANIFEST = {
    "manifest": "1",
    "name": "things",
    "version": "0.1.0",
    "displayName": "Things",
    "description": "A provider of things.",
    "configuration": {
        **_OBJECT,
        "properties": {
            "baseUrl": {
                "type": "string",
                "default": "https://things.example",
                "description": "Where.",
            },
            "size": {"type": "integer", "minimum": 1, "description": "How many."},
        },
    },
    "credentials": {
        **_OBJECT,
        "required": ["apiKey"],
        "properties": {"apiKey": {"type": "string", "minLength": 8, "description": "The key."}},
    },
    "egress": {"hosts": ["things.example"], "fromConfiguration": ["baseUrl"]},
    "operations": [
        {
            "id": "make",
            "kind": "mutation",
            "description": "Make a thing.",
            "inputSchema": {**_OBJECT, "properties": _NAME},
            "branches": _ENDS,
            "idempotency": {
                "by": "lookup",
                "reconcile": {"operation": "findMade", "settle": "1s"},
            },
            "agent": {"exposed": True, "approval": "recommended"},
        },
        {
            "id": "read",
            "kind": "query",
            "description": "Read a thing.",
            "inputSchema": {**_OBJECT, "properties": _NAME},
            "branches": [one for one in _ENDS if one["id"] != "uncertain"],
            "agent": {"exposed": True},
        },
        {
            "id": "hidden",
            "kind": "query",
            "description": "Nothing for agents.",
            "inputSchema": {**_OBJECT, "properties": {}},
            "branches": [one for one in _ENDS if one["id"] != "uncertain"],
        },
        {
            "id": "findMade",
            "kind": "query",
            "description": "Look for a thing.",
            "inputSchema": {**_OBJECT, "properties": {}},
            "branches": [one for one in _ENDS if one["id"] != "uncertain"],
        },
    ],
}

Handler = Callable[[Call], Awaitable[Outcome]]


class Things(Connector):
    """Does what `handle` does."""

    manifest = Manifest.parse(json.dumps(_MANIFEST), "the tests' manifest")
    handle: ClassVar[Handler]
    sends_only_by_http = True

    async def make(self, call: Call) -> Outcome:
        return await type(self).handle(call)

    async def read(self, call: Call) -> Outcome:
        return await type(self).handle(call)

    async def hidden(self, call: Call) -> Outcome:
        return await type(self).handle(call)

    async def find_made(self, call: Call) -> Outcome:
        return await type(self).handle(call)


@dataclass
class _Entry:
    name: str
    value: str = "things:Things"

    def load(self) -> type[Connector]:
        return Things


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it be found beside those that are installed."""
    installed = importlib.metadata.entry_points

    def entry_points(*, group: str, name: str | None = None) -> list[EntryPoint | _Entry]:
        found: list[EntryPoint | _Entry] = [
            *(installed(group=group) if name is None else installed(group=group, name=name))
        ]
        return [*found, _Entry("things")] if name in {None, "things"} else found

    monkeypatch.setattr(registry, "entry_points", entry_points)
    registry.connector_named.cache_clear()
