"""``celeriac new | send --wait`` and ``celeriac tail``: follow a session from the command line."""

from __future__ import annotations

import json

import click

from celeriac.sessions.calls import CallRecord, CallStatus
from celeriac.sessions.client import SessionClient
from celeriac.sessions.events import EventType
from celeriac.sessions.snapshot import Snapshot
from celeriac.sessions.state import SessionStatus, StepName
from celeriac.tasks.cli_common import Exit, one_line, plain, print_json
from celeriac.tasks.sessions_cli import message_lines

__all__ = ["report_outcome", "tail_session"]

_BLOCK_MS = 2_000
_ASKING = frozenset({CallStatus.AWAITING_APPROVAL, CallStatus.AWAITING_ANSWER})
_STREAMED = frozenset({EventType.TEXT_DELTA, EventType.REASONING_DELTA, EventType.TOOL_PROGRESS})


def report_outcome(client: SessionClient, session_id: str, *, as_json: bool) -> int:
    """Wait until the session's turns have ended, or it waits for a person; write what came of it.

    Args:
        client: The sessions.
        session_id: The session.
        as_json: Print the snapshot as JSON.

    Returns:
        The exit code: 3 when a person must decide or answer, 1 when the last turn failed.
    """
    snapshot = client.snapshot(session_id)
    while not _at_rest(snapshot):
        _await_change(client, snapshot)
        snapshot = client.snapshot(session_id)
    if as_json:
        print_json(snapshot.model_dump(mode="json"))
    elif snapshot.messages and snapshot.status is SessionStatus.IDLE:
        click.echo(plain(snapshot.messages[-1].text))
    for call in () if as_json else _asking(snapshot):
        verb = "approve" if call.status is CallStatus.AWAITING_APPROVAL else "answer"
        click.echo(
            f"{one_line(call.tool)} waits for a person: celeriac {verb} {session_id} {call.id}",
            err=True,
        )
    if snapshot.status is not SessionStatus.IDLE:
        return Exit.WAITING
    return Exit.FAILED if _failed(client, snapshot) else Exit.OK


def _asking(snapshot: Snapshot) -> list[CallRecord]:
    return [call for call in snapshot.calls if call.status in _ASKING]


def _at_rest(snapshot: Snapshot) -> bool:
    if snapshot.status is SessionStatus.WAITING:
        return bool(_asking(snapshot))
    return snapshot.status is SessionStatus.IDLE


def _failed(client: SessionClient, snapshot: Snapshot) -> bool:
    turn_id = snapshot.messages[-1].turn_id if snapshot.messages else None
    return any(
        step.name is StepName.RECORD_TURN_FAILURE and step.turn_id == turn_id
        for step in client.steps(snapshot.session_id)
    )


def _await_change(client: SessionClient, snapshot: Snapshot) -> None:
    """Return when something other than streamed text has happened, or after a while."""
    after = snapshot.resume_token
    while True:
        batch = client.events(snapshot.session_id, after=after, block_ms=_BLOCK_MS)
        kinds = {json.loads(event.json)["type"] for event in batch.events}
        if batch.reload or not batch.events or kinds - _STREAMED:
            return
        after = batch.events[-1].id


def tail_session(client: SessionClient, session_id: str, *, messages: int, as_json: bool) -> int:
    """Write the latest messages, then what happens, until Ctrl-C.

    Args:
        client: The sessions.
        session_id: The session.
        messages: How many messages to begin with.
        as_json: Print each live event as a line of JSON, and no messages.

    Returns:
        The exit code.
    """
    snapshot = client.snapshot(session_id)
    shown = snapshot.messages[-messages:] if messages else ()
    calls = {call.id: call for call in snapshot.calls}
    for message in () if as_json else shown:
        for line in message_lines(message, calls):
            click.echo(line)
    after = snapshot.resume_token
    writer = _EventWriter()
    try:
        while True:
            batch = client.events(session_id, after=after, block_ms=_BLOCK_MS)
            if batch.reload:
                click.echo("(some events are gone; `celeriac show` has the conversation)", err=True)
                after = client.snapshot(session_id).resume_token
            for event in batch.events:
                after = event.id
                click.echo(plain(event.json)) if as_json else writer.write(event.json)
    except KeyboardInterrupt:
        return Exit.OK


class _EventWriter:
    """Writes live events as text; the pieces of an answer one after the other."""

    def __init__(self) -> None:
        self._streaming = False

    def write(self, event: str) -> None:
        """Write one event, as it is stored."""
        parsed = json.loads(event)
        kind, data = parsed["type"], parsed["data"]
        if kind == EventType.TEXT_DELTA:
            click.echo(plain(data["text"]), nl=False)
            self._streaming = True
            return
        if kind == EventType.REASONING_DELTA:
            return
        if self._streaming:
            click.echo()
            self._streaming = False
        facts = "  ".join(f"{name} {one_line(str(value))}" for name, value in data.items() if value)
        click.echo(click.style(f"{kind:<16} {facts}", dim=True))
