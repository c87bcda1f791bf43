"""Agents with connectors, and one with a source of the test's own that can look things up."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from celeriac import (
    AgentDefinition,
    ConnectorToolSource,
    ToolContext,
    ToolDefinition,
    ToolEffect,
    ToolResult,
    connector_tool,
)
from celeriac.connectors.demo_model import DemoModel
from celeriac.sessions.tools import ReconcileContext, Reconciliation


class Ledger:
    """Writes a line to a file and then never returns; what is in the file can be looked up."""

    def __init__(self) -> None:
        self._file = Path(os.environ["FAULT_DIR"]) / "ledger.txt"

    async def list_tools(self) -> Sequence[ToolDefinition]:
        definition = ToolDefinition(
            name="book",
            description="Book it.",
            input_schema={"type": "object", "properties": {}},
            effect=ToolEffect.NON_IDEMPOTENT_WRITE,
            reconcile_after_seconds=0.2,
            source="ledger",
        )
        return [definition]

    async def call(
        self, tool: ToolDefinition, arguments: Mapping[str, JsonValue], context: ToolContext
    ) -> ToolResult:
        with self._file.open("a") as file:
            file.write(f"{context.call_id}\n")
        await asyncio.Event().wait()
        raise AssertionError(tool.name)

    async def reconcile(
        self, tool: ToolDefinition, arguments: Mapping[str, JsonValue], context: ReconcileContext
    ) -> Reconciliation:
        if context.call_id in self._file.read_text().split():
            return Reconciliation(happened=True, result={"line": 1}, note="it is in the file")
        return Reconciliation(happened=None, note="it is not in the file")


bookkeeper = AgentDefinition(
    name="bookkeeper",
    instructions="You book.",
    models=["demo"],
    model_clients={"demo": DemoModel(seconds_per_word=0)},
    tool_sources=[Ledger()],
)

clerk = AgentDefinition(
    name="clerk",
    instructions="You keep accounts.",
    models=["demo"],
    model_clients={"demo": DemoModel(seconds_per_word=0)},
    tool_sources=[
        ConnectorToolSource(
            [
                connector_tool(
                    "sql.execute", "bank", fixed={"statement": "take"}, requires_approval=False
                )
            ]
        )
    ],
)

support = AgentDefinition(
    name="support",
    instructions="You help.",
    models=["demo"],
    model_clients={"demo": DemoModel(seconds_per_word=0)},
    tool_sources=[
        ConnectorToolSource(
            [
                connector_tool("stripe.createRefund", "shop", requires_approval=False),
                connector_tool("stripe.listRefunds", "shop"),
            ]
        )
    ],
)
