"""The script as a chat model of LangChain."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import agenerate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable

from tests.harness.script import Heard, hold, respond

_ROLES = {"human": "user", "ai": "assistant", "tool": "tool"}


class ScriptModel(BaseChatModel):
    """Streams what the script says."""

    model_name: str = "script"
    speaker: str

    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Runnable[Any, AIMessage]:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> ChatResult:
        raise AssertionError("it is asked in a loop")

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages))

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        said = respond(self.speaker, list(_heard(messages)))
        yield _chunk([{"type": "reasoning", "reasoning": said.reasoning}])
        half = len(said.text) // 2
        yield _chunk(said.text[:half])
        await hold(said.gate)
        yield _chunk(said.text[half:])
        for at, (name, raw) in enumerate(said.calls):
            # Ids come again in other requests, as some providers' do.
            call = tool_call_chunk(name=name, args=raw, id=f"call_{at}", index=at)
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))
        used = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        yield ChatGenerationChunk(message=AIMessageChunk(content="", usage_metadata=used))


def _chunk(content: Any) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=AIMessageChunk(content=content))


def _heard(messages: Sequence[BaseMessage]) -> Iterator[Heard]:
    for message in messages:
        role = _ROLES.get(message.type)
        text = str(message.text)
        if role is not None and (text or not isinstance(message, AIMessage)):
            yield Heard(role, text)  # type: ignore[arg-type]
