"""Model steps of a LangGraph graph: it runs until it wants tools, and goes on with what they gave."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any, Final, cast

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableConfig
from langgraph.errors import EmptyInputError, GraphRecursionError, InvalidUpdateError
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Interrupt, StateSnapshot
from pydantic import JsonValue

from celeriac.connectors.langgraph_messages import (
    API,
    as_item,
    reasoning_of,
    text_of,
    to_messages,
    usage_of,
)
from celeriac.connectors.langgraph_saver import THREAD, TurnSaver, UnreadableStateError
from celeriac.connectors.langgraph_tools import extra_tools, stopped_calls, wanted_calls
from celeriac.connectors.litellm_errors import as_model_error
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

__all__ = ["LangGraphHarness"]

Graph = CompiledStateGraph[Any, Any, Any, Any]

_CONFIG: Final[RunnableConfig] = {"configurable": {"thread_id": THREAD}}


class LangGraphHarness:
    """Runs a graph, one model step at a time.

    Args:
        graph: The graph.
        model: Writes summaries.
        own_tools: Names of the graph's tools.
        context: Makes the runtime context of each run; it is not kept.
        state_types: Classes of the application that the graph's state may hold.
    """

    name = "langgraph"
    version = version("langgraph")

    def __init__(
        self,
        graph: Graph,
        model: BaseChatModel,
        own_tools: Sequence[str],
        context: Callable[[], object],
        state_types: Sequence[type],
    ) -> None:
        self._graph = graph
        self._model = model
        self._own_tools = frozenset(own_tools)
        self._context = context
        self._state_types = tuple(state_types)

    async def run_model(
        self, context: ModelStepContext
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        """Make one model step; see `Harness`."""
        tools = context.request.tools
        extra_tools.set([tool for tool in tools if tool.name not in self._own_tools])
        run: _Run | None = None
        try:
            run = await self._resumed(context) or self._begun(context)
            async for piece in run.pieces(self._context()):
                for delta in _deltas(piece):
                    yield delta
            yield await run.result()
        except Exception as error:
            failed = _broken(error)
            failed.usage = failed.usage or (run.usage() if run is not None else None)
            raise failed from error

    def _begun(self, context: ModelStepContext) -> _Run:
        saver = TurnSaver(self._state_types)
        graph = self._graph.copy({"checkpointer": saver})
        messages = to_messages(context.request)
        return _Run(graph, saver, {"messages": messages}, {message.id for message in messages})

    async def _resumed(self, context: ModelStepContext) -> _Run | None:
        """Go on where the snapshot is, if it fits the results."""
        if context.results is None:
            return None
        saver = TurnSaver(self._state_types)
        graph = self._graph.copy({"checkpointer": saver})
        try:
            saver.load(context.snapshot)
            state = await graph.aget_state(_CONFIG, subgraphs=True)
            resume = _resume(state.interrupts, context.results)
        except (LookupError, TypeError, ValueError):
            return None
        seen = {message.id for message in _messages(state)}
        return _Run(graph, saver, Command(resume=resume), seen)

    async def summarise(
        self, request: ModelRequest
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        """Ask the model, without the graph; see `Harness`."""
        prompt = [HumanMessage(message.text) for message in request.messages]
        try:
            response = await self._model.ainvoke([SystemMessage(request.instructions), *prompt])
        except Exception as error:
            raise _broken(error) from error
        yield ModelReply(
            text=text_of(response),
            usage=usage_of([response]),
            finish_reason=_finish(response),
            reported_model=_reported(response),
        )


class _Run:
    """One run of a graph, from its input to where it stops.

    Args:
        graph: The graph, with the saver.
        saver: Holds its state.
        given: The messages, or the results to go on with.
        seen: Ids of the messages that were there before.
    """

    def __init__(self, graph: Graph, saver: TurnSaver, given: Any, seen: set[str | None]) -> None:
        self._graph = graph
        self._saver = saver
        self._given = given
        self._seen = seen
        self._raw = _RawArguments()
        self._heard = _Heard()
        self._stopped: list[str] = []

    async def pieces(self, context: object) -> AsyncIterator[AIMessage]:
        """Run it, and yield what its models say."""
        stopped_calls.set(self._stopped)
        async for event in self._graph.astream(
            self._given,
            {**_CONFIG, "callbacks": [self._heard]},
            context=context,
            stream_mode="messages",
            subgraphs=True,
            durability="exit",
        ):
            # With subgraphs=True: the place in the graph, and the message with what is known about it.
            _, (piece, known) = cast("tuple[object, tuple[object, Mapping[str, object]]]", event)
            # What LangChain's own middleware asks a model for is marked; it is no answer to anybody.
            if isinstance(piece, AIMessage) and "lc_source" not in known:
                self._raw.add(piece)
                yield piece

    def usage(self) -> Usage | None:
        """Return what its model calls used, kept or not; None when there was none."""
        return usage_of(self._heard.responses) if self._heard.responses else None

    async def result(self) -> ModelStepResult:
        """Return what it came to.

        Raises:
            ModelError: It stopped for something else than tools, or its calls cannot be told apart.
            UnreadableStateError: Its state cannot be kept.
        """
        state = await self._graph.aget_state(_CONFIG, subgraphs=True)
        new = [one for one in _messages(state) if one.id not in self._seen]
        responses = [one for one in new if isinstance(one, AIMessage)]
        last = responses[-1] if responses else None
        calls = [self._raw.as_written(call) for call in _calls(state.interrupts)]
        invalid = _invalid(last)
        _require_ids([*calls, *invalid])
        self._require_all(calls)
        return ModelStepResult(
            text=_text(responses, state, new, waits=bool(calls or invalid)),
            calls=[*calls, *invalid],
            reasoning="".join(reasoning_of(one) for one in responses),
            items=_items(responses, calls),
            items_api=API,
            usage=self.usage() or Usage(),
            finish_reason=_finish(last),
            reported_model=_reported(last),
            # An answer with broken calls is no state to go on from: the graph has ended, or would leave them out.
            snapshot=self._saver.dump() if calls and not invalid else None,
        )

    def _require_all(self, calls: Sequence[ModelCall]) -> None:
        lost = set(self._stopped) - {call.provider_id for call in calls}
        if lost:
            raise ModelError(
                f"the graph stopped for the calls {', '.join(sorted(lost))}, and something in it caught the stop: put "
                "DurableToolCalls() first in the middleware, and let GraphInterrupt pass where exceptions are caught",
                retryable=False,
            )


def _messages(state: StateSnapshot) -> list[AnyMessage]:
    """Return the messages of the graph, and of those within that have not given theirs to it yet."""
    found = {one.id: one for one in state.values.get("messages", [])}
    for task in state.tasks:
        if isinstance(task.state, StateSnapshot):
            found |= {one.id: one for one in _messages(task.state)}
    return list(found.values())


class _Heard(BaseCallbackHandler):
    """Every response of a model in a run: a planner's is in no message of the graph."""

    run_inline = True

    def __init__(self) -> None:
        self.responses: list[AIMessage] = []

    def on_llm_end(self, response: LLMResult, **_: Any) -> None:
        """Take one in."""
        for made in response.generations[0][:1]:
            if isinstance(made, ChatGeneration) and isinstance(made.message, AIMessage):
                self.responses.append(made.message)


