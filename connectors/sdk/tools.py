"""`connector_tool`: one operation of a connector, as an agent's definition names it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from celeriac.connectors.schemas import validator_of
from celeriac.connectors.sdk.connection_file import CONNECTION_NAME_PATTERN
from celeriac.connectors.sdk.connector import Connector
from celeriac.connectors.sdk.manifest import Kind, Operation
from celeriac.connectors.sdk.registry import connector_named
from celeriac.sessions.errors import DefinitionError
from celeriac.sessions.jsonsafe import dump_json
from celeriac.sessions.tools import ApprovalRule, ToolDefinition

__all__ = ["ConnectorTool", "connector_tool"]

_CONNECTION_NAME = re.compile(CONNECTION_NAME_PATTERN)


@dataclass(frozen=True, slots=True)
class ConnectorTool:
    """An operation on a connection, with what is declared about it."""

    connector: type[Connector]
    operation: Operation
    connection: str
    fixed: Mapping[str, JsonValue]
    """Arguments that the model does not see."""
    definition: ToolDefinition

    def on(self, connector: Connector) -> ToolDefinition:
        """Return what the tool is on a connection.

        Raises:
            ConfigurationError: The connection's configuration has nothing of the kind.
        """
        described = connector.describe(self.operation, self.fixed)
        if described is None:
            return self.definition
        return dataclasses.replace(
            self.definition,
            description=described.description,
            input_schema=described.input_schema,
            claims={**self.definition.claims, **described.relied_on},
        )


def connector_tool(
    operation: str,
    connection: str | None = None,
    *,
    fixed: Mapping[str, JsonValue] | None = None,
    requires_approval: ApprovalRule | None = None,
    approval_timeout_seconds: float | None = None,
    name: str | None = None,
    queue: str | None = None,
) -> ConnectorTool:
    """Name one operation of a connector for an agent.

    Args:
        operation: Connector and operation, e.g. ``stripe.createRefund``.
        connection: Name of the connection, as the worker's configuration has it; default the connector's name.
        fixed: Arguments that you set; the model neither sees nor changes them.
        requires_approval: True, False or a predicate over the arguments; default what the manifest recommends.
        approval_timeout_seconds: How long a call waits for the decision before it counts as not run; None is for
            ever.
        name: What the model calls it; default ``<connector>_<operation in snake case>``, or what is fixed in the
            place of the operation where the manifest asks for that (``sql_cancel_order``). Needed where two tools
            of an agent would be called the same.
        queue: Celery queue of its steps.

    Returns:
        The tool, for `ConnectorToolSource`.

    Raises:
        DefinitionError: There is no such connector or operation, or the manifest does not expose it to agents.
    """
    connector_name, dot, operation_id = operation.partition(".")
    if not dot:
        raise DefinitionError(
            f"connector_tool({operation!r}): write connector and operation, e.g. 'stripe.createRefund'"
        )
    connector = connector_named(connector_name)
    manifest = connector.manifest
    found = manifest.operations_by_id.get(operation_id)
    exposed = [one.id for one in manifest.operations if one.agent.exposed]
    if found is None or not found.agent.exposed:
        why = "is not exposed to agents by its manifest" if found else "does not exist"
        raise DefinitionError(
            f"connector_tool({operation!r}): the operation {why}; agents may have: {', '.join(exposed)}"
        )
    connection = connector_name if connection is None else connection
    if _CONNECTION_NAME.fullmatch(connection) is None:
        raise DefinitionError(
            f"connector_tool({operation!r}): {connection!r} is no name of a connection; use at most 40 small "
            "letters, digits and _, a letter first"
        )
    fixed = fixed or {}
    _require_fixed(operation, found, fixed)
    recommended = found.agent.approval == "recommended"
    definition = dataclasses.replace(
        _definition(connector, found, connection),
        name=_name(connector, found, fixed) if name is None else name,
        input_schema=_without(found.input_schema, fixed),
        claims={"fixed arguments": dump_json(dict(fixed))} if fixed else {},
        approval=recommended if requires_approval is None else requires_approval,
        approval_timeout_seconds=approval_timeout_seconds,
        queue=queue,
    )
    return ConnectorTool(connector, found, connection, dict(fixed), definition)


def _require_fixed(written: str, operation: Operation, fixed: Mapping[str, JsonValue]) -> None:
    properties = operation.input_schema["properties"]
    known = properties if isinstance(properties, dict) else {}
    for field in operation.agent.fixed:
        if field not in fixed:
            raise DefinitionError(
                f"connector_tool({written!r}): say which {field}, e.g. fixed={{{field!r}: '…'}}"
            )
    for field, value in fixed.items():
        if field not in known:
            raise DefinitionError(
                f"connector_tool({written!r}): fixed names {field!r}; arguments are: {', '.join(known)}"
            )
        schema = known[field]
        for error in validator_of(schema if isinstance(schema, dict) else {}).iter_errors(value):
            raise DefinitionError(f"connector_tool({written!r}): fixed.{field}: {error.message}")


def _name(connector: type[Connector], operation: Operation, fixed: Mapping[str, JsonValue]) -> str:
    said = [str(fixed[field]) for field in operation.agent.fixed]
    return connector.manifest.tool_name("_".join(said) or operation.id)


def _without(
    schema: Mapping[str, JsonValue], fixed: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    properties, required = schema.get("properties"), schema.get("required")
    left = dict(properties) if isinstance(properties, dict) else {}
    needed = required if isinstance(required, list) else []
    return {
        **schema,
        "properties": {name: value for name, value in left.items() if name not in fixed},
        "required": [name for name in needed if name not in fixed],
    }


def _definition(
    connector: type[Connector], operation: Operation, connection: str
) -> ToolDefinition:
    """Return what the manifest alone says."""
    reconcile = operation.idempotency.reconcile
    return ToolDefinition(
        name=connector.manifest.tool_name(operation.id),
        description=operation.description,
        input_schema=operation.input_schema,
        effect=operation.effect,
        timeout_seconds=operation.execution.timeout,
        max_attempts=operation.execution.attempts,
        backoff_seconds=operation.execution.backoff,
        result_shown_bytes=operation.agent.result_max_bytes,
        ordered=operation.kind is Kind.MUTATION,
        source=_source_name(connector, connection),
        original_name=operation.id,
        reconcile_after_seconds=None if reconcile is None else reconcile.settle,
        idempotency_valid_seconds=operation.idempotency.valid_for,
    )


def _source_name(connector: type[Connector], connection: str) -> str:
    """Name the provider as people read it, and its connection where that says more."""
    shown = connector.manifest.display_name
    return shown if connection == connector.manifest.name else f"{shown} ({connection})"
