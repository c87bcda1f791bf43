"""Commands about sessions: start, send, look, follow, stop."""

from __future__ import annotations

import sys

import click

from celeriac.tasks.cli_common import (
    acting_client,
    by_option,
    complete_session,
    json_option,
    open_cli_client,
    print_json,
    session_argument,
)

__all__ = ["COMMANDS"]

_wait = click.option(
    "--wait",
    is_flag=True,
    help="Wait for the answer; exits 3 when the turn waits for a person, 1 when it fails.",
)
_messages = click.option(
    "-n",
    "--messages",
    type=click.IntRange(0, 200),
    default=10,
    show_default=True,
    help="How many of the latest messages to show.",
)


@click.command()
@click.argument("agent")
@click.argument("message", required=False)
@click.option("--model", default=None, help="The session's model [the agent's default].")
@click.option("--plan", is_flag=True, help="The first turn only plans.")
@_wait
@by_option
@json_option
def new(
    agent: str,
    message: str | None,
    *,
    model: str | None,
    plan: bool,
    wait: bool,
    by: str | None,
    as_json: bool,
) -> None:
    """Start a session with AGENT, and print its id."""
    client, _ = acting_client(by)
    created = client.create_session(agent=agent, model=model, message=message, plan_mode=plan)
    if wait and message is not None:
        from celeriac.tasks.follow_cli import report_outcome  # noqa: PLC0415

        click.echo(f"session {created.session_id}", err=True)
        sys.exit(report_outcome(client, created.session_id, as_json=as_json))
    if as_json:
        print_json(created.model_dump(mode="json"))
    else:
        click.echo(created.session_id)


@click.command()
@session_argument
@click.argument("text")
@_wait
@by_option
@json_option
def send(session: str, text: str, *, wait: bool, by: str | None, as_json: bool) -> None:
    """Send a message; while a turn runs it waits in the queue."""
    client, _ = acting_client(by)
    sent = client.send_message(session, text)
    if wait:
        from celeriac.tasks.follow_cli import report_outcome  # noqa: PLC0415

        sys.exit(report_outcome(client, session, as_json=as_json))
    if as_json:
        print_json(sent.model_dump(mode="json"))
    else:
        click.echo(f"{sent.message_id}{' waits in the queue' if sent.queued else ''}")


@click.command()
@session_argument
@_messages
@json_option
def show(session: str, messages: int, *, as_json: bool) -> None:
    """Show where a session stands, and its latest messages."""
    from celeriac.tasks.sessions_cli import show_session  # noqa: PLC0415

    sys.exit(show_session(open_cli_client(), session, messages=messages, as_json=as_json))


@click.command()
@session_argument
@_messages
@click.option("--json", "as_json", is_flag=True, help="Print JSON, an event a line.")
def tail(session: str, messages: int, *, as_json: bool) -> None:
    """Follow a session's live events, until Ctrl-C."""
    from celeriac.tasks.follow_cli import tail_session  # noqa: PLC0415

    sys.exit(tail_session(open_cli_client(), session, messages=messages, as_json=as_json))


@click.command()
@session_argument
@json_option
def steps(session: str, *, as_json: bool) -> None:
    """List what a session did, step by step."""
    from celeriac.tasks.sessions_cli import list_steps  # noqa: PLC0415

    sys.exit(list_steps(open_cli_client(), session, as_json=as_json))


@click.command()
@click.option("--state", type=click.Choice(["idle", "running", "waiting"]), help="Only these.")
@click.option("--agent", default=None, help="Only sessions of this agent.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Most to list."
)
@json_option
def sessions(state: str | None, agent: str | None, limit: int, *, as_json: bool) -> None:
    """List sessions, the last active first."""
    from celeriac.tasks.sessions_cli import list_sessions  # noqa: PLC0415

    sys.exit(
        list_sessions(open_cli_client(), status=state, agent=agent, limit=limit, as_json=as_json)
    )


@click.command()
@session_argument
@click.option("--turn", default=None, help="Stop only this turn; refused when it has ended.")
@by_option
@json_option
def cancel(session: str, *, turn: str | None, by: str | None, as_json: bool) -> None:
    """Stop the open turn at the next safe step boundary."""
    client, name = acting_client(by)
    client.cancel_turn(session, turn_id=turn, by=name)
    if as_json:
        print_json({"accepted": True})
    else:
        click.echo("The turn ends at the next safe step boundary.")


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@json_option
def status(session: str | None, *, as_json: bool) -> None:
    """Say whether it works (workers, queues, sessions that do not move), or why SESSION is where it is.

    Exits 1 when something is wrong.
    """
    from celeriac.sessions.settings import load_settings  # noqa: PLC0415
    from celeriac.tasks.status_cli import show_session, show_status  # noqa: PLC0415

    client, settings = open_cli_client(), load_settings()
    if session is None:
        sys.exit(show_status(client, settings, as_json=as_json))
    sys.exit(show_session(client, settings, session, as_json=as_json))


COMMANDS = (status, new, send, show, tail, steps, sessions, cancel)
