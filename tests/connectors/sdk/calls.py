"""Calls of connector tools as a worker makes them, without a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from pydantic import JsonValue

from celeriac.connectors.sdk.connections import Connections
from celeriac.connectors.sdk.source import ConnectorToolSource
from celeriac.connectors.sdk.tools import connector_tool
from celeriac.sessions.tools import ReconcileContext, Reconciliation, ToolContext, ToolDefinition

__all__ = ["call", "definition_of", "reconcile", "source_of"]

CALL_ID = "call_0123456789abcdef"

Environment = Mapping[str, str]
Arguments = Mapping[str, JsonValue]


def source_of(
    environment: Environment, operation: str, fixed: Arguments | None = None
) -> ConnectorToolSource:
    """Return an operation on the connection ``main`` of this environment."""
    tool = connector_tool(operation, "main", fixed=fixed)
    return ConnectorToolSource([tool], connections=Connections(None, environment))


def definition_of(
    environment: Environment, operation: str, fixed: Arguments | None = None
) -> ToolDefinition:
    """Return the tool as a model gets it."""
    (definition,) = asyncio.run(_listed(source_of(environment, operation, fixed)))
    return definition


async def _listed(source: ConnectorToolSource) -> list[ToolDefinition]:
    return list(await source.list_tools())


def call(
    environment: Environment,
    operation: str,
    arguments: Arguments,
    *,
    fixed: Arguments | None = None,
    call_id: str = CALL_ID,
    attempt: int = 1,
    seconds: float = 20,
) -> JsonValue:
    """Run one attempt and return what the record would hold."""

    async def run() -> JsonValue:
        source = source_of(environment, operation, fixed)
        (definition,) = await source.list_tools()
        context = ToolContext(
            session_id="s1",
            call_id=call_id,
            idempotency_key=call_id,
            attempt=attempt,
            deadline=time.time() + seconds,
        )
        try:
            async with asyncio.timeout(seconds):
                result = await source.call(definition, arguments, context)
        finally:
            await source.aclose()
        assert not result.is_error
        return result.value

    return asyncio.run(run())


def reconcile(
    environment: Environment,
    operation: str,
    arguments: Arguments,
    *,
    fixed: Arguments | None = None,
    call_id: str = CALL_ID,
) -> Reconciliation:
    """Look up what became of a call that was made a minute ago."""

    async def run() -> Reconciliation:
        source = source_of(environment, operation, fixed)
        (definition,) = await source.list_tools()
        now = time.time()
        context = ReconcileContext("s1", call_id, call_id, created_at=now - 60, settled_at=now - 30)
        try:
            return await source.reconcile(definition, arguments, context)
        finally:
            await source.aclose()

    return asyncio.run(run())
