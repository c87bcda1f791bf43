"""The worker and the agents that the store's tests announce."""

from __future__ import annotations

import time

from celeriac.sessions.snapshot import AgentInfo, ToolInfo, WorkerInfo

# A minute ago: agents are not forgotten yet, while the worker is no longer listed.
SEEN_AT = int(time.time() * 1000) - 60_000


def agent(name: str, *models: str) -> AgentInfo:
    return AgentInfo(
        name=name,
        description="Answers what is asked.",
        models=models,
        default_model=models[0],
        tools=(ToolInfo(name="look", description="Looks.", effect="read", approval="never"),),
        plan_mode_enabled=False,
        announced_at=SEEN_AT,
    )


def worker(name: str, seen_at: int) -> WorkerInfo:
    return WorkerInfo(
        name=name,
        seen_at=seen_at,
        pid=1,
        host="here",
        queues=("celeriac.model", "celeriac.tool"),
        concurrency=4,
        version="0",
        running=0,
    )


AGENTS = (agent("desk", "demo", "other"), agent("helper", "demo"))
WORKER = worker("worker-1", SEEN_AT)
