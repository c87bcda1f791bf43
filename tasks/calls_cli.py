"""``celeriac approvals | approve | reject | unknown | check | reconcile``: what waits for a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from celeriac.sessions.calls import CallRecord, CallStatus, DecisionVerb
from celeriac.sessions.client import SessionClient
from celeriac.sessions.errors import Conflict
from celeriac.sessions.jsonsafe import dump_json
from celeriac.sessions.snapshot import ApprovalItem
from celeriac.tasks.cli_common import Exit, one_line, plain, print_json, print_models, when

__all__ = ["check_unknown", "decide", "list_approvals", "list_unknown", "settle_unknown"]

_SHOWN_CHARACTERS = 300


def list_approvals(client: SessionClient, *, limit: int, as_json: bool) -> int:
    """Write every call that waits for a decision, the oldest first.

    Args:
        client: The sessions.
        limit: Most calls to list.
        as_json: Print JSON.

    Returns:
        The exit code.
    """
    items = client.approvals(limit=limit)
    if as_json:
        print_models(items)
        return Exit.OK
    _list(items, "No call waits for a decision.")
    if items:
        click.echo(f"{len(items)} waiting.{_more(items, limit)} Decide each with:")
        click.echo("  celeriac approve|reject SESSION CALL [-m NOTE]")
    return Exit.OK


def list_unknown(client: SessionClient, *, limit: int, as_json: bool) -> int:
    """Write every call whose outcome is unknown, the oldest first.

    Args:
        client: The sessions.
        limit: Most calls to list.
        as_json: Print JSON.

    Returns:
        The exit code.
    """
    items = client.unknown_outcomes(limit=limit)
    if as_json:
        print_models(items)
        return Exit.OK
    _list(items, "No outcome is unknown.")
    if items:
        click.echo(
            f"{len(items)} of unknown outcome.{_more(items, limit)} Look at the provider, then say what you found:"
        )
        click.echo("  celeriac reconcile SESSION CALL --succeeded|--failed [--note TEXT]")
    if any(item.call.checkable for item in items):
        click.echo("or have it looked up where that is possible: celeriac check SESSION CALL")
    return Exit.OK


def _more(items: Sequence[ApprovalItem], limit: int) -> str:
    return " There may be more." if len(items) == limit else ""


def _list(items: Sequence[ApprovalItem], nothing: str) -> None:
    if not items:
        click.echo(nothing)
    for item in items:
        click.echo("\n".join(_lines(item)) + "\n")


def _lines(item: ApprovalItem) -> Iterator[str]:
    call = item.call
    arguments = dump_json(call.arguments)
    if len(arguments) > _SHOWN_CHARACTERS:
        arguments = f"{arguments[:_SHOWN_CHARACTERS]}…"
    yield f"{item.session_id} {call.id}"
    yield f"  tool       {one_line(call.tool)}, since {when(item.since)}, {call.effect.value.replace('_', ' ')}"
    yield f"  arguments  {plain(arguments)}"
    if call.status is CallStatus.OUTCOME_UNKNOWN:
        yield f"  why        {one_line(call.error or 'the attempt gave no answer', 300)}"
    elif call.approval_reason:
        yield f"  why        {one_line(call.approval_reason, 300)}"
    if call.checked_at is not None:
        found = one_line(call.checked_note or "nothing was found", 300)
        yield f"  looked up  {when(call.checked_at)}: {found}"
    elif call.checking_at is not None:
        yield "  looked up  not yet; it will be"
    yield f"  session    {one_line(item.title) or '(no title)'} (agent {one_line(item.agent)})"


def decide(
    client: SessionClient,
    session_id: str,
    call_id: str,
    verb: DecisionVerb,
    *,
    by: str,
    note: str | None,
    digest: str | None,
    ask: bool,
    as_json: bool,
) -> int:
    """Show a call and ask, then approve or reject it.

    Args:
        client: The sessions.
        session_id: The session.
        call_id: The call.
        verb: Approve or reject.
        by: Who decides.
        note: Reaches the model with a rejection.
        digest: Digest of what was seen; None is what is shown now.
        ask: Whether to show it and ask.
        as_json: Print the call as JSON.

    Returns:
        The exit code.

    Raises:
        Refused: There is no such call, it does not wait for a decision, or it has changed.
    """
    if ask:
        shown = client.call(session_id, call_id)
        if shown.status is CallStatus.AWAITING_APPROVAL:
            _show(shown)
            click.confirm(f"{verb.value.capitalize()} this call?", abort=True, err=True)
        elif shown.decision is None:
            raise Conflict(
                f"Call {call_id} is not waiting for an approval; it is {shown.status.value}.",
                code="not_awaiting_approval",
            )
        digest = digest or shown.digest
    call = client.decide(session_id, call_id, verb, by=by, note=note, digest=digest)
    if as_json:
        print_json(call.model_dump(mode="json"))
    elif call.decision is not None:
        click.echo(f"{one_line(call.tool)} ({call.id}): {plain(call.decision.describe())}.")
    return Exit.OK


def _show(call: CallRecord) -> None:
    """Write a call as it would run, all of it, where a pipe does not take it for the output."""
    lines = [
        f"tool       {one_line(call.tool)}"
        + (f" of {one_line(call.source)}" if call.source else ""),
        f"effect     {call.effect.value.replace('_', ' ')}",
        f"digest     {call.digest}",
        f"arguments  {plain(dump_json(call.arguments))}",
    ]
    if call.approval_reason:
        lines.append(f"why        {plain(call.approval_reason)}")
    click.echo("\n".join(lines), err=True)


def check_unknown(
    client: SessionClient, session_id: str, call_id: str, *, by: str, as_json: bool
) -> int:
    """Have a call of unknown outcome looked up at its provider.

    Args:
        client: The sessions.
        session_id: The session.
        call_id: The call.
        by: Who asks.
        as_json: Print the call as JSON.

    Returns:
        The exit code.

    Raises:
        Refused: There is no such call, its outcome is known, or it cannot be looked up.
    """
    call = client.check_call(session_id, call_id, by=by)
    if as_json:
        print_json(call.model_dump(mode="json"))
        return Exit.OK
    click.echo(
        f"{one_line(call.tool)} ({call.id}) is being looked up; `celeriac unknown` shows what was found, unless "
        "that settles it."
    )
    return Exit.OK


def settle_unknown(
    client: SessionClient,
    session_id: str,
    call_id: str,
    *,
    succeeded: bool,
    by: str,
    note: str | None,
    as_json: bool,
) -> int:
    """Say how a call of unknown outcome ended, and write what that means.

    Args:
        client: The sessions.
        session_id: The session.
        call_id: The call.
        succeeded: Whether it took effect.
        by: Who found out.
        note: What was found.
        as_json: Print the call as JSON.

    Returns:
        The exit code.

    Raises:
        Refused: There is no such call, or its outcome is known.
    """
    call = client.reconcile(session_id, call_id, succeeded=succeeded, by=by, note=note)
    if as_json:
        print_json(call.model_dump(mode="json"))
        return Exit.OK
    did = "it took effect" if succeeded else "it did not take effect"
    click.echo(
        f"{one_line(call.tool)} ({call.id}): {did}, as {plain(by)} says. The agent is told so in its next turn."
    )
    return Exit.OK
