"""The demo model for ADK: slash commands, without a key."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from uuid import uuid4

from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from celeriac.connectors.demo_commands import Answer, Calls, parse

__all__ = ["DemoLlm"]


class DemoLlm(BaseLlm):
    """A model that does what ``/tool name {json}`` and ``/tools …`` say, tells the results, and echoes else."""

    model: str = "demo"

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: ARG002, FBT001, FBT002 - the framework's
    ) -> AsyncGenerator[LlmResponse, None]:
        """Answer at once."""
        parts = [part for content in llm_request.contents for part in content.parts or ()]
        yield LlmResponse(content=types.Content(role="model", parts=_answer(parts)))


def _answer(parts: Sequence[types.Part]) -> list[types.Part]:
    calls = [at for at, part in enumerate(parts) if part.function_call]
    last = max((at for at, part in enumerate(parts) if part.text), default=-1)
    results = [part.function_response for part in parts[last + 1 :] if part.function_response]
    if results and calls:
        told = [next(iter((result.response or {}).values()), "") for result in results]
        return [types.Part(text="\n\n".join(str(one) for one in told))]
    command = parse((parts[last].text or "") if last >= 0 else "")
    if isinstance(command, Calls):
        return [
            types.Part(
                function_call=types.FunctionCall(
                    id=uuid4().hex, name=call.name, args=json.loads(call.arguments)
                )
            )
            for call in command.calls
        ]
    text = command.text if isinstance(command, Answer) else "I know /tool and /tools only."
    return [types.Part(text=text)]
