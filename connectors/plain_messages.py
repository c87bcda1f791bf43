"""Messages in words that any API takes: what is not a response of the model. Pure."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping

from celeriac.sessions.images import ImageReference, image_words
from celeriac.sessions.jsonsafe import dump_json
from celeriac.sessions.messages import Message, Role

__all__ = ["result_words", "sendable_arguments", "sent_images"]

_PREFIXES = {
    Role.SUMMARY: "Summary of the conversation before this point:\n\n",
    Role.NOTICE: "Note from the system that runs this conversation, not from the user:\n\n",
}
# Providers refuse an empty content block.
_NOTHING = "(the tool returned nothing)"


def _user_words(message: Message) -> str:
    """Return what stands as the user's words.

    A summary or a notice in the middle of a conversation: not every provider takes a system message there,
    so it comes as a user message that says what it is.
    """
    return _PREFIXES.get(message.role, "") + message.text


def sent_images(
    message: Message, images: Mapping[str, bytes]
) -> tuple[str, list[tuple[ImageReference, str]]]:
    """Return a user message's words, and its images as data URLs.

    Args:
        message: The message.
        images: Bytes by id of those images that are sent; for each of the others a word stands.
    """
    here = [image for image in message.images if image.id in images]
    left_out = [image for image in message.images if image.id not in images]
    words = [_user_words(message), image_words(left_out, "not shown to you")]
    urls = [(image, _data_url(image.media_type, images[image.id])) for image in here]
    return "\n\n".join(part for part in words if part.strip()), urls


def _data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{b64encode(data).decode()}"


def result_words(message: Message) -> str:
    """Return a call's result; never blank."""
    return message.text if message.text.strip() else _NOTHING


def sendable_arguments(arguments: str) -> str:
    """Return the arguments as the model wrote them, or wrapped when they are no JSON object.

    Some providers parse what they get, and would refuse every later request for one bad call.
    """
    try:
        if isinstance(json.loads(arguments, parse_constant=_refuse_constant), dict):
            return arguments
    except ValueError:
        pass
    return dump_json({"not_a_json_object": arguments})


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
