"""Fill in the texts that a change names but does not carry: results of calls, texts of queued messages.

Both are immutable once stored, so reading them beside the guarded commit is safe.
"""

from __future__ import annotations

from typing import cast

import redis

from celeriac.sessions.calls import CallOutcome, result_text
from celeriac.sessions.codec import read_record
from celeriac.sessions.draft import Change, NewMessage, TextSource
from celeriac.sessions.jsonsafe import truncate_text
from celeriac.sessions.settings import Settings
from celeriac.sessions.store.keys import SessionKeys

__all__ = ["fill_in_texts"]


def fill_in_texts(client: redis.Redis, change: Change, settings: Settings) -> None:
    """Give every new message its text.

    Args:
        client: The store.
        change: The change; its messages are replaced in place.
        settings: How much of a result the model reads.
    """
    if all(new.source is TextSource.GIVEN for new in change.messages):
        return
    keys = SessionKeys.of(change.state.session_id)
    outcomes = _outcomes(client, keys, change)
    texts = _queue_texts(client, keys, change)
    change.messages = [_filled(new, outcomes, texts, settings) for new in change.messages]


def _filled(
    new: NewMessage, outcomes: dict[str, CallOutcome], texts: dict[str, str], settings: Settings
) -> NewMessage:
    message = new.message
    if new.source is TextSource.OUTCOME and message.call_id is not None:
        outcome = outcomes[message.call_id]
        limit = new.shown_bytes or settings.result_shown_bytes
        text = truncate_text(result_text(message.tool or "the tool", outcome), limit)
        return NewMessage(message.model_copy(update={"text": text, "status": outcome.status}))
    if new.source is TextSource.QUEUE and message.message_id is not None:
        return NewMessage(message.model_copy(update={"text": texts[message.message_id]}))
    return new


def _outcomes(client: redis.Redis, keys: SessionKeys, change: Change) -> dict[str, CallOutcome]:
    outcomes = dict(change.outcomes)
    missing = [
        new.message.call_id
        for new in change.messages
        if new.source is TextSource.OUTCOME
        and new.message.call_id is not None
        and new.message.call_id not in outcomes
    ]
    if missing:
        raw = client.hmget(keys.calls, [call_id + ":o" for call_id in missing])
        for call_id, entry in zip(missing, cast("list[bytes | None]", raw), strict=True):
            if entry is not None:
                outcomes[call_id] = read_record(CallOutcome, entry)
    return outcomes


def _queue_texts(client: redis.Redis, keys: SessionKeys, change: Change) -> dict[str, str]:
    texts = dict(change.queue_texts)
    missing = [
        new.message.message_id
        for new in change.messages
        if new.source is TextSource.QUEUE
        and new.message.message_id is not None
        and new.message.message_id not in texts
    ]
    if missing:
        raw = client.hmget(keys.queue, missing)
        for message_id, entry in zip(missing, cast("list[bytes | None]", raw), strict=True):
            if entry is not None:
                texts[message_id] = entry.decode()
    return texts
