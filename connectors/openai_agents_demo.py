"""The demo model for OpenAI's Agents SDK: slash commands, without a key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

from agents import Model, ModelResponse
from agents.testing import ScriptedModel, assistant_message, function_call

from celeriac.connectors.demo_commands import Answer, Calls, parse

__all__ = ["DemoAgentsModel"]


class DemoAgentsModel(Model):
    """Does what ``/tool name {json}`` and ``/tools …`` say, tells the results, and echoes everything else."""

    async def get_response(self, *given: Any, **more: Any) -> ModelResponse:
        """Answer at once; the SDK's protocol."""
        return await _scripted(given, more).get_response(*given, **more)

    async def stream_response(self, *given: Any, **more: Any) -> AsyncIterator[Any]:
        """Answer in pieces; the SDK's protocol."""
        async for event in _scripted(given, more).stream_response(*given, **more):
            yield event


def _scripted(given: Sequence[object], more: Mapping[str, object]) -> ScriptedModel:
    """Make the SDK's own fake for this one request; the input is its second argument."""
    items = more["input"] if "input" in more else given[1]
    if not isinstance(items, list):
        items = [{"role": "user", "content": items}]
    asked = max((at for at, item in enumerate(items) if item.get("role") == "user"), default=0)
    results = [
        item["output"] for item in items[asked:] if item.get("type") == "function_call_output"
    ]
    if results:
        return ScriptedModel([[assistant_message("\n\n".join(map(str, results)))]])
    command = parse(str(items[asked]["content"]))
    if isinstance(command, Calls):
        calls = [
            function_call(one.name, one.arguments, call_id=uuid4().hex) for one in command.calls
        ]
        return ScriptedModel([calls])
    text = command.text if isinstance(command, Answer) else "I know /tool and /tools only."
    return ScriptedModel([[assistant_message(text)]])
