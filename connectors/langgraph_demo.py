"""The demo model for LangChain: slash commands, without a key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable

from celeriac.connectors.demo_commands import Answer, Calls, parse

__all__ = ["DemoChatModel"]


class DemoChatModel(BaseChatModel):
    """A model that does what ``/tool name {json}`` and ``/tools …`` say, tells the results, and echoes else."""

    model_name: str = "demo"

    @property
    def _llm_type(self) -> str:
        return "demo"

    def bind_tools(self, *_: Any, **__: Any) -> Runnable[Any, AIMessage]:
        """Take any tools: the commands name them."""
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=_answer(messages))])


def _answer(messages: Sequence[BaseMessage]) -> AIMessage:
    asked = max(at for at, one in enumerate(messages) if isinstance(one, HumanMessage))
    results = [one for one in messages[asked:] if isinstance(one, ToolMessage)]
    if results:
        return AIMessage("\n\n".join(str(one.text) for one in results))
    command = parse(str(messages[asked].text))
    if isinstance(command, Calls):
        calls = [
            tool_call(name=call.name, args=json.loads(call.arguments), id=uuid4().hex)
            for call in command.calls
        ]
        return AIMessage("", tool_calls=calls)
    return AIMessage(
        command.text if isinstance(command, Answer) else "I know /tool and /tools only."
    )
