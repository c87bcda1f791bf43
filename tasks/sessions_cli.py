"""``celeriac sessions | show | steps | agents``: what there is, and where a session stands."""

from __future__ import annotations

from collections.abc import Iterator

import click

from celeriac.sessions.calls import CallRecord
from celeriac.sessions.client import SessionClient
from celeriac.sessions.messages import Message
from celeriac.sessions.snapshot import Snapshot, StepRecord
from celeriac.sessions.state import SessionStatus
from celeriac.tasks.cli_common import Exit, one_line, plain, print_json, print_models, when

__all__ = ["list_agents", "list_sessions", "list_steps", "message_lines", "show_session"]

_PAGE = 200


def list_sessions(
    client: SessionClient,
    *,
    status: str | None,
    agent: str | None,
    limit: int,
    as_json: bool,
) -> int:
    """Write the sessions, the last active first.

    Args:
        client: The sessions.
        status: Only those of this status.
        agent: Only those of this agent.
        limit: Most to list.
        as_json: Print JSON.

    Returns:
        The exit code.
    """
    only = SessionStatus(status) if status else None
    page = client.list_sessions(status=only, agent=agent, limit=min(limit, _PAGE))
    found = page.sessions
    while page.cursor is not None and len(found) < limit:
        more = min(limit - len(found), _PAGE)
        page = client.list_sessions(status=only, agent=agent, cursor=page.cursor, limit=more)
        found += page.sessions
    if as_json:
        print_models(found)
        return Exit.OK
    for one in found:
        state = one.waiting_for or one.status.value
        click.echo(
            f"{one.session_id}  {when(one.updated_at)}  {one_line(state, 30):<30}  "
            f"{one_line(one.agent, 20):<20}  {one_line(one.title, 50)}"
        )
    if not found:
        click.echo("No session matches." if status or agent else "There are no sessions yet.")
    return Exit.OK


def list_agents(client: SessionClient, *, as_json: bool) -> int:
    """Write the agents that workers announced.

    Returns:
        The exit code: 1 when none is known.
    """
    agents = client.agents()
    if as_json:
        print_models(agents)
    for agent in () if as_json else agents:
        click.echo(f"{one_line(agent.name)}  {one_line(agent.description)}")
        click.echo(f"  models  {', '.join(map(one_line, agent.models))}")
        click.echo(f"  tools   {', '.join(tool.name for tool in agent.tools) or 'none'}")
        for missing in agent.missing_tools:
            click.echo(f"  missing {one_line(missing, 200)}")
    if not agents:
        click.echo("No agent was announced yet; start a worker with `celeriac worker`.", err=True)
    return Exit.OK if agents else Exit.FAILED


def list_steps(client: SessionClient, session_id: str, *, as_json: bool) -> int:
    """Write the step history, the oldest first.

    Returns:
        The exit code.
    """
    steps = client.steps(session_id)
    if as_json:
        print_models(steps)
    for step in () if as_json else steps:
        click.echo(_step_line(step))
    return Exit.OK


def _step_line(step: StepRecord) -> str:
    facts = [
        f"{when(step.started_at)}  {step.name.value:<22} {step.status:<15}",
        f"{(step.ended_at - step.started_at) / 1000:9.3f} s",
        f"attempt {step.attempt}",
        *(one_line(one) for one in (step.turn_id, step.tool, step.worker, step.error) if one),
    ]
    return "  ".join(facts)


def show_session(client: SessionClient, session_id: str, *, messages: int, as_json: bool) -> int:
    """Write where a session stands, and its latest messages.

    Args:
        client: The sessions.
        session_id: The session.
        messages: How many of the latest messages are shown as text.
        as_json: Print the whole snapshot as JSON.

    Returns:
        The exit code.
    """
    snapshot = client.snapshot(session_id)
    if as_json:
        print_json(snapshot.model_dump(mode="json"))
        return Exit.OK
    for line in _lines(snapshot, messages):
        click.echo(line)
    return Exit.OK


def _lines(snapshot: Snapshot, messages: int) -> Iterator[str]:
    yield click.style(one_line(snapshot.title) or "(no title)", bold=True)
    yield f"  session  {snapshot.session_id}, since {when(snapshot.created_at)}"
    yield f"  agent    {one_line(snapshot.agent)}, model {one_line(snapshot.model)}"
    yield f"  state    {snapshot.status.value}"
    for step in snapshot.turn.steps if snapshot.turn else ():
        error = f", {one_line(step.last_error, 200)}" if step.last_error else ""
        yield f"  step     {step.name.value} {step.state} since {when(step.since)}, attempt {step.attempt}{error}"
    if snapshot.queue:
        yield f"  queue    {len(snapshot.queue)} message(s)"
    for call_id in snapshot.unknown_calls:
        yield f"  unknown  {call_id}: see `celeriac unknown`"
    yield ""
    shown = snapshot.messages[-messages:] if messages else ()
    calls = {call.id: call for call in snapshot.calls}
    for message in shown:
        yield from message_lines(message, calls)


def message_lines(message: Message, calls: dict[str, CallRecord]) -> Iterator[str]:
    """Yield a message of the conversation as lines, with the calls that it made.

    Args:
        message: The message.
        calls: Calls by their id.
    """
    if message.tool is None and message.text:
        name = click.style(f"{message.role.value}:", bold=True)
        yield f"{name} {plain(message.text)}"
    for reference in message.calls:
        call = calls.get(reference.id)
        status = call.status.value.replace("_", " ") if call else "open"
        yield f"  {one_line(reference.tool)} ({reference.id}): {status}"
