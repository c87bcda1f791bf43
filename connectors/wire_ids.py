"""Which id each call has in a request: the provider's own where nothing speaks against it, else ours. Pure.

A provider finds its output as it made it, and some hide signatures in their ids (Gemini). But providers use ids
again, leave them out, or do not take those of others; ours are always unique.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from celeriac.sessions.messages import Message, Role
from celeriac.sessions.model import ItemsApi

__all__ = ["is_verbatim", "wire_ids"]

_SENDABLE = re.compile(r"[!-~]+")


def is_verbatim(message: Message, model: str, api: ItemsApi) -> bool:
    """Say whether a response goes back as it came: to the model that wrote it, over the same API."""
    written_here = message.role is Role.ASSISTANT and message.model == model
    return written_here and bool(message.items) and message.items_api == api


def wire_ids(messages: Sequence[Message], model: str, api: ItemsApi) -> Mapping[str, str]:
    """Choose the ids of a request.

    Args:
        messages: All messages of the request.
        model: The model it goes to.
        api: The API it goes over.

    Returns:
        The id to send by Call ID, for each call; all are different. What one request has sent stays the
        same in the next, as long as the messages before it do.
    """
    taken = {call.id for message in messages for call in message.calls}
    chosen: dict[str, str] = {}
    for message in messages:
        verbatim = is_verbatim(message, model, api)
        for call in message.calls:
            theirs = call.provider_id or ""
            usable = verbatim and theirs not in taken and _SENDABLE.fullmatch(theirs) is not None
            chosen[call.id] = theirs if usable else call.id
            taken.add(chosen[call.id])
    return chosen
