"""Model steps of ADK agents: they run until they want tools, and go on with what those gave."""

from __future__ import annotations

import json
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from importlib.metadata import version
from uuid import uuid4

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.agents._streaming_mode import StreamingMode
from google.adk.agents.invocation_context import LlmCallsLimitExceededError
from google.adk.agents.run_config import RunConfig
from google.adk.apps import App, ResumabilityConfig
from google.adk.events import Event, EventActions
from google.adk.events.event import NodeInfo
from google.adk.models.llm_request import LlmRequest
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types
from google.genai.errors import APIError
from pydantic import JsonValue, ValidationError

from celeriac.connectors.google_adk_messages import (
    API,
    as_item,
    reasoning_of,
    result_part,
    text_of,
    to_events,
    usage_of,
)
from celeriac.connectors.google_adk_tools import StepTools, Stopping, step_tools
from celeriac.connectors.litellm_errors import as_model_error
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.harness import CallResult, ModelStepContext, ModelStepResult
from celeriac.sessions.jsonsafe import dump_json, to_json_value
from celeriac.sessions.model import (
    ModelCall,
    ModelError,
    ModelReply,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
)

__all__ = ["GoogleAdkHarness"]

_APP, _USER = "celeriac", "user"
# What a model ends with when it would rather not answer.
_REFUSED = frozenset(
    {"SAFETY", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "RECITATION", "IMAGE_SAFETY"}
)


