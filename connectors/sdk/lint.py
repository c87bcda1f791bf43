"""What can be wrong with a manifest beyond its form, each fault in a line that says what to change."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

import jsonschema
from pydantic import JsonValue

from celeriac.connectors.sdk.manifest import (
    IdempotencyMechanism,
    Kind,
    Manifest,
    Operation,
    RecordedAs,
    snake_case,
)
from celeriac.sessions.tools import TOOL_NAME_PATTERN

__all__ = ["manifest_faults"]

_REPEATABLE = frozenset(
    {
        IdempotencyMechanism.KEY,
        IdempotencyMechanism.CLIENT_ID,
        IdempotencyMechanism.ABSOLUTE,
        IdempotencyMechanism.LEDGER,
    }
)
_SECRET_WORD = re.compile(
    r"secret|(?:access|auth|bearer|api|bot|user|session)_?token|passw|api_?key|credential|private_?key",
    re.IGNORECASE,
)
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::\d{1,5})?")
_LARGEST_SCHEMA_BYTES = 24 * 1024


def manifest_faults(manifest: Manifest) -> list[str]:
    """Return everything that is wrong with a manifest; nothing when it can be used."""
    return [*_connector_faults(manifest), *_operations_faults(manifest)]


def _connector_faults(manifest: Manifest) -> Iterator[str]:
    for name in ("configuration", "credentials"):
        yield from _schema_faults(name, getattr(manifest, name))
    yield from _credential_faults(manifest)
    for field in _properties(manifest.configuration):
        if _SECRET_WORD.search(field):
            yield f"configuration.{field}: it sounds like a secret; move it to credentials"
    if (
        both := _properties(manifest.configuration).keys()
        & _properties(manifest.credentials).keys()
    ):
        yield f"configuration and credentials both have {', '.join(sorted(both))}; rename one"
    yield from _egress_faults(manifest)


def _credential_faults(manifest: Manifest) -> Iterator[str]:
    for field, schema in _properties(manifest.credentials).items():
        if not isinstance(schema, dict) or schema.get("type") != "string":
            yield f'credentials.{field}: a credential is a text; write {{"type": "string"}}'
        elif schema.keys() & {"default", "enum", "const", "examples"}:
            yield f"credentials.{field}: a manifest holds no value of a credential"


def _egress_faults(manifest: Manifest) -> Iterator[str]:
    for host in manifest.egress.hosts:
        if _HOST.fullmatch(host) is None:
            yield f"egress.hosts: {host!r} is no host name (no scheme, path or pattern)"
    for field in manifest.egress.from_configuration:
        if field not in _properties(manifest.configuration):
            yield f"egress.fromConfiguration: configuration has no field {field!r}"


def _operations_faults(manifest: Manifest) -> Iterator[str]:
    ids = Counter(snake_case(operation.id) for operation in manifest.operations)
    for name, count in ids.items():
        if count > 1:
            yield f"operations: {count} of them are named {name} in Python; rename one"
    for operation in manifest.operations:
        name = manifest.tool_name(operation.id)
        if TOOL_NAME_PATTERN.fullmatch(name) is None:
            yield f"{operation.id}: its tool would be named {name}; that is longer than 64 characters"
        yield from (f"{operation.id}: {fault}" for fault in _operation_faults(manifest, operation))


def _operation_faults(manifest: Manifest, operation: Operation) -> Iterator[str]:
    yield from _schema_faults("inputSchema", operation.input_schema)
    for word in ("oneOf", "anyOf", "allOf", "not", "$ref"):
        if word in operation.input_schema:
            yield f"inputSchema: not every provider of models takes {word} at the top; use one field instead"
    if operation.output_schema is not None:
        yield from _draft_faults("outputSchema", operation.output_schema)
    for field in _properties(operation.input_schema):
        if _SECRET_WORD.search(field):
            yield f"inputSchema.{field}: it sounds like a secret; the model must not have any"
    for field in operation.agent.fixed:
        if field not in _properties(operation.input_schema):
            yield f"agent.fixed: inputSchema has no field {field!r}"
    yield from _branch_faults(operation)
    if operation.kind is Kind.QUERY:
        yield from _query_faults(operation)
    else:
        yield from _mutation_faults(manifest, operation)


def _branch_faults(operation: Operation) -> Iterator[str]:
    for branch, count in Counter(branch.id for branch in operation.branches).items():
        if count > 1:
            yield f"branches: {branch} stands {count} times"
    records = [branch.record for branch in operation.branches]
    if RecordedAs.SUCCEEDED not in records:
        yield "branches: none is recorded as succeeded"
    defects = [branch for branch in operation.branches if branch.id == "defect"]
    if not defects:
        yield 'branches: add {"id": "defect", "record": "failed"}, for faults of the connector itself'
    elif defects[0].record is not RecordedAs.FAILED:
        yield "branches: defect is recorded as failed"


def _query_faults(operation: Operation) -> Iterator[str]:
    if any(branch.record is RecordedAs.OUTCOME_UNKNOWN for branch in operation.branches):
        yield "branches: a query changes nothing, so none is recorded as outcome_unknown"
    if operation.agent.approval is not None:
        yield "agent.approval: a query asks nobody; the agent may say otherwise"
    if operation.agent.retry is not None:
        yield "agent.retry: a query may always be repeated; leave it out"
    if operation.idempotency.by is not IdempotencyMechanism.NONE or operation.idempotency.reconcile:
        yield "idempotency: a query changes nothing; leave it out"


def _mutation_faults(manifest: Manifest, operation: Operation) -> Iterator[str]:
    idempotency = operation.idempotency
    safe = operation.agent.retry == "safe"
    unknown = any(branch.record is RecordedAs.OUTCOME_UNKNOWN for branch in operation.branches)
    if safe and idempotency.by not in _REPEATABLE:
        words = ", ".join(sorted(_REPEATABLE))
        yield f"agent.retry is safe, but idempotency.by is {idempotency.by}; it must be one of {words}"
    if idempotency.by not in _REPEATABLE and not unknown:
        yield 'branches: add {"id": "uncertain", "record": "outcome_unknown"}: an answer may be lost'
    for field, schema in _properties(operation.input_schema).items():
        if isinstance(schema, dict) and "default" in schema:
            yield (
                f"inputSchema.{field}: a mutation's argument has no default: one that a deploy changes would "
                "change a request that is sent again; describe it instead"
            )
    if idempotency.valid_for is not None:
        if idempotency.by is not IdempotencyMechanism.KEY:
            yield "idempotency.validFor: only a key has an end"
        elif idempotency.valid_for < operation.execution.timeout * operation.execution.attempts:
            yield "idempotency.validFor is shorter than all attempts together"
    yield from _reconcile_faults(manifest, operation)


def _reconcile_faults(manifest: Manifest, operation: Operation) -> Iterator[str]:
    reconcile = operation.idempotency.reconcile
    if reconcile is None:
        if operation.idempotency.by is IdempotencyMechanism.LOOKUP:
            yield "idempotency.by is lookup, so idempotency.reconcile must name the query that looks"
        return
    query = manifest.operations_by_id.get(reconcile.operation)
    if query is None or query.kind is not Kind.QUERY:
        yield f"idempotency.reconcile.operation: {reconcile.operation!r} is no query of this connector"
    elif query.agent.exposed:
        yield (
            f"idempotency.reconcile.operation: {reconcile.operation} is given the arguments of the write, so "
            "agents must not have it; make an operation of its own"
        )


def _properties(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _schema_faults(what: str, schema: Mapping[str, JsonValue]) -> Iterator[str]:
    yield from _draft_faults(what, schema)
    if schema.get("type") != "object":
        yield f'{what}: it describes an object; write "type": "object"'
    elif schema.get("additionalProperties") is not False:
        yield f'{what}: unknown fields must be refused; write "additionalProperties": false'
    for field, inner in _properties(schema).items():
        if not isinstance(inner, dict) or not inner.get("description"):
            yield f"{what}.{field}: say in a description what it is"


def _draft_faults(what: str, schema: Mapping[str, JsonValue]) -> Iterator[str]:
    try:
        jsonschema.Draft202012Validator.check_schema(dict(schema))
    except jsonschema.SchemaError as error:
        yield f"{what}: no JSON Schema of draft 2020-12: {error.json_path}: {error.message}"[:300]
    if len(str(schema)) > _LARGEST_SCHEMA_BYTES:
        yield f"{what}: larger than 24 kB; every model call would carry it"
