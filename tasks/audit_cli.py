"""``celeriac audit``: who decided and did what, newest first."""

from __future__ import annotations

import click

from celeriac.sessions.audit import AuditEntry
from celeriac.sessions.client import SessionClient
from celeriac.tasks.cli_common import Exit, one_line, plain, when

__all__ = ["list_audit"]

_PAGE = 500


def list_audit(client: SessionClient, session_id: str | None, *, limit: int, as_json: bool) -> int:
    """Write the audit log.

    Args:
        client: The sessions.
        session_id: Only entries about this session; None is all of them.
        limit: Most entries to list.
        as_json: Print each entry as a line of JSON.

    Returns:
        The exit code.
    """
    cursor, left = None, limit
    while left:
        page = client.audit(session_id=session_id, cursor=cursor, limit=min(left, _PAGE))
        for entry in page.entries:
            click.echo(plain(entry.model_dump_json()) if as_json else _line(entry))
        cursor, left = page.cursor, left - len(page.entries)
        if cursor is None:
            break
    if left == limit and not as_json:
        click.echo("Nothing is in the audit log.")
    return Exit.OK


def _line(entry: AuditEntry) -> str:
    who = f"{one_line(entry.by or '-')} ({entry.role or 'no role'}, {entry.way} {entry.address or '-'})"
    what = (entry.tool, entry.call_id, entry.session_id, entry.detail)
    return "  ".join(
        [when(entry.at), f"{entry.act.value:<14}", who, *(one_line(one) for one in what if one)]
    )