class GoogleAdkHarness:
    """Runs agents, one model step at a time.

    Args:
        root: The root agent.
        speaker: The agent whose model writes summaries.
        own_tools: Names of the agents' tools.
    """

    name = "google-adk"
    version = version("google-adk")

    def __init__(self, root: BaseAgent, speaker: LlmAgent, own_tools: Sequence[str]) -> None:
        self._root = root
        self._speaker = speaker
        self._own_tools = frozenset(own_tools)
        self._service = InMemorySessionService()
        self._plugin = Stopping()

    async def run_model(
        self, context: ModelStepContext
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        """Make one model step; see `Harness`."""
        kept = _Kept.read(context.snapshot, self._root.name)
        before = kept.resumed(context.results) if context.results is not None else None
        begins = self._root
        if before is not None:
            workflow = _workflow_of(self._root.find_agent(kept.speaker))
            if workflow is not None:
                begins, before = workflow, _at_work(workflow, before)
        else:
            alone = _answers_alone(self._root.find_agent(kept.speaker) or self._root)
            before = to_events(context.request, kept.speaker, alone=alone)
        external = [tool for tool in context.request.tools if tool.name not in self._own_tools]
        used = {call.id for event in before for call in event.get_function_calls() if call.id}
        run = _Run(self._runner(begins), before, StepTools(external, used))
        try:
            await run.begin(kept.state)
            async with aclosing(run.events()) as events:
                async for event in events:
                    for delta in _deltas(event, run.streamed):
                        yield delta
            yield await run.result(self._root.name)
        except Exception as error:
            raise _broken(error) from error
        finally:
            await run.close()

    def _runner(self, begins: BaseAgent) -> Runner:
        with warnings.catch_warnings():
            # That resuming is experimental is why the version is pinned.
            warnings.simplefilter("ignore", UserWarning)
            app = App(
                name=_APP,
                root_agent=begins,
                plugins=[self._plugin],
                # Without it workflow agents forget what comes after the one that stopped.
                resumability_config=ResumabilityConfig(is_resumable=True),
            )
        return Runner(app=app, session_service=self._service)

    async def summarise(
        self, request: ModelRequest
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        """Ask the agent's model, without the agents; see `Harness`."""
        model = self._speaker.canonical_model
        contents = [
            types.Content(role="user", parts=[types.Part(text=message.text)])
            for message in request.messages
        ]
        config = types.GenerateContentConfig(system_instruction=request.instructions)
        asked = LlmRequest(model=model.model, contents=contents, config=config)
        try:
            said = [
                Event(author="model", **response.model_dump())
                async for response in model.generate_content_async(asked)
            ]
        except Exception as error:
            raise _broken(error) from error
        _require_answer(said)
        yield ModelReply(text="".join(map(text_of, said)), usage=usage_of(said, 1))


def _workflow_of(agent: BaseAgent | None) -> BaseAgent | None:
    """Return the outermost agent around this one that lets others work in turns or side by side, if there is one.

    ADK gives results to the agent that called, and forgets what was to come after it in a workflow that an agent has
    handed over to; so the workflow goes on by itself.
    """
    found = None
    while agent is not None:
        if not isinstance(agent, LlmAgent):
            found = agent
        agent = agent.parent_agent
    return found


def _at_work(agent: BaseAgent, before: Sequence[Event]) -> list[Event]:
    """Return the events so that ADK finds this agent at work where it stopped.

    It looks for what an agent has noted by its place in a run that began with another one, or else by its name; and
    an agent of the author's own notes nothing.
    """
    begun = Event(
        author=agent.name,
        invocation_id=before[-1].invocation_id,
        actions=EventActions(agent_state={}),
    )
    return [
        begun,
        *(
            event.model_copy(update={"node_info": NodeInfo()})
            if agent.find_agent(event.author)
            else event
            for event in before
        ),
    ]


def _answers_alone(agent: BaseAgent | None) -> bool:
    """Say whether no agent works in turns or side by side with this one."""
    while agent is not None:
        if not isinstance(agent, LlmAgent):
            return False
        agent = agent.parent_agent
    return True


class _Kept:
    """What is kept between two model steps.

    Args:
        speaker: The agent that spoke last.
        state: ADK's session state.
        events: The events so far, while a turn waits for results.
    """

    def __init__(
        self, speaker: str, state: Mapping[str, JsonValue], events: Sequence[Event] = ()
    ) -> None:
        self.speaker = speaker
        self.state = state
        self._events = events

    @classmethod
    def read(cls, snapshot: JsonValue, root: str) -> _Kept:
        """Read what `write` returned; anything else counts as nothing."""
        match snapshot:
            case {"speaker": str(speaker), "state": dict(state), "events": list(events)}:
                try:
                    return cls(speaker, state, [_read_event(one) for one in events])
                except ValidationError:
                    return cls(speaker, state)
            case _:
                return cls(root, {})

    def resumed(self, results: Sequence[CallResult]) -> list[Event] | None:
        """Return the events with the results among them; None when they do not fit."""
        recorded = {result.provider_id: result for result in results}
        answers = [
            answer for event in self._events if (answer := _answer(event, recorded)) is not None
        ]
        return [*self._events, *answers] if answers and not recorded else None


def _read_event(kept: JsonValue) -> Event:
    # Bytes are written as base64, which only the reader of JSON takes back.
    return Event.model_validate_json(dump_json(kept))


def _answer(event: Event, recorded: dict[str, CallResult]) -> Event | None:
    """Take the results of an event's calls out of those recorded, as the event that follows."""
    calls = [call for call in event.get_function_calls() if call.id in recorded]
    if not calls:
        return None
    found = [recorded.pop(call.id or "") for call in calls]
    parts = [
        result_part(
            one.provider_id, one.tool, one.text, succeeded=one.status is CallStatus.SUCCEEDED
        )
        for one in found
    ]
    return Event(
        # As ADK wants the results of tools that run long.
        author="user",
        invocation_id=event.invocation_id,
        branch=event.branch,
        content=types.Content(role="user", parts=parts),
    )


class _Run:
    """One run of the agents, from the events so far to where it stops.

    Args:
        runner: Runs them.
        before: The events.
        tools: What the plugin must know.
    """

    def __init__(self, runner: Runner, before: Sequence[Event], tools: StepTools) -> None:
        self._runner = runner
        self._service = runner.session_service
        self._before = before
        self._tools = tools
        self._session_id = uuid4().hex
        self._new: list[Event] = []
        self.streamed: set[str] = set()
        """Agents of whose present response pieces have come."""

    async def begin(self, state: Mapping[str, JsonValue]) -> None:
        """Make a session of ADK for the time of the run, with all that has happened."""
        session = await self._service.create_session(
            app_name=_APP, user_id=_USER, session_id=self._session_id, state=dict(state)
        )
        for event in self._before:
            await self._service.append_event(session, event)

    async def close(self) -> None:
        """Forget the session."""
        await self._service.delete_session(
            app_name=_APP, user_id=_USER, session_id=self._session_id
        )

    async def events(self) -> AsyncGenerator[Event, None]:
        """Run them, and yield what comes."""
        step_tools.set(self._tools)
        running = self._runner.run_async(
            user_id=_USER,
            session_id=self._session_id,
            invocation_id=self._before[-1].invocation_id,
            run_config=RunConfig(streaming_mode=StreamingMode.SSE),
        )
        async with aclosing(running) as events:
            async for event in events:
                if not event.partial:
                    self._new.append(event)
                yield event
                if event.partial:
                    self.streamed.add(event.author)
                else:
                    self.streamed.discard(event.author)

    async def result(self, root: str) -> ModelStepResult:
        """Return what it came to.

        Args:
            root: Name of the root agent, which speaks unless another one did.

        Raises:
            ModelError: The model gave no answer, or two calls have one id.
        """
        said = [event for event in self._new if event.content is not None]
        calls = [
            ModelCall(call.name or "", dump_json(to_json_value(call.args or {})), call.id)
            for event in self._new
            for call in event.get_function_calls()
            if call.id in (event.long_running_tool_ids or ())
        ]
        _require_answer(self._new)
        _require_ids(calls)
        last = said[-1] if said else None
        return ModelStepResult(
            text="".join(map(text_of, said)),
            calls=calls,
            reasoning="".join(map(reasoning_of, said)),
            items=_items(said, calls),
            items_api=API,
            usage=usage_of(self._new, self._tools.model_calls),
            finish_reason=last.finish_reason.value if last and last.finish_reason else None,
            reported_model=last.model_version if last else None,
            snapshot=await self._snapshot(root, waits=bool(calls)),
        )

    async def _snapshot(self, root: str, *, waits: bool) -> JsonValue:
        session = await self._service.get_session(
            app_name=_APP, user_id=_USER, session_id=self._session_id
        )
        if session is None:
            raise AssertionError("the session of the run is gone")
        authors = [one.author for one in session.events if one.author != "user" and one.content]
        speaker = authors[-1] if authors else root
        state = to_json_value(session.state)
        if not waits and speaker == root and not state:
            return None
        events = session.events if waits else []
        written = [json.loads(event.model_dump_json(exclude_none=True)) for event in events]
        return {"speaker": speaker, "state": state, "events": to_json_value(written)}


def _require_ids(calls: Sequence[ModelCall]) -> None:
    ids = [call.provider_id for call in calls]
    if len(set(ids)) < len(ids):
        raise ModelError(
            "the model gave two calls the same id", retryable=True, kind=FailureKind.BROKEN
        )


def _require_answer(events: Sequence[Event]) -> None:
    """Raise `ModelError` where the model ended with an error in the place of an answer, or left calls out of it."""
    failed = next(filter(_is_none, events), None)
    if failed is None:
        return
    refused = failed.error_code in _REFUSED
    raise ModelError(
        f"{failed.error_code}: {failed.error_message or 'the model gave no answer'}",
        retryable=not refused,
        kind=FailureKind.CONTENT_POLICY if refused else FailureKind.BROKEN,
    )


def _is_none(event: Event) -> bool:
    # Only what was cut at its end is an answer all the same: of broken calls ADK leaves the other parts.
    cut = event.error_code == types.FinishReason.MAX_TOKENS and text_of(event)
    return bool(event.error_code) and not cut


def _items(said: Sequence[Event], calls: Sequence[ModelCall]) -> list[JsonValue]:
    """Return the response to send back as it came, where all its calls are calls of ours."""
    responses = [event for event in said if not event.get_function_responses()]
    if len(responses) != 1 or len(said) != 1 or responses[0].content is None:
        return []
    called = [call.id for call in responses[0].get_function_calls()]
    same = called == [call.provider_id for call in calls]
    return [as_item(responses[0].content)] if same else []


def _deltas(event: Event, streamed: set[str]) -> list[TextDelta | ReasoningDelta]:
    """Return what a page shows; a whole response repeats the pieces that have come."""
    if not event.partial and event.author in streamed:
        return []
    reasoning, text = reasoning_of(event), text_of(event)
    found: list[TextDelta | ReasoningDelta] = [ReasoningDelta(reasoning)] if reasoning else []
    return [*found, TextDelta(text)] if text else found


class _ProviderError(Exception):
    """An error of Google's client, with its status where other clients have it."""

    def __init__(self, error: APIError) -> None:
        super().__init__(str(error))
        self.status_code = error.code


def _broken(error: Exception) -> ModelError:
    if isinstance(error, APIError):
        return as_model_error(_ProviderError(error))
    if isinstance(error, LlmCallsLimitExceededError):
        return ModelError(str(error), retryable=False)
    if isinstance(error, LookupError):
        # A placeholder of an instruction that is not in the state: the same again would end the same.
        return ModelError(f"the agents are at fault: {error}", retryable=False)
    if isinstance(error, json.JSONDecodeError):
        return ModelError(
            f"the arguments of a call are not JSON: {error}",
            retryable=True,
            kind=FailureKind.BROKEN,
        )
    return as_model_error(error)
