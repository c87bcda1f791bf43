"""The conversation as a page shows it: messages with the calls they made in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from celeriac.sessions.built_in import (
    AskUser,
    BuiltInTool,
    DurableWait,
    WriteTodos,
    parse_built_in,
)
from celeriac.sessions.calls import CallRecord, CallStatus
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.snapshot import Snapshot
from celeriac.sessions.tools import InvalidArguments

__all__ = ["Entry", "entries", "needs_person", "own_arguments"]

_FOR_PEOPLE = frozenset({CallStatus.AWAITING_APPROVAL, CallStatus.AWAITING_ANSWER})


@dataclass(frozen=True, slots=True)
class Entry:
    """One message with the calls it made."""

    message: Message
    calls: tuple[CallRecord, ...] = ()

    @property
    def key(self) -> str:
        """Its name among its neighbours, the same whenever it is shown."""
        return f"message-{self.message.seq}"

    @property
    def kind(self) -> str:
        """``user``, ``assistant``, ``tool``, ``summary`` or ``notice``."""
        return self.message.role.value


def entries(messages: Sequence[Message], calls: Sequence[CallRecord]) -> list[Entry]:
    """Put calls where they were made.

    Args:
        messages: The messages, oldest first.
        calls: The call records that belong to them.

    Returns:
        An entry per message. A tool's message is left out where its call is shown: the call's card holds
        the result. One whose call was made before the first message here stands alone.
    """
    by_id = {call.id: call for call in calls}
    shown: set[str] = set()
    result = []
    for message in messages:
        if message.role is Role.TOOL and message.call_id in shown:
            continue
        made = tuple(by_id[call.id] for call in message.calls if call.id in by_id)
        shown.update(call.id for call in made)
        result.append(Entry(message, made))
    return result


def needs_person(snapshot: Snapshot) -> bool:
    """Say whether a call of the session waits for a decision or an answer."""
    return any(call.status in _FOR_PEOPLE for call in snapshot.calls)


def own_arguments(call: CallRecord) -> AskUser | DurableWait | WriteTodos | None:
    """Return what a call of one of Celeriac's own tools says.

    Args:
        call: Any call.

    Returns:
        Its arguments; None for a call of another tool, or with arguments that are wrong.
    """
    if call.source is not None or call.tool not in set(BuiltInTool):
        return None
    try:
        return parse_built_in(BuiltInTool(call.tool), call.arguments)
    except InvalidArguments:
        return None