class _RawArguments:
    """The arguments of calls as the model wrote them.

    LangChain mends JSON that is broken or was cut; what a model meant to send is not for a library to guess.
    """

    def __init__(self) -> None:
        self._texts: dict[tuple[str | None, object], list[str]] = {}
        self._ids: dict[str, tuple[str | None, object]] = {}

    def add(self, piece: AIMessage) -> None:
        """Take a piece of a response in."""
        for chunk in piece.tool_call_chunks if isinstance(piece, AIMessageChunk) else ():
            place = (piece.id, chunk["index"])
            self._texts.setdefault(place, []).append(chunk["args"] or "")
            if chunk["id"]:
                self._ids[chunk["id"]] = place

    def as_written(self, call: ModelCall) -> ModelCall:
        """Return the call with the model's own text where that was streamed."""
        place = self._ids.get(call.provider_id or "")
        return call if place is None else replace(call, arguments="".join(self._texts[place]))


def _resume(
    interrupts: Sequence[Interrupt], results: Sequence[CallResult]
) -> dict[str, dict[str, dict[str, str]]]:
    """Return the results of each interrupt's calls.

    Raises:
        LookupError: A result is missing, or there is nothing to resume.
    """
    recorded = {
        one.provider_id: {
            "text": one.text,
            "status": "success" if one.status is CallStatus.SUCCEEDED else "error",
        }
        for one in results
    }
    resume = {
        one.id: {
            str(call["id"]): recorded[str(call["id"])] for call in wanted_calls(one.value) or ()
        }
        for one in interrupts
    }
    if not resume:
        raise LookupError("nothing waits")
    return resume


