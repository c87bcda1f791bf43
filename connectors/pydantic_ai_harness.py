"""Model steps of Pydantic AI: it runs until it wants tools, and goes on with what they gave."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import reduce
from importlib.metadata import version
from typing import Any

from pydantic import JsonValue
from pydantic_ai import (
    Agent,
    AgentRunResult,
    AgentRunResultEvent,
    DeferredToolRequests,
    DeferredToolResults,
    ToolDefinition as FrameworkTool,
    ToolFailed,
)
from pydantic_ai.agent.abstract import AgentRunEvents
from pydantic_ai.capabilities import ReinjectSystemPrompt
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import (
    AgentRunError,
    ContentFilterError,
    ModelAPIError,
    ModelContextWindowExceededError,
    OutputTokenLimitExceeded,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest as FrameworkRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.toolsets import ExternalToolset

from celeriac.connectors.litellm_errors import as_model_error
from celeriac.connectors.pydantic_ai_messages import (
    API,
    as_items,
    read_history,
    to_history,
    write_history,
)
from celeriac.connectors.pydantic_ai_tools import Stopping
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.harness import CallResult, ModelStepContext, ModelStepResult
from celeriac.sessions.jsonsafe import dump_json, to_json_value
from celeriac.sessions.messages import Usage
from celeriac.sessions.model import (
    ModelCall,
    ModelError,
    ModelReply,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
)

__all__ = ["PydanticAiHarness"]


class PydanticAiHarness:
    """Runs an agent, one model step at a time.

    Args:
        agent: The agent.
        own_tools: Names of its function tools.
        deps: Makes the deps of each run; they are not kept.
    """

    name = "pydantic-ai"
    version = version("pydantic-ai-slim")

    def __init__(
        self, agent: Agent[Any, Any], own_tools: Sequence[str], deps: Callable[[], object]
    ) -> None:
        self._agent = agent
        self._own_tools = frozenset(own_tools)
        self._deps = deps
        given = agent.output_type
        several = list(given) if isinstance(given, Sequence) else [given]
        self._output: list[Any] = [*several, DeferredToolRequests]

    async def run_model(
        self, context: ModelStepContext
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        """Make one model step; see `Harness`."""
        history, results = _begin(context)
        external = ExternalToolset[Any](
            [
                FrameworkTool(
                    name=tool.name,
                    description=tool.description,
                    parameters_json_schema=dict(tool.input_schema),
                )
                for tool in context.request.tools
                if tool.name not in self._own_tools
            ]
        )
        try:
            events: AgentRunEvents[Any]
            async with self._agent.run_stream_events(
                None,
                output_type=self._output,
                message_history=history,
                deferred_tool_results=results,
                deps=self._deps(),
                toolsets=[external],
                # A system prompt is in no conversation of ours.
                capabilities=[Stopping(), ReinjectSystemPrompt()],
            ) as events:
                event: object
                async for event in events:
                    if isinstance(event, AgentRunResultEvent):
                        yield _result(event.result)
                        return
                    delta = _delta(event)
                    if delta is not None:
                        yield delta
        except Exception as error:
            raise _broken(error) from error

    async def summarise(
        self, request: ModelRequest
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        """Ask the agent's model, without the agent; see `Harness`."""
        if self._agent.model is None:
            raise AssertionError("an agent without a model was defined")
        prompt = FrameworkRequest(
            parts=[UserPromptPart(message.text) for message in request.messages],
            instructions=request.instructions,
        )
        try:
            response = await model_request(self._agent.model, [prompt])
        except Exception as error:
            raise _broken(error) from error
        yield ModelReply(
            text=_text_of([response]),
            usage=_usage_of(response),
            finish_reason=response.finish_reason,
            reported_model=response.model_name,
        )


def _begin(context: ModelStepContext) -> tuple[list[ModelMessage], DeferredToolResults | None]:
    """Go on where the snapshot is, or begin with the conversation."""
    if context.results is not None and (kept := read_history(context.snapshot)) is not None:
        results: dict[str, Any] = {one.provider_id: _given(one) for one in context.results}
        return kept, DeferredToolResults(calls=results)
    return to_history(context.request), None


def _given(result: CallResult) -> str | ToolFailed:
    return result.text if result.status is CallStatus.SUCCEEDED else ToolFailed(result.text)


