"""Commands about calls: decisions, answers, unknown outcomes, and the audit log of all that."""

from __future__ import annotations

import json
import sys

import click

from celeriac.tasks.cli_common import (
    acting_client,
    by_option,
    complete_session,
    json_option,
    open_cli_client,
    plain,
    print_json,
    session_argument,
)

__all__ = ["COMMANDS"]

_limit = click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Most to list."
)


@click.command()
@_limit
@json_option
def approvals(limit: int, *, as_json: bool) -> None:
    """List the calls that wait for a decision."""
    from celeriac.tasks.calls_cli import list_approvals  # noqa: PLC0415

    sys.exit(list_approvals(open_cli_client(), limit=limit, as_json=as_json))


def _decision(verb: str, about: str) -> click.Command:
    @click.command(verb, help=about)
    @session_argument
    @click.argument("call")
    @click.option("-m", "--note", default=None, help="Why; a rejection's reaches the model.")
    @click.option("--yes", is_flag=True, help="Do not ask; needs --digest.")
    @click.option(
        "--digest", default=None, help="Digest of what you saw: a changed call is refused."
    )
    @by_option
    @json_option
    def command(
        session: str,
        call: str,
        *,
        note: str | None,
        yes: bool,
        digest: str | None,
        by: str | None,
        as_json: bool,
    ) -> None:
        if yes and digest is None:
            raise click.UsageError("--yes needs --digest: it says what you have seen.")
        from celeriac.sessions.calls import DecisionVerb  # noqa: PLC0415
        from celeriac.tasks.calls_cli import decide  # noqa: PLC0415

        client, name = acting_client(by)
        sys.exit(
            decide(
                client,
                session,
                call,
                DecisionVerb(verb),
                by=name,
                note=note,
                digest=digest,
                ask=not yes,
                as_json=as_json,
            )
        )

    return command


approve = _decision("approve", "Approve a call, after you have seen it.")
reject = _decision("reject", "Reject a call, after you have seen it.")


@click.command()
@session_argument
@click.argument("call")
@click.argument("text")
@click.option("--as-value", is_flag=True, help="TEXT is JSON: a number, true, a list …")
@by_option
@json_option
def answer(
    session: str, call: str, text: str, *, as_value: bool, by: str | None, as_json: bool
) -> None:
    """Answer a question of the agent."""
    try:
        value = json.loads(text) if as_value else text
    except ValueError as error:
        raise click.UsageError(f"TEXT is no JSON: {error}") from None
    client, name = acting_client(by)
    record = client.answer(session, call, value, by=name)
    if as_json:
        print_json(record.model_dump(mode="json"))
    else:
        click.echo(f"Question {record.id} is answered, by {plain(name)}.")


@click.command()
@_limit
@json_option
def unknown(limit: int, *, as_json: bool) -> None:
    """List the calls that may or may not have taken effect."""
    from celeriac.tasks.calls_cli import list_unknown  # noqa: PLC0415

    sys.exit(list_unknown(open_cli_client(), limit=limit, as_json=as_json))


@click.command()
@session_argument
@click.argument("call")
@by_option
@json_option
def check(session: str, call: str, *, by: str | None, as_json: bool) -> None:
    """Have a call of unknown outcome looked up at its provider now."""
    from celeriac.tasks.calls_cli import check_unknown  # noqa: PLC0415

    client, name = acting_client(by)
    sys.exit(check_unknown(client, session, call, by=name, as_json=as_json))


@click.command()
@session_argument
@click.argument("call")
@click.option("--succeeded", "outcome", flag_value="succeeded", help="It took effect.")
@click.option("--failed", "outcome", flag_value="failed", help="It did not take effect.")
@click.option("-m", "--note", default=None, help="What you found; the agent reads it.")
@by_option
@json_option
def reconcile(
    session: str,
    call: str,
    *,
    outcome: str | None,
    note: str | None,
    by: str | None,
    as_json: bool,
) -> None:
    """Say how a call of unknown outcome ended, once you have looked at the provider."""
    if outcome is None:
        raise click.UsageError("Say how it ended: --succeeded or --failed.")
    from celeriac.tasks.calls_cli import settle_unknown  # noqa: PLC0415

    client, name = acting_client(by)
    succeeded = outcome == "succeeded"
    sys.exit(
        settle_unknown(
            client, session, call, succeeded=succeeded, by=name, note=note, as_json=as_json
        )
    )


@click.command()
@click.option(
    "--session",
    default=None,
    shell_complete=complete_session,
    help="Only entries about this session.",
)
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Most to list."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, an entry a line.")
def audit(session: str | None, limit: int, *, as_json: bool) -> None:
    """List decisions, operators' acts, logins and refusals, the newest first."""
    from celeriac.tasks.audit_cli import list_audit  # noqa: PLC0415

    sys.exit(list_audit(open_cli_client(), session, limit=limit, as_json=as_json))


COMMANDS = (approvals, approve, reject, answer, unknown, check, reconcile, audit)
