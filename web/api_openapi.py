"""``/openapi.json``: the contract as an OpenAPI 3.1 document."""

from __future__ import annotations

from flask import Blueprint, Response, current_app
from werkzeug.routing import Rule

from celeriac.web.contract import CONTRACT
from celeriac.web.openapi import openapi_document
from celeriac.web.responses import json_response

__all__ = ["api_openapi", "api_rules"]

api_openapi = Blueprint("api_openapi", __name__)


def api_rules() -> list[Rule]:
    """Return the routes of this application that are part of the API."""
    return [rule for rule in current_app.url_map.iter_rules() if rule.endpoint in CONTRACT]


@api_openapi.get("/openapi.json")
def get_openapi() -> Response:
    """Describe the API."""
    return json_response(openapi_document(api_rules(), CONTRACT))
