"""``celeriac unknown`` and ``celeriac reconcile``: outcomes that nobody knows, and how they are settled."""

from __future__ import annotations

import socket
from datetime import UTC, datetime

import click

from celeriac.sessions.audit import Actor
from celeriac.sessions.calls import CallRecord
from celeriac.sessions.client import SessionClient
from celeriac.sessions.jsonsafe import dump_json
from celeriac.sessions.snapshot import ApprovalItem

__all__ = ["check_unknown", "list_unknown", "settle_unknown"]

_SHOWN_CHARACTERS = 300


def list_unknown(client: SessionClient, *, limit: int) -> int:
    """Write every call whose outcome is unknown, the oldest first.

    Args:
        client: The sessions.
        limit: Most calls to list.

    Returns:
        The exit code.
    """
    items = client.unknown_outcomes(limit=limit)
    if not items:
        click.echo("No outcome is unknown.")
        return 0
    for item in items:
        click.echo(_lines(item) + "\n")
    more = " There may be more." if len(items) == limit else ""
    click.echo(
        f"{len(items)} of unknown outcome.{more} Look at the provider, then say what you found:"
    )
    click.echo("  celeriac reconcile SESSION CALL --succeeded|--failed [--note TEXT]")
    if any(item.call.checkable for item in items):
        click.echo("or have it looked up where that is possible: celeriac check SESSION CALL")
    return 0


def _lines(item: ApprovalItem) -> str:
    call = item.call
    since = datetime.fromtimestamp(item.since / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    arguments = dump_json(call.arguments)
    if len(arguments) > _SHOWN_CHARACTERS:
        arguments = f"{arguments[:_SHOWN_CHARACTERS]}…"
    lines = [
        f"{item.session_id} {call.id}",
        f"  tool       {call.tool}, since {since} UTC, {call.effect.value.replace('_', ' ')}",
        f"  arguments  {arguments}",
        f"  why        {call.error or 'the attempt gave no answer'}",
        *_look_up(call),
        f"  session    {item.title or '(no title)'} (agent {item.agent})",
    ]
    return "\n".join(lines)


def _here() -> Actor:
    return Actor(way="cli", address=socket.gethostname(), own=False)


def _look_up(call: CallRecord) -> list[str]:
    if call.checked_at is not None:
        at = datetime.fromtimestamp(call.checked_at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        return [f"  looked up  {at} UTC: {call.checked_note or 'nothing was found'}"]
    if call.checking_at is not None:
        return ["  looked up  not yet; it will be"]
    return []


def check_unknown(client: SessionClient, session_id: str, call_id: str, *, by: str) -> int:
    """Have a call of unknown outcome looked up at its provider.

    Args:
        client: The sessions.
        session_id: The session.
        call_id: The call.
        by: Who asks.

    Returns:
        The exit code.

    Raises:
        Refused: There is no such call, its outcome is known, or it cannot be looked up.
    """
    call = client.acting_as(_here()).check_call(session_id, call_id, by=by)
    click.echo(
        f"{call.tool} ({call.id}) is being looked up; `celeriac unknown` shows what was found, unless that "
        "settles it."
    )
    return 0


def settle_unknown(
    client: SessionClient,
    session_id: str,
    call_id: str,
    *,
    succeeded: bool,
    by: str,
    note: str | None,
) -> int:
    """Say how a call of unknown outcome ended, and write what that means.

    Args:
        client: The sessions.
        session_id: The session.
        call_id: The call.
        succeeded: Whether it took effect.
        by: Who found out.
        note: What was found.

    Returns:
        The exit code.

    Raises:
        Refused: There is no such call, or its outcome is known.
    """
    call = client.acting_as(_here()).reconcile(
        session_id, call_id, succeeded=succeeded, by=by, note=note
    )
    did = "it took effect" if succeeded else "it did not take effect"
    click.echo(
        f"{call.tool} ({call.id}): {did}, as {by} says. The agent is told so in its next turn."
    )
    return 0
