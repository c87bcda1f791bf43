"""Fill in the texts that a change names but does not carry: results of calls, texts of queued messages.

Both are immutable once stored, so reading them beside the guarded commit is safe.
"""

from __future__ import annotations

from typing import cast

import redis

from celeriac.sessions.calls import CallOutcome, result_text
from celeriac.sessions.codec import read_images, read_record
from celeriac.sessions.draft import Change, NewMessage, TextSource
from celeriac.sessions.jsonsafe import truncate_text
from celeriac.sessions.settings import Settings
from celeriac.sessions.store.keys import SessionKeys, call_fields, queue_fields

__all__ = ["fill_in_texts"]


def fill_in_texts(client: redis.Redis, change: Change, settings: Settings) -> bool:
    """Give every new message its text.

    Args:
        client: The store.
        change: The change; its messages are replaced in place.
        settings: How much of a result the model reads.

    Returns:
        False when a text is gone: somebody took or deleted the queued message after the state was
        read, so the session has moved on.
    """
    if all(new.source is TextSource.GIVEN for new in change.messages):
        return True
    keys = SessionKeys.of(change.state.session_id)
    outcomes = _outcomes(client, keys, change)
    queued = _queued(client, keys, change)
    filled = [_filled(new, outcomes, queued, settings) for new in change.messages]
    change.messages = [new for new in filled if new is not None]
    return None not in filled


def _filled(
    new: NewMessage,
    outcomes: dict[str, CallOutcome],
    queued: dict[str, dict[str, object]],
    settings: Settings,
) -> NewMessage | None:
    message = new.message
    if new.source is TextSource.OUTCOME and message.call_id is not None:
        outcome = outcomes.get(message.call_id)
        if outcome is None:
            return None
        limit = new.shown_bytes or settings.result_shown_bytes
        text = truncate_text(result_text(message.tool or "the tool", outcome), limit)
        return NewMessage(message.model_copy(update={"text": text, "status": outcome.status}))
    if new.source is TextSource.QUEUE and message.message_id is not None:
        waiting = queued.get(message.message_id)
        return None if waiting is None else NewMessage(message.model_copy(update=waiting))
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
        raw = client.hmget(keys.calls, [call_fields(call_id)[1] for call_id in missing])
        for call_id, entry in zip(missing, cast("list[bytes | None]", raw), strict=True):
            if entry is not None:
                outcomes[call_id] = read_record(CallOutcome, entry)
    return outcomes


def _queued(client: redis.Redis, keys: SessionKeys, change: Change) -> dict[str, dict[str, object]]:
    """Return what queued messages say and show, by message id."""
    found: dict[str, dict[str, object]] = {
        message_id: {"text": text, "images": change.queue_images.get(message_id, ())}
        for message_id, text in change.queue_texts.items()
    }
    missing = [
        new.message.message_id
        for new in change.messages
        if new.source is TextSource.QUEUE
        and new.message.message_id is not None
        and new.message.message_id not in found
    ]
    if missing:
        fields = [field for message_id in missing for field in queue_fields(message_id)]
        raw = cast("list[bytes | None]", client.hmget(keys.queue, fields))
        for message_id, text, images in zip(missing, raw[::2], raw[1::2], strict=True):
            if text is not None:
                found[message_id] = {"text": text.decode(), "images": read_images(images)}
    return found
