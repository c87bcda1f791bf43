"""OpenAI's Agents SDK, with the fake model that comes with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any, cast

from agents import Agent, Model, ModelResponse, Usage, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

from celeriac import AgentDefinition, CompactionPolicy, openai_agents_session
from tests.harness.script import Heard, Said, hold, respond
from tests.harness.tools import POLICIES, broke, look, missing, pay, sources

NAME = "openai-agents"
_numbers = count()


class Scripted(Model):
    """The script as a model of the SDK; each agent of a graph has one."""

    def __init__(self, speaker: str) -> None:
        self.speaker = speaker

    def _step(self, given: object) -> tuple[Said, ScriptedModel]:
        said = respond(self.speaker, list(_heard(given)))
        output = [assistant_message(said.text)] if said.text else []
        # Ids come again in other requests, as some providers' do.
        output += [
            function_call(name, raw, call_id=f"call_{at}")
            for at, (name, raw) in enumerate(said.calls)
        ]
        if said.hand_to:
            output.append(function_call(f"transfer_to_{said.hand_to}", "{}", call_id="hand"))
        usage = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
        return said, ScriptedModel([ModelStep(output=output)], default_usage=usage)

    async def get_response(self, *given: Any, **more: Any) -> ModelResponse:
        _, model = self._step(more.get("input", given[1] if len(given) > 1 else None))
        return await model.get_response(*given, **more)

    async def stream_response(self, *given: Any, **more: Any) -> AsyncIterator[Any]:
        said, model = self._step(more.get("input", given[1] if len(given) > 1 else None))
        async for event in model.stream_response(*given, **more):
            if event.type == "response.completed":
                await hold(said.gate)
            yield event


def _heard(given: object) -> Iterator[Heard]:
    if isinstance(given, str):
        yield Heard("user", given)
        return
    for item in cast("list[dict[str, Any]]", given):
        if item.get("type") == "function_call_output":
            yield Heard("tool", str(item["output"]))
        elif item.get("role") in {"user", "assistant"}:
            content = item["content"]
            text = content if isinstance(content, str) else "".join(p["text"] for p in content)
            yield Heard("user" if item["role"] == "user" else "assistant", text)


def _agent(name: str, compaction: CompactionPolicy | None = None) -> AgentDefinition:
    clerk: Agent[None] = Agent(name="clerk", instructions="Be a clerk.", model=Scripted("clerk"))
    front: Agent[None] = Agent(
        name="front",
        instructions="Do as you are told.",
        model=Scripted(NAME),
        tools=[function_tool(one) for one in (look, pay, missing, broke)],
        handoffs=[clerk],
    )
    clerk.handoffs.append(front)
    return openai_agents_session(
        name=name,
        agent=front,
        tool_policies=POLICIES,
        tool_sources=sources(),
        compaction=compaction,
    )


agent = _agent(NAME)
small = _agent(f"{NAME}-small", CompactionPolicy(context_window_tokens=600, keep_recent_tokens=20))