def _delta(event: object) -> TextDelta | ReasoningDelta | None:
    """Return what a page shows; the first piece of a part comes with its start."""
    match event:
        case PartStartEvent(part=TextPart(content=text)) if text:
            return TextDelta(text)
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
            return TextDelta(text)
        case PartStartEvent(part=ThinkingPart(content=text)) if text:
            return ReasoningDelta(text)
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))) if text:
            return ReasoningDelta(text)
        case _:
            return None


def _result(result: AgentRunResult[Any]) -> ModelStepResult:
    """Return what a run came to.

    Raises:
        ModelError: Two calls have one id, so that their results could not be told apart.
    """
    responses = [one for one in result.new_messages() if isinstance(one, ModelResponse)]
    waiting = result.output if isinstance(result.output, DeferredToolRequests) else None
    parts = [*waiting.calls, *waiting.approvals] if waiting is not None else []
    ids = [part.tool_call_id for part in parts]
    if len(set(ids)) < len(ids):
        raise ModelError(
            "the model gave two calls the same id", retryable=True, kind=FailureKind.BROKEN
        )
    calls = [ModelCall(part.tool_name, _raw(part), part.tool_call_id) for part in parts]
    last = responses[-1] if responses else None
    text = _text_of(responses)
    if waiting is None and not isinstance(result.output, str):
        text = dump_json(to_json_value(result.output))
    return ModelStepResult(
        text=text,
        calls=calls,
        reasoning=_reasoning_of(responses),
        items=_items(responses, ids),
        items_api=API,
        usage=_sum(responses),
        finish_reason=last.finish_reason if last is not None else None,
        reported_model=last.model_name if last is not None else None,
        snapshot=write_history(result.all_messages()) if calls else None,
    )


def _raw(part: ToolCallPart) -> str:
    """Return the arguments as the model wrote them, be they JSON or not."""
    return part.args if isinstance(part.args, str) else part.args_as_json_str()


def _items(responses: Sequence[ModelResponse], ids: Sequence[str]) -> list[JsonValue]:
    """Return the response to send back as it came, where all its calls are calls of ours."""
    if len(responses) != 1:
        return []
    called = [one.tool_call_id for one in responses[0].parts if isinstance(one, ToolCallPart)]
    return as_items(responses[0]) if called == list(ids) else []


def _text_of(responses: Sequence[ModelResponse]) -> str:
    parts = (part for response in responses for part in response.parts)
    return "".join(part.content for part in parts if isinstance(part, TextPart))


def _reasoning_of(responses: Sequence[ModelResponse]) -> str:
    parts = (part for response in responses for part in response.parts)
    return "".join(part.content for part in parts if isinstance(part, ThinkingPart))


def _sum(responses: Sequence[ModelResponse]) -> Usage:
    total = reduce(Usage.plus, map(_usage_of, responses), Usage())
    return total.model_copy(update={"model_calls": len(responses)})


def _usage_of(response: ModelResponse) -> Usage:
    used = response.usage
    if not used.has_values():
        return Usage()
    return Usage(
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cached_tokens=used.cache_read_tokens,
        cache_write_tokens=used.cache_write_tokens,
        reasoning_tokens=used.output_reasoning_tokens or None,
    )


def _broken(error: Exception) -> ModelError:
    if isinstance(error, ModelContextWindowExceededError):
        return ModelError(str(error), retryable=False, context_full=True)
    if isinstance(error, ContentFilterError | OutputTokenLimitExceeded):
        filtered = isinstance(error, ContentFilterError)
        kind = FailureKind.CONTENT_POLICY if filtered else FailureKind.BROKEN
        return ModelError(str(error), retryable=False, kind=kind)
    if isinstance(error, UnexpectedModelBehavior):
        return ModelError(str(error), retryable=True, kind=FailureKind.BROKEN)
    if isinstance(error, ModelAPIError):
        # The provider's own error says more: its headers, too.
        return as_model_error(error.__cause__ if isinstance(error.__cause__, Exception) else error)
    if isinstance(error, UserError | AgentRunError):
        # A limit, or a fault of the definition: the same again would end the same.
        return ModelError(f"{type(error).__name__}: {error}", retryable=False)
    return as_model_error(error)
