"""The demo model for Pydantic AI: slash commands, without a key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from celeriac.connectors.demo_commands import Answer, Calls, parse

__all__ = ["demo_model"]


def demo_model() -> FunctionModel:
    """Return a model that does what ``/tool name {json}`` and ``/tools …`` say, tells the results, and echoes else."""
    return FunctionModel(stream_function=_answer, model_name="demo")


async def _answer(
    messages: list[ModelMessage], _: AgentInfo
) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    parts = [part for message in messages for part in message.parts]
    asked = max(at for at, part in enumerate(parts) if isinstance(part, UserPromptPart))
    results = [part for part in parts[asked:] if isinstance(part, ToolReturnPart)]
    if results:
        yield "\n\n".join(part.model_response_str() for part in results)
        return
    prompt = parts[asked]
    command = parse(str(prompt.content) if isinstance(prompt, UserPromptPart) else "")
    if isinstance(command, Calls):
        for at, call in enumerate(command.calls):
            yield {at: DeltaToolCall(call.name, call.arguments, tool_call_id=uuid4().hex)}
        return
    yield command.text if isinstance(command, Answer) else "I know /tool and /tools only."
