"""``celeriac models``: which models sessions can choose, and whether the workers can reach them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from celeriac.sessions.client import SessionClient
from celeriac.sessions.snapshot import AgentInfo, ModelInfo, WorkerInfo
from celeriac.tasks.cli_common import Exit, print_json

__all__ = ["keyless_models", "list_models"]


def list_models(client: SessionClient, *, as_json: bool) -> int:
    """Write the models of every agent, with what workers say of them.

    Args:
        client: The sessions.
        as_json: Print the agents' models and what each worker says of them, as JSON.

    Returns:
        The exit code: 1 when nothing is known, for no worker has told.
    """
    agents, workers = client.agents(), client.workers()
    if not agents:
        click.echo("No agent was announced yet; start a worker with `celeriac worker`.", err=True)
        return Exit.FAILED
    if as_json:
        print_json(_as_json(agents, workers))
        return Exit.OK
    for agent in agents:
        click.echo(agent.name)
        for line in _lines(agent, workers):
            click.echo(f"  {line}")
    if not workers:
        click.echo("No worker was seen in the last 15 s, so of keys nothing is known.")
    return Exit.OK


def _as_json(agents: Sequence[AgentInfo], workers: Sequence[WorkerInfo]) -> dict[str, object]:
    chosen = {
        agent.name: {"models": list(agent.models), "default": agent.default_model}
        for agent in agents
    }
    seen = {
        worker.name: [model.model_dump(mode="json") for model in worker.models]
        for worker in workers
    }
    return {"agents": chosen, "workers": seen}


def keyless_models(workers: Sequence[WorkerInfo]) -> Iterator[str]:
    """Yield the models that a worker has no key for, with the variable that is missing.

    Args:
        workers: The workers.
    """
    for worker in workers:
        for model in worker.models:
            if model.key_set is False:
                variables = " or ".join(model.key_variables)
                yield f"{model.name}: {variables} is not set in {worker.name}"


def _lines(agent: AgentInfo, workers: Sequence[WorkerInfo]) -> Iterator[str]:
    width = max(map(len, agent.models))
    for name in agent.models:
        mark = "default" if name == agent.default_model else ""
        seen = [(worker, one) for worker in workers for one in worker.models if one.name == name]
        yield f"{name:<{width}}  {mark:<7}  {'; '.join(_facts(seen))}".rstrip()


def _facts(seen: Sequence[tuple[WorkerInfo, ModelInfo]]) -> Iterator[str]:
    if not seen:
        return
    model = seen[0][1]
    yield _key_words(seen)
    if model.provider is not None:
        yield "price known" if model.price_known else "no price, so its cost is unknown"
    if model.context_window_tokens is not None:
        yield f"reads {model.context_window_tokens:,} tokens"


def _key_words(seen: Sequence[tuple[WorkerInfo, ModelInfo]]) -> str:
    model = seen[0][1]
    if model.provider is None:
        return "needs no key of a provider"
    if model.provider == "unknown":
        return "LiteLLM does not know whose model this is; write provider/model"
    if not model.key_variables:
        return f"{model.provider}, needs no key"
    variables = " or ".join(model.key_variables)
    without = [worker.name for worker, one in seen if one.key_set is False]
    if without:
        where = "" if len(without) == len(seen) else f" in {', '.join(without)}"
        return f"{model.provider}, {variables} is NOT set{where}"
    if any(one.key_set is None for _, one in seen):
        return f"{model.provider}, {variables} is not set; the machine itself may be let in"
    return f"{model.provider}, {variables} is set"
