"""What the pages share."""

from __future__ import annotations

from flask import Response, request

from celeriac.web.problems import ENHANCED_HEADER

__all__ = ["done", "go", "is_enhanced", "typed"]


def go(address: str) -> Response:
    """Send the browser to another page with GET (303), whatever it did before."""
    return Response(status=303, headers={"Location": address})


def is_enhanced() -> bool:
    """Say whether one of our scripts sent the form, and so shows the result itself."""
    return request.headers.get(ENHANCED_HEADER) == "1"


def typed(name: str) -> str:
    """Return a form's text with the line ends that were typed, not those that browsers send."""
    return request.form.get(name, "").replace("\r\n", "\n")


def done(address: str) -> Response:
    """Answer a form that did what it should.

    Args:
        address: The page to show next.

    Returns:
        A redirect there; for a script only that it is done.
    """
    if is_enhanced():
        return Response(status=204)
    return go(address)
