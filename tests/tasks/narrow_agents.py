"""Agents whose models read little, and one whose tools return much. Workers load this file by its path.

How a summary ends is what the file ``summary-ends`` says at that moment: ``well`` (also without the file),
``empty``, ``cut``, ``with-calls``, or ``held`` until the gate ``summary`` is open.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator

from celeriac.connectors.history import problems_of
from celeriac.connectors.summaries import INSTRUCTIONS
from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.context import message_tokens
from celeriac.sessions.definition import AgentDefinition, CompactionPolicy
from celeriac.sessions.messages import Usage
from celeriac.sessions.model import (
    ModelCall,
    ModelError,
    ModelReply,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
)
from celeriac.sessions.tools import tool
from tests.tasks.fault_agents import (
    ROOT,
    WATCHED,
    charge,
    charge_approved,
    is_open,
    leave_mark,
    look,
)

_WINDOW_TOKENS = 2_000


class NarrowModel:
    """The watched model, which refuses what is longer than its window, and summarises as told."""

    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        if sum(map(message_tokens, request.messages)) > _WINDOW_TOKENS:
            leave_mark("too long", request.session_id, request.attempt)
            raise ModelError(
                "the maximum context length is 2,000", retryable=False, context_full=True
            )
        if request.instructions != INSTRUCTIONS:
            async for piece in WATCHED.stream(request):
                yield piece
            return
        leave_mark(
            "summary",
            request.session_id,
            request.attempt,
            problems=problems_of(request),
            text=request.messages[0].text,
            tools=len(request.tools),
        )
        yield TextDelta("Summary")
        ends = ROOT / "summary-ends"
        end = ends.read_text() if ends.exists() else "well"
        while end == "held" and not is_open("summary"):
            await asyncio.sleep(0.02)
        yield _summary(end)


def _summary(end: str) -> ModelReply:
    usage = Usage(input_tokens=1_000, output_tokens=10)
    calls = [ModelCall("charge", "{}")] if end == "with-calls" else []
    return ModelReply(
        text="" if end == "empty" else "Summary of what was said.",
        calls=calls,
        usage=usage,
        finish_reason="length" if end == "cut" else "stop",
    )


TOOLS = [look, charge, charge_approved]
CLIENTS = {"narrow": NarrowModel()}

narrow = AgentDefinition(
    name="narrow",
    instructions="Be brief.",
    models=["narrow"],
    model_clients=CLIENTS,
    tools=TOOLS,
    compaction=CompactionPolicy(context_window_tokens=2_000, threshold=0.5, keep_recent_tokens=200),
)
misjudged = AgentDefinition(
    name="misjudged",
    instructions="Be brief.",
    models=["narrow"],
    model_clients=CLIENTS,
    tools=TOOLS,
    compaction=CompactionPolicy(),
)


@tool(effect=ToolEffect.READ)
def read_book() -> str:
    """Return 5 MB of text in which each character has two bytes."""
    return "é" * 2_500_000


@tool(effect=ToolEffect.READ)
def read_picture() -> list[dict[str, str]]:
    """Return a picture of 4 MB, as MCP does, and a word about it."""
    data = base64.b64encode(bytes(4 * 1024 * 1024)).decode()
    picture = {"type": "image", "data": data, "mimeType": "image/png"}
    return [picture, {"type": "text", "text": "a cat"}]


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
def write_much() -> dict[str, str]:
    """Write something and return 3 MB."""
    leave_mark("written", "much", 1)
    return {"receipt": "字" * 1_000_000}


large = AgentDefinition(
    name="large",
    instructions="Be brief.",
    models=["watched"],
    model_clients={"watched": WATCHED},
    tools=[read_book, read_picture, write_much],
)
without_policy = AgentDefinition(
    name="without-policy",
    instructions="Be brief.",
    models=["narrow"],
    model_clients=CLIENTS,
    tools=TOOLS,
)
