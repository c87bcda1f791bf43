"""How the API answers when all is well."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flask import Response
from pydantic import BaseModel, JsonValue

from celeriac.sessions.jsonsafe import dump_json
from celeriac.web.stream import Streams

__all__ = ["empty", "json_response", "model_response", "stream_response"]


def json_response(value: JsonValue, status: int = 200) -> Response:
    """Answer with a JSON value."""
    return Response(dump_json(value), status, content_type="application/json")


def model_response(model: BaseModel, status: int = 200) -> Response:
    """Answer with a model as JSON."""
    return Response(model.model_dump_json(), status, content_type="application/json")


def empty() -> Response:
    """Answer that it is done and there is nothing to say."""
    response = Response(status=204)
    del response.headers["Content-Type"]
    return response


def stream_response(streams: Streams, open_stream: Callable[[], Iterator[str]]) -> Response:
    """Answer with server-sent events, on one of the places that this process has for streams.

    Args:
        streams: The places.
        open_stream: Makes the pieces; what it raises is answered before the stream has begun.

    Raises:
        Refusal: 503; all places are taken, or the process is stopping.
    """
    slot = streams.acquire()
    try:
        frames = open_stream()
    except BaseException:
        slot.release()
        raise
    response = Response(frames, content_type="text/event-stream; charset=utf-8")
    response.headers["X-Accel-Buffering"] = "no"
    response.headers["Cache-Control"] = "no-store"
    # Not in the generator's own `finally`: one that was never started would not run it.
    response.call_on_close(slot.release)
    return response
