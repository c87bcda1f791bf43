"""Model steps of OpenAI's Agents SDK: it runs until it wants tools, and goes on with what they gave."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, cast

from agents import (
    Agent,
    AgentsException,
    ModelBehaviorError,
    RunConfig,
    RunContextWrapper,
    Runner,
    RunResultStreaming,
    RunState,
    ToolExecutionConfig,
    TResponseInputItem,
)
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseIncompleteEvent,
    ResponseOutputMessage,
    ResponseReasoningSummaryTextDeltaEvent,
    ResponseReasoningTextDeltaEvent,
    ResponseRefusalDeltaEvent,
    ResponseTextDeltaEvent,
)
from pydantic import JsonValue

from celeriac.connectors.litellm_errors import as_model_error
from celeriac.connectors.openai_agents_graph import DurableGraph
from celeriac.connectors.responses_items import input_items
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

__all__ = ["OpenAiAgentsHarness"]

_log = logging.getLogger(__name__)

Input = list[TResponseInputItem] | RunState[Any]


class OpenAiAgentsHarness:
    """Runs a graph of agents, one model step at a time.

    Args:
        agent: The agent that a session begins with.
        own_tools: Names of the graph's function tools.
        context: Makes the context object of each run; it is not kept.
        run_config: The author's settings of a run.
    """

    name = "openai-agents"
    version = version("openai-agents")

    def __init__(
        self,
        agent: Agent[Any],
        own_tools: Sequence[str],
        context: Callable[[], object],
        run_config: RunConfig,
    ) -> None:
        self._agent = agent
        self._own_tools = frozenset(own_tools)
        self._context = context
        self._config = dataclasses.replace(
            run_config,
            tool_not_found_behavior="return_error_to_model",
            # Before the tool's step: after it, the money would have moved.
            tool_execution=ToolExecutionConfig(pre_approval_tool_input_guardrails=True),
        )

    async def run_model(
        self, context: ModelStepContext
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        """Make one model step; see `Harness`."""
        external = [tool for tool in context.request.tools if tool.name not in self._own_tools]
        recorded = {result.provider_id: result for result in context.results or ()}
        graph = DurableGraph(self._agent, external, recorded)
        agent, given = await self._begin(graph, context)
        run = _Run(agent, given, self._context(), self._config)
        async for delta in run.deltas():
            yield delta
        yield run.result(root=graph.root.name)

    async def summarise(
        self, request: ModelRequest
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        """Ask the model of the first agent; see `Harness`."""
        agent: Agent[Any] = Agent(
            name="summary", instructions=request.instructions, model=self._agent.model
        )
        run = _Run(agent, _from_messages(request), None, self._config)
        async for delta in run.deltas():
            yield delta
        yield run.result(root=agent.name)

    async def _begin(
        self, graph: DurableGraph, context: ModelStepContext
    ) -> tuple[Agent[Any], Input]:
        """Go on where the snapshot is, or begin with the messages, with the agent that spoke last."""
        kept = context.snapshot if isinstance(context.snapshot, dict) else {}
        if context.results is not None and isinstance(state := kept.get("state"), dict):
            try:
                return graph.root, await self._resumed(graph, state, context.results)
            except (AgentsException, KeyError) as error:
                _log.warning(
                    "Session %s begins anew with its messages: the agents cannot go on from their snapshot (%s)",
                    context.request.session_id,
                    error,
                )
        agent = graph.agents.get(str(kept.get("agent")), graph.root)
        return agent, _from_messages(context.request)

    async def _resumed(
        self, graph: DurableGraph, state: Mapping[str, JsonValue], results: Sequence[CallResult]
    ) -> RunState[Any]:
        resumed: RunState[Any] = await RunState.from_json(
            graph.root, dict(state), context_override=RunContextWrapper(self._context())
        )
        known = {result.provider_id: result for result in results}
        for item in resumed.get_interruptions():
            result = known[item.call_id or ""]
            if result.status is CallStatus.SUCCEEDED:
                resumed.approve(item)
            else:
                resumed.reject(item, rejection_message=result.text)
        return resumed


def _from_messages(request: ModelRequest) -> list[TResponseInputItem]:
    return cast("list[TResponseInputItem]", input_items(request))


class _Run:
    """One run of the SDK, until it ends or wants tools."""

    def __init__(self, agent: Agent[Any], given: Input, context: object, config: RunConfig) -> None:
        self._agent = agent
        self._given = given
        self._context = context
        self._config = config
        self._responses: list[Response] = []
        self._run: RunResultStreaming | None = None

    async def deltas(self) -> AsyncIterator[TextDelta | ReasoningDelta]:
        """Run, and yield what comes meanwhile.

        Raises:
            ModelError: The run broke.
        """
        try:
            # The context of a resumed run is in its state.
            context = None if isinstance(self._given, RunState) else self._context
            self._run = Runner.run_streamed(
                self._agent, self._given, context=context, max_turns=None, run_config=self._config
            )
            async for event in self._run.stream_events():
                if event.type != "raw_response_event":
                    continue
                data = event.data
                if isinstance(data, ResponseTextDeltaEvent | ResponseRefusalDeltaEvent):
                    yield TextDelta(data.delta)
                elif isinstance(
                    data, ResponseReasoningSummaryTextDeltaEvent | ResponseReasoningTextDeltaEvent
                ):
                    yield ReasoningDelta(data.delta)
                elif isinstance(data, ResponseCompletedEvent | ResponseIncompleteEvent):
                    self._responses.append(data.response)
        except Exception as error:
            raise self._broken(error) from error
        finally:
            if self._run is not None and not self._run.is_complete:
                self._run.cancel()

    def _broken(self, error: Exception) -> ModelError:
        usage = self._usage() if self._responses else None
        if isinstance(error, ModelBehaviorError):
            return ModelError(str(error), retryable=True, kind=FailureKind.BROKEN, usage=usage)
        if isinstance(error, AgentsException):
            # A guardrail's tripwire, or a fault of the definition: the same again would end the same.
            said = f"{type(error).__name__}: {error}"
            return ModelError(said, retryable=False, usage=usage)
        failed = as_model_error(error)
        failed.usage = failed.usage or usage
        return failed

    def result(self, *, root: str) -> ModelStepResult:
        """Return what the run came to.

        Args:
            root: Name of the agent that sessions begin with.

        Raises:
            ModelError: Two calls have one id, so that their results could not be told apart.
        """
        if self._run is None:
            raise AssertionError("the run has not been made")
        calls = [
            ModelCall(item.tool_name or "", item.arguments or "", item.call_id)
            for item in self._run.interruptions
        ]
        for response in self._responses:
            ids = _call_ids(response)
            if len(set(ids)) < len(ids):
                # The SDK has dropped one of them.
                raise ModelError(
                    "the model gave two calls the same id", retryable=True, kind=FailureKind.BROKEN
                )
        speaker = self._run.last_agent.name
        snapshot: dict[str, JsonValue] = {} if speaker == root else {"agent": speaker}
        if calls:
            snapshot["state"] = _kept(self._run.to_state())
        last = self._responses[-1] if self._responses else None
        return ModelStepResult(
            text=self._text(ended=not calls),
            calls=calls,
            items=self._items(calls),
            items_api="responses",
            usage=self._usage(),
            finish_reason="length" if last is not None and last.incomplete_details else None,
            reported_model=last.model if last is not None else None,
            snapshot=snapshot or None,
        )

    def _text(self, *, ended: bool) -> str:
        """Return what was said; where a tool's result ends the run, that is the answer."""
        messages = [
            item
            for response in self._responses
            for item in response.output
            if isinstance(item, ResponseOutputMessage)
        ]
        said = "".join(
            part.text if part.type == "output_text" else part.refusal
            for message in messages
            for part in message.content
        )
        final = self._run.final_output if self._run is not None else None
        if said or not ended or final is None:
            return said
        return final if isinstance(final, str) else dump_json(to_json_value(final))

    def _items(self, calls: Sequence[ModelCall]) -> list[JsonValue]:
        """Return the output items to send back as they came, where all their calls are calls of ours.

        A handoff, or a call that a guardrail turned away, was answered within the run: without its answer
        no provider takes it back, so the messages then say in plain words what is left of it.
        """
        if len(self._responses) != 1:
            return []
        output = self._responses[0].output
        if _call_ids(self._responses[0]) != [call.provider_id for call in calls]:
            return []
        return [to_json_value(item.model_dump(mode="json", exclude_unset=True)) for item in output]

    def _usage(self) -> Usage:
        used = [_usage_of(response) for response in self._responses]
        total = Usage()
        for one in used:
            total = total.plus(one)
        return total.model_copy(update={"model_calls": len(used)})


def _kept(state: RunState[Any]) -> JsonValue:
    """Return a state without the author's context object, which may hold secrets: each run gets a new one."""
    written = state.to_json(context_serializer=lambda _: {})
    # A mapping is written without asking the serializer.
    return to_json_value({**written, "context": {**written["context"], "context": {}}})


def _call_ids(response: Response) -> list[str]:
    return [item.call_id for item in response.output if isinstance(item, ResponseFunctionToolCall)]


def _usage_of(response: Response) -> Usage:
    usage = response.usage
    if usage is None:
        return Usage()
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.input_tokens_details.cached_tokens,
        reasoning_tokens=usage.output_tokens_details.reasoning_tokens,
    )
