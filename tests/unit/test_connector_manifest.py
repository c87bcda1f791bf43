"""The manifest of a connector: what it may say, and what each fault is told as."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable

import pytest
from pydantic import JsonValue

from celeriac.connectors.sdk.manifest import Manifest, Operation, snake_case
from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.errors import DefinitionError

Document = dict[str, JsonValue]


def _operation(**values: JsonValue) -> Document:
    mutation: Document = {
        "id": "createThing",
        "kind": "mutation",
        "description": "Make a thing.",
        "inputSchema": {
            "type": "object",
            "additionalProperties": False,
            "required": ["name"],
            "properties": {"name": {"type": "string", "description": "Its name."}},
        },
        "branches": [
            {"id": "created", "record": "succeeded"},
            {"id": "rejected", "record": "failed"},
            {"id": "uncertain", "record": "outcome_unknown"},
            {"id": "defect", "record": "failed"},
        ],
        "agent": {"exposed": True},
    }
    return {**mutation, **values}


def _query(**values: JsonValue) -> Document:
    branches: JsonValue = [
        {"id": "found", "record": "succeeded"},
        {"id": "defect", "record": "failed"},
    ]
    query: Document = {"id": "findThing", "kind": "query", "agent": {}, "branches": branches}
    return {**_operation(), **query, **values}


def _manifest(*operations: Document, **values: JsonValue) -> Document:
    nothing: JsonValue = {"type": "object", "additionalProperties": False, "properties": {}}
    manifest: Document = {
        "manifest": "1",
        "name": "things",
        "version": "0.1.0",
        "displayName": "Things",
        "description": "A provider of things.",
        "configuration": nothing,
        "credentials": nothing,
        "operations": list(operations or (_operation(),)),
    }
    return copy.deepcopy({**manifest, **values})


def _parsed(document: Document) -> Manifest:
    return Manifest.parse(json.dumps(document), "connector.json")


def _only(document: Document) -> Operation:
    return _parsed(document).operations[0]


KEYED: Document = {"by": "key", "validFor": "24h"}
SAFE: Document = {"exposed": True, "retry": "safe"}
LOOKED_UP: Document = {
    "by": "lookup",
    "reconcile": {"operation": "findThing", "settle": "60s"},
}


def test_a_query_is_a_read() -> None:
    assert _only(_manifest(_query())).effect is ToolEffect.READ


def test_a_mutation_that_is_safe_to_repeat_is_an_idempotent_write() -> None:
    operation = _only(_manifest(_operation(idempotency=KEYED, agent=SAFE)))
    assert operation.effect is ToolEffect.IDEMPOTENT_WRITE
    assert operation.idempotency.valid_for == 86_400


def test_any_other_mutation_runs_once() -> None:
    """A key alone is no promise: the manifest must say that a repetition is safe."""
    assert _only(_manifest()).effect is ToolEffect.NON_IDEMPOTENT_WRITE
    keyed = _only(_manifest(_operation(idempotency=KEYED)))
    assert keyed.effect is ToolEffect.NON_IDEMPOTENT_WRITE


def test_a_branch_that_is_not_declared_is_unknown_for_a_mutation_and_failed_for_a_query() -> None:
    assert _only(_manifest()).record_of("elsewhere").value == "outcome_unknown"
    assert _only(_manifest(_query())).record_of("elsewhere").value == "failed"
    assert _only(_manifest()).record_of("rejected").value == "failed"


@pytest.mark.parametrize(
    ("operation", "python"),
    [
        ("postThreadReply", "post_thread_reply"),
        ("get", "get"),
        ("listV2Items", "list_v2_items"),
    ],
)
def test_tools_are_named_in_snake_case(operation: str, python: str) -> None:
    assert snake_case(operation) == python
    assert _parsed(_manifest()).tool_name(operation) == f"things_{python}"


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("30s", 30), ("2m", 120), ("24h", 86_400), ("1d", 86_400)]
)
def test_times_have_units(text: str, seconds: float) -> None:
    operation = _only(_manifest(_operation(execution={"timeout": text})))
    assert operation.execution.timeout == seconds


@pytest.mark.parametrize("text", ["30", "", "1 s", "-1s", "0s", "s", "1w"])
def test_a_time_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match="timeout"):
        _parsed(_manifest(_operation(execution={"timeout": text})))


def _schema(operation: Document) -> Document:
    schema = operation["inputSchema"]
    assert isinstance(schema, dict)
    return schema


def _with_schema(change: Callable[[Document], object]) -> Document:
    operation = copy.deepcopy(_operation())
    change(_schema(operation))
    return _manifest(operation)


def _branches(*without: str, **records: str) -> list[JsonValue]:
    declared = {
        "created": "succeeded",
        "rejected": "failed",
        "uncertain": "outcome_unknown",
        "defect": "failed",
        **records,
    }
    return [{"id": id_, "record": record} for id_, record in declared.items() if id_ not in without]


SECRETS: Document = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"key": {"type": "integer", "description": "The key."}},
}
API_KEY: Document = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"apiKey": {"type": "string", "description": "The key."}},
}

FAULTS: dict[str, tuple[Document, str]] = {
    "safe without a mechanism": (_manifest(_operation(agent=SAFE)), "retry is safe, but"),
    "safe by look-up": (
        _manifest(_operation(agent=SAFE, idempotency=LOOKED_UP), _query()),
        "retry is safe, but idempotency.by is lookup",
    ),
    "no unknown branch": (
        _manifest(_operation(branches=_branches("uncertain"))),
        "an answer may be lost",
    ),
    "no defect": (_manifest(_operation(branches=_branches("defect"))), "faults of the connector"),
    "defect is no failure": (
        _manifest(_operation(branches=_branches(defect="succeeded"))),
        "defect is recorded as failed",
    ),
    "nothing succeeds": (
        _manifest(_operation(branches=_branches("created"))),
        "none is recorded as succeeded",
    ),
    "a branch twice": (
        _manifest(_operation(branches=[*_branches(), {"id": "created", "record": "failed"}])),
        "created stands 2 times",
    ),
    "a query of unknown outcome": (
        _manifest(_query(branches=_branches())),
        "a query changes nothing",
    ),
    "a query that asks": (
        _manifest(_query(agent={"exposed": True, "approval": "recommended"})),
        "a query asks nobody",
    ),
    "a query that is safe": (_manifest(_query(agent=SAFE)), "may always be repeated"),
    "a query with a key": (_manifest(_query(idempotency=KEYED)), "a query changes nothing"),
    "look-up without a query": (
        _manifest(_operation(idempotency={"by": "lookup"})),
        "must name the query that looks",
    ),
    "look-up by nothing": (
        _manifest(_operation(idempotency=LOOKED_UP)),
        "'findThing' is no query of this connector",
    ),
    "look-up that agents have": (
        _manifest(_operation(idempotency=LOOKED_UP), _query(agent={"exposed": True})),
        "agents must not have it",
    ),
    "an end without a key": (
        _manifest(_operation(idempotency={"by": "absolute", "validFor": "24h"})),
        "only a key has an end",
    ),
    "a key that ends too early": (
        _manifest(_operation(idempotency={"by": "key", "validFor": "60s"}, agent=SAFE)),
        "shorter than all attempts together",
    ),
    "a default of a mutation": (
        _with_schema(
            lambda schema: schema.update(
                properties={"name": {"type": "string", "default": "x", "description": "Name."}}
            )
        ),
        "has no default",
    ),
    "open arguments": (
        _with_schema(lambda schema: schema.pop("additionalProperties")),
        "unknown fields must be refused",
    ),
    "arguments that are no object": (
        _with_schema(lambda schema: schema.update(type="array")),
        "it describes an object",
    ),
    "an argument without words": (
        _with_schema(lambda schema: schema.update(properties={"name": {"type": "string"}})),
        "say in a description",
    ),
    "a secret argument": (
        _with_schema(
            lambda schema: schema.update(
                properties={"apiKey": {"type": "string", "description": "Key."}}
            )
        ),
        "the model must not have any",
    ),
    "alternatives at the top": (
        _with_schema(lambda schema: schema.update(oneOf=[{"required": ["name"]}])),
        "not every provider of models takes oneOf",
    ),
    "no schema": (
        _with_schema(
            lambda schema: schema.update(
                properties={"name": {"type": "words", "description": "Name."}}
            )
        ),
        "no JSON Schema of draft 2020-12",
    ),
    "a schema that is too large": (
        _with_schema(
            lambda schema: schema.update(
                properties={"name": {"type": "string", "description": "x" * 25_000}}
            )
        ),
        "larger than 24 kB",
    ),
    "a secret of the configuration": (_manifest(configuration=API_KEY), "move it to credentials"),
    "a credential that is no text": (_manifest(credentials=SECRETS), "a credential is a text"),
    "a host that is a URL": (
        _manifest(egress={"hosts": ["https://api.example.com"]}),
        "is no host name",
    ),
    "a host that is a pattern": (
        _manifest(egress={"hosts": ["*.example.com"]}),
        "is no host name",
    ),
    "hosts of an unknown field": (
        _manifest(egress={"fromConfiguration": ["baseUrl"]}),
        "configuration has no field 'baseUrl'",
    ),
    "two operations of one name": (
        _manifest(_operation(), _operation(id="create_thing".replace("_t", "T"))),
        "2 of them are named create_thing",
    ),
    "a name that is too long": (_manifest(_operation(id="a" * 60)), "longer than 64"),
    "an unknown field": (_manifest(retries=3), "retries"),
    "an unknown version": (_manifest(manifest="2"), "manifest"),
    "a malformed name": (_manifest(name="Things!"), "name"),
    "no operation": ({**_manifest(), "operations": []}, "operations"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_told(name: str) -> None:
    document, told = FAULTS[name]
    with pytest.raises(DefinitionError) as caught:
        _parsed(document)
    assert told in str(caught.value)


def test_all_faults_are_told_together() -> None:
    document = _manifest(_operation(agent=SAFE, branches=_branches("defect", "uncertain")))
    with pytest.raises(DefinitionError) as caught:
        _parsed(document)
    assert len(str(caught.value).splitlines()) == 4


@pytest.mark.parametrize("text", ["", "{", "[]", '{"manifest": "1", "manifest": "1"}'])
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match=r"connector\.json cannot be used"):
        Manifest.parse(text, "connector.json")
