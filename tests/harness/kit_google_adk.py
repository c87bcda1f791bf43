"""Google's Agent Development Kit, with a model of our own."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from celeriac import AgentDefinition, CompactionPolicy, google_adk_session
from tests.harness.script import Heard, Said, hold, respond
from tests.harness.tools import POLICIES, broke, look, missing, pay, sources

NAME = "google-adk"
_USED = types.GenerateContentResponseUsageMetadata(prompt_token_count=10, candidates_token_count=5)


class ScriptModel(BaseLlm):
    """The script as a model of ADK; each agent has one."""

    model: str = "script"
    speaker: str

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        said = respond(self.speaker, list(_heard(llm_request.contents)))
        half = len(said.text) // 2
        thought = types.Part(text=said.reasoning, thought=True)
        if stream:
            yield _piece(thought)
            yield _piece(types.Part(text=said.text[:half]))
        await hold(said.gate)
        if stream:
            yield _piece(types.Part(text=said.text[half:]))
        text = [types.Part(text=said.text)] if said.text else []
        parts = [thought, *text, *_calls(said)]
        yield LlmResponse(content=types.Content(role="model", parts=parts), usage_metadata=_USED)


def _piece(part: types.Part) -> LlmResponse:
    return LlmResponse(content=types.Content(role="model", parts=[part]), partial=True)


def _calls(said: Said) -> Iterator[types.Part]:
    if said.hand_to:
        args = {"agent_name": said.hand_to}
        yield types.Part(function_call=types.FunctionCall(name="transfer_to_agent", args=args))
    for at, (name, raw) in enumerate(said.calls):
        # Ids come again in other requests, as some providers' do.
        call = types.FunctionCall(name=name, args=json.loads(raw), id=f"call_{at}")
        yield types.Part(function_call=call)


def _heard(contents: Sequence[types.Content]) -> Iterator[Heard]:
    for content in contents:
        for part in content.parts or ():
            if part.function_response is not None:
                response = part.function_response.response or {}
                yield Heard("tool", str(response.get("result", response.get("error", ""))))
            elif part.text and not part.thought:
                quoted = part.text.startswith("For context:") or "BEGIN_QUOTED" in part.text
                by_user = content.role == "user" and not quoted
                yield Heard("user" if by_user else "assistant", part.text)


class Pay(BaseTool):
    """A tool that knows nothing of confirmations."""

    def __init__(self) -> None:
        super().__init__(name="pay", description="Pay for an item; that cannot be undone.")

    def _get_declaration(self) -> types.FunctionDeclaration | None:
        return FunctionTool(pay)._get_declaration()

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> str:
        return await pay(**args)


def _agent(name: str, compaction: CompactionPolicy | None = None) -> AgentDefinition:
    tools = [look, Pay(), missing, broke]
    clerk = LlmAgent(
        name="clerk",
        description="A clerk.",
        model=ScriptModel(speaker="clerk"),
        instruction="Do as you are told.",
        tools=tools,
    )
    root = LlmAgent(
        name="google_adk",
        model=ScriptModel(speaker=NAME),
        instruction="Do as you are told.",
        tools=tools,
        sub_agents=[clerk],
    )
    return google_adk_session(
        name=name,
        agent=root,
        tool_policies=POLICIES,
        tool_sources=sources(),
        compaction=compaction,
    )


agent = _agent(NAME)
small = _agent(f"{NAME}-small", CompactionPolicy(context_window_tokens=600, keep_recent_tokens=20))
