"""Images of a session's messages, to whoever may read the session."""

from __future__ import annotations

from flask import Blueprint, Response, request

from celeriac.sessions.errors import NotFound
from celeriac.sessions.ids import IMAGE_ID_PATTERN
from celeriac.sessions.images import media_type_of
from celeriac.web.auth import require_session
from celeriac.web.operators import Role
from celeriac.web.parts import parts

__all__ = ["api_images"]

api_images = Blueprint("api_images", __name__, url_prefix="/api/sessions/<sid>/images")

_SECONDS = 24 * 3600


@api_images.get("/<image_id>")
def get_image(sid: str, image_id: str) -> Response:
    """The bytes of an image; they never change under this id."""
    require_session(sid, Role.VIEWER)
    if IMAGE_ID_PATTERN.fullmatch(image_id) is None:
        raise NotFound("This session has no such image.", code="unknown_image")
    data = parts().client.image(sid, image_id)
    response = Response(data, content_type=media_type_of(data) or "application/octet-stream")
    # Only in this browser, and asked for again once the person may have lost access.
    response.headers["Cache-Control"] = f"private, max-age={_SECONDS}, immutable"
    response.headers["Content-Disposition"] = "inline"
    response.headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response.set_etag(image_id)
    response.make_conditional(request)
    return response
