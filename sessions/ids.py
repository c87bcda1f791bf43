"""Identifiers: how they are made and how they look.

Session and Call IDs are random and unique over all sessions. Step and turn ids only need to be unique in
their session and are counted by the state itself.
"""

from __future__ import annotations

import hashlib
import re
import secrets

__all__ = [
    "CALL_ID_PATTERN",
    "IMAGE_ID_PATTERN",
    "MESSAGE_ID_PATTERN",
    "SESSION_ID_PATTERN",
    "image_id",
    "is_session_id",
    "new_call_id",
    "new_message_id",
    "new_session_id",
]

# Crockford's alphabet in lower case: no i, l, o, u, so an id survives being read aloud.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"

SESSION_ID_PATTERN = re.compile(r"ses_[0-9a-hjkmnp-tv-z]{24}")
CALL_ID_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,40}")
IMAGE_ID_PATTERN = re.compile(r"img_[0-9a-f]{32}")
MESSAGE_ID_PATTERN = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def _random(length: int) -> str:
    return "".join(_ALPHABET[byte & 31] for byte in secrets.token_bytes(length))


def new_session_id() -> str:
    """Return a new session id: ``ses_`` and 24 characters (120 random bits)."""
    return "ses_" + _random(24)


def new_call_id() -> str:
    """Return a new Call ID: ``call_`` and 24 characters, 29 in all (providers allow 40)."""
    return "call_" + _random(24)


def image_id(data: bytes) -> str:
    """Return the id of an image: the same for the same bytes."""
    return "img_" + hashlib.sha256(data).hexdigest()[:32]


def new_message_id() -> str:
    """Return a new message id for a client that named none."""
    return "msg_" + _random(20)


def is_session_id(text: str) -> bool:
    """Say whether `text` has the shape of a session id, so that it can be part of a Redis key."""
    return SESSION_ID_PATTERN.fullmatch(text) is not None
