"""The contract covers every route, its document is valid, and answers are what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from flask import Flask
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.errors import Unsatisfiable
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import celeriac
from celeriac.sessions.calls import CallStatus
from celeriac.web.contract import CONTRACT
from celeriac.web.parts import EXTENSION
from celeriac.web.stream import StreamTiming
from tests.web.conftest import MakeApp, operators
from tests.web.fake_client import FakeClient

API = re.compile(r"/(api/|healthz|readyz|openapi\.json|metrics)")


@pytest.fixture
def app(make_app: MakeApp) -> Flask:
    made = make_app(operators=operators("ann:operator:token-of-ann"))
    made.extensions[EXTENSION].streams.timing = StreamTiming(block=0.01, longest=0.05)
    return made


def test_every_route_of_the_api_is_in_the_contract_and_nothing_else(app: Flask) -> None:
    routes = {rule.endpoint for rule in app.url_map.iter_rules() if API.match(rule.rule)}
    assert routes == set(CONTRACT)


def test_the_document_is_valid_openapi(app: Flask) -> None:
    document = app.test_client().get("/openapi.json").get_json()
    OpenAPIV31SpecValidator(document).validate()
    operations = [one for path in document["paths"].values() for one in path.values()]
    ids = [one["operationId"] for one in operations]
    assert len(set(ids)) == len(ids) == len(CONTRACT)


def test_examples_fit_their_bodies() -> None:
    for route in CONTRACT.values():
        if route.body is not None:
            assert route.example is not None, route.about
            route.body.model_validate(route.example)


def test_every_code_that_the_contract_names_is_one_that_the_code_raises() -> None:
    root = Path(celeriac.__path__[0])
    source = "".join(
        path.read_text() for part in ("web", "sessions") for path in (root / part).rglob("*.py")
    )
    named = {
        code.strip()
        for route in CONTRACT.values()
        for codes in route.errors.values()
        for code in codes.split(",")
    }
    unknown = {code for code in named if f'"{code}"' not in source.replace("web/contract.py", "")}
    assert unknown == set()


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
OPERATIONS = sorted(endpoint.rpartition(".")[2] for endpoint in CONTRACT)


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize("operation_id", OPERATIONS)
def test_random_requests_get_what_the_document_says(
    app: Flask, fake: FakeClient, operation_id: str, mode: GenerationMode
) -> None:
    """Well-formed and hostile requests of an operator, to a session that has something of everything."""
    session = fake.create_session(message="hello").session_id
    fake.ask(session, status=CallStatus.OUTCOME_UNKNOWN)
    call = fake.ask(session)
    schema = schemathesis.openapi.from_wsgi("/openapi.json", app)
    operation = schema.find_operation_by_id(operation_id)
    headers = {"Authorization": "Bearer token-of-ann"}
    known = {"sid": session, "call_id": call.id}

    @given(operation.as_strategy(generation_mode=mode), st.booleans())
    @settings(
        max_examples=12, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
    )
    def check(case: schemathesis.Case[Any], real: bool) -> None:
        if real:
            case.path_parameters |= {k: v for k, v in known.items() if k in case.path_parameters}
        case.call_and_validate(headers=headers, checks=CHECKS)

    try:
        check()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE, "no well-formed request can be made"
