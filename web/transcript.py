"""The conversation as a page shows it: messages with the calls they made in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from celeriac.sessions.calls import CallRecord, CallStatus
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.snapshot import Snapshot

__all__ = ["Entry", "entries", "needs_person"]


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
    """Say whether a call of the session waits for a decision."""
    return any(call.status is CallStatus.AWAITING_APPROVAL for call in snapshot.calls)