def _calls(interrupts: Sequence[Interrupt]) -> list[ModelCall]:
    found = []
    for one in interrupts:
        wanted = wanted_calls(one.value)
        if wanted is None:
            raise ModelError(
                "the graph interrupted itself: in a session a person approves calls of tools, so leave interrupt() "
                "out of its nodes",
                retryable=False,
            )
        found += [
            ModelCall(str(call["name"]), dump_json(to_json_value(call["args"])), call["id"])
            for call in wanted
        ]
    return found


def _invalid(last: AIMessage | None) -> list[ModelCall]:
    """Return the calls whose arguments are no JSON, which LangChain makes nothing of."""
    calls = last.invalid_tool_calls if last is not None else []
    return [ModelCall(call["name"] or "", call["args"] or "", call["id"]) for call in calls]


def _require_ids(calls: Sequence[ModelCall]) -> None:
    ids = [call.provider_id for call in calls]
    if None in ids or len(set(ids)) < len(ids):
        raise ModelError(
            "the model gave two calls the same id, or none", retryable=True, kind=FailureKind.BROKEN
        )


def _text(
    responses: Sequence[AIMessage], state: StateSnapshot, new: Sequence[object], *, waits: bool
) -> str:
    if not waits and (typed := state.values.get("structured_response")) is not None:
        return dump_json(to_json_value(typed))
    if not responses:
        # A tool whose result is the answer.
        return "\n\n".join(text_of(one) for one in new if isinstance(one, ToolMessage))
    return "".join(text_of(one) for one in responses)


def _items(responses: Sequence[AIMessage], calls: Sequence[ModelCall]) -> list[JsonValue]:
    """Return the response to send back as it came, where all its calls are calls of ours."""
    if len(responses) != 1:
        return []
    [response] = responses
    called = [call["id"] for call in response.tool_calls]
    same = called == [call.provider_id for call in calls] and not response.invalid_tool_calls
    return [as_item(response)] if same else []


def _deltas(piece: AIMessage) -> list[TextDelta | ReasoningDelta]:
    """Return what a page shows."""
    reasoning, text = reasoning_of(piece), text_of(piece)
    found: list[TextDelta | ReasoningDelta] = [ReasoningDelta(reasoning)] if reasoning else []
    return [*found, TextDelta(text)] if text else found


def _finish(response: AIMessage | None) -> str | None:
    said = _metadata(response)
    return said.get("finish_reason") or said.get("stop_reason")


def _reported(response: AIMessage | None) -> str | None:
    said = _metadata(response)
    return said.get("model_name") or said.get("model")


def _metadata(response: AIMessage | None) -> Mapping[str, Any]:
    return response.response_metadata if response is not None else {}


def _broken(error: Exception) -> ModelError:
    if isinstance(error, ContextOverflowError):
        return ModelError(str(error), retryable=False, context_full=True)
    wrong = GraphRecursionError | InvalidUpdateError | EmptyInputError | UnreadableStateError
    if isinstance(error, wrong):
        # A fault of the graph: the same again would end the same.
        return ModelError(f"{type(error).__name__}: {error}", retryable=False)
    return as_model_error(error)
