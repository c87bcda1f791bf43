"""Two agents with five connector writes each; the second asks, and what the provider says of each is the test's."""

from __future__ import annotations

from celeriac import AgentDefinition, ConnectorToolSource, connector_tool
from celeriac.connectors.demo_model import DemoModel


def _agent(name: str, operation: str) -> AgentDefinition:
    writes = [
        connector_tool(
            operation,
            "main",
            fixed={"request": f"{name}{number}"},
            requires_approval=number == 2,
        )
        for number in range(1, 6)
    ]
    return AgentDefinition(
        name=name,
        instructions="You write.",
        models=["demo"],
        model_clients={"demo": DemoModel(seconds_per_word=0)},
        tool_sources=[ConnectorToolSource(writes)],
    )


once = _agent("once", "http.send")
keyed = _agent("keyed", "http.sendWithKey")
