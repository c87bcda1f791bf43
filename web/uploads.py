"""Images in requests: of a JSON body as base64, of a form as files. Both are checked by their bytes."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Sequence
from http import HTTPStatus

from flask import request

from celeriac.sessions.images import Image
from celeriac.web.parts import parts
from celeriac.web.problems import Refusal
from celeriac.web.schemas import SentImage
from celeriac.web.security import REQUEST_MAX_BYTES

__all__ = ["accept_images", "form_images", "json_images"]


def accept_images() -> None:
    """Let this request be as large as a message with images may be; only after its access was checked."""
    request.max_content_length = parts().settings.images_max_bytes * 4 // 3 + REQUEST_MAX_BYTES


def json_images(sent: Sequence[SentImage]) -> list[Image]:
    """Return the images of a JSON body.

    Raises:
        Refusal: 400; one is no base64.
        InvalidRequest: One is too large, or no image.
    """
    return [parts().client.read_image(_decoded(one), one.name) for one in sent]


def _decoded(sent: SentImage) -> bytes:
    try:
        return b64decode(sent.data, validate=True)
    except (binascii.Error, ValueError):
        raise Refusal(
            HTTPStatus.BAD_REQUEST,
            f"The data of the image {sent.name[:100]!r} is no base64 (standard alphabet, with padding).",
            code="invalid_body",
        ) from None


def form_images() -> list[Image]:
    """Return the images of a form's file field ``images``; a browser sends an empty one when none is chosen.

    Raises:
        InvalidRequest: One is too large, or no image.
    """
    client = parts().client
    chosen = [one for one in request.files.getlist("images") if one.filename]
    return [client.read_image(one.read(), one.filename or "") for one in chosen]
