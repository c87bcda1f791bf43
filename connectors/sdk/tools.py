"""`connector_tool`: one operation of a connector, as an agent's definition names it."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

from celeriac.connectors.sdk.connection_file import CONNECTION_NAME_PATTERN
from celeriac.connectors.sdk.connector import Connector
from celeriac.connectors.sdk.manifest import Kind, Operation
from celeriac.connectors.sdk.registry import connector_named
from celeriac.sessions.errors import DefinitionError
from celeriac.sessions.tools import ApprovalRule, ToolDefinition

__all__ = ["ConnectorTool", "connector_tool"]

_CONNECTION_NAME = re.compile(CONNECTION_NAME_PATTERN)


@dataclass(frozen=True, slots=True)
class ConnectorTool:
    """An operation on a connection, with what is declared about it."""

    connector: type[Connector]
    operation: Operation
    connection: str
    definition: ToolDefinition


def connector_tool(
    operation: str,
    connection: str | None = None,
    *,
    requires_approval: ApprovalRule | None = None,
    approval_timeout_seconds: float | None = None,
    name: str | None = None,
    queue: str | None = None,
) -> ConnectorTool:
    """Name one operation of a connector for an agent.

    Args:
        operation: Connector and operation, e.g. ``stripe.createRefund``.
        connection: Name of the connection, as the worker's configuration has it; default the connector's name.
        requires_approval: True, False or a predicate over the arguments; default what the manifest recommends.
        approval_timeout_seconds: How long a call waits for the decision before it counts as not run; None is for
            ever.
        name: What the model calls it; default ``<connector>_<operation in snake case>``. Needed where an agent has
            the same operation on two connections.
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
    recommended = found.agent.approval == "recommended"
    definition = dataclasses.replace(
        _definition(connector, found, connection),
        name=manifest.tool_name(operation_id) if name is None else name,
        approval=recommended if requires_approval is None else requires_approval,
        approval_timeout_seconds=approval_timeout_seconds,
        queue=queue,
    )
    return ConnectorTool(connector, found, connection, definition)


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
