"""``celeriac status``: is it working, and why is this session not moving."""

from __future__ import annotations

import click

from celeriac.sessions.client import SessionClient
from celeriac.sessions.operations import Operations
from celeriac.sessions.settings import Settings
from celeriac.tasks.cli_common import Exit, one_line, plain, print_json
from celeriac.tasks.operation_words import problems, queue_words, rate_words, reason_words
from celeriac.tasks.queues import CeleryQueues

__all__ = ["show_session", "show_status"]


def show_status(client: SessionClient, settings: Settings, *, as_json: bool) -> int:
    """Write what goes on.

    Args:
        client: The sessions.
        settings: The settings.
        as_json: Print JSON instead of text.

    Returns:
        The exit code: 1 when something is wrong.
    """
    operations = client.operations.read(CeleryQueues(settings))
    wrong = list(problems(operations))
    if as_json:
        print_json({**operations.model_dump(mode="json"), "problems": wrong})
    else:
        _show(operations, wrong)
    return Exit.FAILED if wrong else Exit.OK


def _show(operations: Operations, wrong: list[str]) -> None:
    for problem in wrong:
        click.echo(f"{click.style('✗', fg='red')} {plain(problem)}")
    if not wrong:
        click.echo(f"{click.style('✓', fg='green')} Everything works")
    counts = ", ".join(f"{count:,} {status}" for status, count in operations.sessions.items())
    click.echo(f"sessions  {counts}")
    click.echo(
        f"people    {operations.approvals_waiting:,} calls wait for approval, "
        f"{operations.unknown_outcomes:,} outcomes unknown"
    )
    click.echo(f"last hour {rate_words(operations)}")
    for worker in operations.workers:
        busy = f"{worker.running} of {worker.concurrency} busy"
        click.echo(f"worker    {plain(worker.name)}  {busy}, takes {', '.join(worker.queues)}")
    for queue in operations.queues:
        click.echo(f"queue     {plain(queue.name)}  {queue_words(queue, operations.at)}")
    for session in operations.slow:
        for reason in session.reasons:
            said = plain(reason_words(reason, operations.at))
            click.echo(f"session   {session.session_id}  {said}  {one_line(session.title)}")


def show_session(
    client: SessionClient, settings: Settings, session_id: str, *, as_json: bool
) -> int:
    """Write why a session is where it is.

    Args:
        client: The sessions.
        settings: The settings.
        session_id: The session.
        as_json: Print JSON instead of text.

    Returns:
        The exit code: 1 when it waits for something that is wrong.

    Raises:
        NotFound: There is no such session.
    """
    state, at, reasons = client.operations.reasons(session_id, CeleryQueues(settings))
    if as_json:
        listed = [reason.model_dump(mode="json") for reason in reasons]
        print_json({"session_id": session_id, "status": state.status.value, "reasons": listed})
    else:
        click.echo(f"{session_id} is {state.status.value} ({one_line(state.title)})")
        for reason in reasons:
            click.echo(f"  {plain(reason_words(reason, at))}")
    return Exit.FAILED if any(reason.wrong for reason in reasons) else Exit.OK
