"""Stripe, against an independent server that keeps charges, refunds and idempotency keys."""

from __future__ import annotations

import concurrent.futures
import json
from collections.abc import Iterator
from typing import cast

import pytest
from pydantic import JsonValue

from celeriac.sessions.errors import ToolFailed, ToolNotRun, ToolOutcomeUnknown
from tests.connectors.sdk.calls import call, reconcile
from tests.connectors.sdk.provider import (
    Answer,
    Behaviour,
    Provider,
    cut_after_headers,
    forward,
    json_answer,
    lost,
    reset,
    running_provider,
)
from tests.connectors.stripe.mock import KEY, StripeMock, running_stripe
from tests.node_tools import needs_node_tools

pytestmark = needs_node_tools


@pytest.fixture(scope="module")
def stripe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StripeMock]:
    with running_stripe(tmp_path_factory.mktemp("stripe")) as running:
        yield running


@pytest.fixture
def provider(stripe: StripeMock) -> Iterator[Provider]:
    with running_provider() as running:
        running.then = forward(stripe.url)
        yield running


def _environment(url: str, key: str = KEY) -> dict[str, str]:
    return {
        "CELERIAC_CONNECTION_MAIN_CONNECTOR": "stripe",
        "CELERIAC_CONNECTION_MAIN_SECRET_KEY": key,
        "CELERIAC_CONNECTION_MAIN_BASE_URL": url,
    }


def _refund(provider: Provider, charge: str, **values: JsonValue) -> dict[str, JsonValue]:
    attempt = cast("int", values.pop("attempt", 1))
    call_id = str(values.pop("call_id", provider.call_id))
    arguments = {"payment": charge, **values}
    result = call(
        _environment(provider.url),
        "stripe.createRefund",
        arguments,
        attempt=attempt,
        call_id=call_id,
    )
    assert isinstance(result, dict)
    return result


def test_a_refund(stripe: StripeMock, provider: Provider) -> None:
    charge = stripe.charge(2000)
    result = _refund(provider, charge, amount=500, reason="requested_by_customer")
    assert result["branch"] == "created"
    assert stripe.refunds(charge) == [(500, provider.call_id)]
    (request,) = provider.requests
    assert request.headers["idempotency-key"] == f"stripe.createRefund/{provider.call_id}"


def test_without_an_amount_all_is_refunded(stripe: StripeMock, provider: Provider) -> None:
    charge = stripe.charge(2000)
    _refund(provider, charge)
    assert [amount for amount, _ in stripe.refunds(charge)] == [2000]


@pytest.mark.parametrize("breaks", ["closed", "reset", "cut"])
def test_an_answer_that_is_lost_after_the_refund(
    stripe: StripeMock, provider: Provider, breaks: str
) -> None:
    """The same key again: Stripe answers what it answered first, and there is one refund."""
    charge = stripe.charge(2000)
    provider.script = [forward(stripe.url, breaks=breaks)]
    with pytest.raises(ToolOutcomeUnknown) as caught:
        _refund(provider, charge, amount=500)
    assert caught.value.repeatable
    assert len(provider.requests) == 1
    result = _refund(provider, charge, amount=500, attempt=2)
    assert result["branch"] == "created"
    assert stripe.refunds(charge) == [(500, provider.call_id)]
    first, second = provider.requests
    assert first.body == second.body
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


def test_eight_at_once_make_one_refund(stripe: StripeMock, provider: Provider) -> None:
    charge = stripe.charge(2000)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: _refund(provider, charge, amount=500), range(8)))
    assert len({json.dumps(result["refund"]) for result in results}) == 1
    assert stripe.refunds(charge) == [(500, provider.call_id)]


def test_cn_05_a_key_that_is_known_with_other_parameters(
    stripe: StripeMock, provider: Provider
) -> None:
    charge = stripe.charge(2000)
    _refund(provider, charge, amount=500)
    with pytest.raises(ToolFailed, match="defect: Stripe knows this call with other parameters"):
        _refund(provider, charge, amount=600)
    # After an attempt the first request may be done: then nobody may say that it failed.
    with pytest.raises(ToolOutcomeUnknown) as caught:
        _refund(provider, charge, amount=600, attempt=2)
    assert not caught.value.repeatable
    assert stripe.refunds(charge) == [(500, provider.call_id)]


def test_cn_05_a_request_that_is_still_under_way(stripe: StripeMock, provider: Provider) -> None:
    """409: wait and send the same again, with the same key."""
    charge = stripe.charge(2000)
    busy = json_answer('{"error": {"type": "idempotency_error_in_use"}}', 409, Retry_After="3")
    provider.script = [busy, busy]
    for attempt in (1, 2):
        with pytest.raises(ToolOutcomeUnknown) as caught:
            _refund(provider, charge, amount=500, attempt=attempt)
        assert caught.value.repeatable
        assert caught.value.retry_after_seconds == 3
    assert _refund(provider, charge, amount=500, attempt=3)["branch"] == "created"
    assert len({(one.headers["idempotency-key"], one.body) for one in provider.requests}) == 1


def test_cn_05_two_operations_have_two_keys(stripe: StripeMock, provider: Provider) -> None:
    charge = stripe.charge(2000)
    _refund(provider, charge, amount=500, call_id="call_one")
    _refund(provider, charge, amount=500, call_id="call_two")
    assert sorted(stripe.refunds(charge)) == [(500, "call_one"), (500, "call_two")]


def test_arguments_in_another_order_are_the_same_request(
    stripe: StripeMock, provider: Provider
) -> None:
    charge = stripe.charge(2000)
    environment = _environment(provider.url)
    one: dict[str, JsonValue] = {"payment": charge, "amount": 500, "reason": "duplicate"}
    call(environment, "stripe.createRefund", one, call_id=provider.call_id)
    other = dict(reversed(one.items()))
    call(environment, "stripe.createRefund", other, call_id=provider.call_id, attempt=2)
    assert provider.requests[0].body == provider.requests[1].body
    assert len(stripe.refunds(charge)) == 1


@pytest.mark.parametrize(
    ("behaviour", "raised", "told"),
    [
        (json_answer("{}", 500), ToolOutcomeUnknown, "500"),
        (json_answer("{}", 502), ToolOutcomeUnknown, "502"),
        (json_answer("<html>", 200), ToolOutcomeUnknown, "cannot be read"),
        (json_answer("{}", 303, Location="/elsewhere"), ToolOutcomeUnknown, "303"),
        (lost, ToolOutcomeUnknown, "no answer"),
        (reset, ToolOutcomeUnknown, "no answer"),
        (cut_after_headers, ToolOutcomeUnknown, "broke off"),
        (json_answer("{}", 429, Retry_After="7"), ToolNotRun, "429"),
        (json_answer("{}", 401), ToolNotRun, "401"),
        (json_answer('{"error": {"message": "no"}}', 403), ToolFailed, "rejected: no"),
        (json_answer('{"error": {"message": "gone"}}', 404), ToolFailed, "rejected: gone"),
        (
            json_answer(
                '{"error": {"message": "It has.", "code": "charge_already_refunded"}}', 400
            ),
            ToolFailed,
            "rejected: It has. (charge_already_refunded)",
        ),
    ],
)
def test_each_answer_is_one_request_and_says_what_is_known(
    provider: Provider, behaviour: Behaviour, raised: type[Exception], told: str
) -> None:
    provider.script = [behaviour]
    with pytest.raises(raised) as caught:
        _refund(provider, "ch_1", amount=500)
    assert told in str(caught.value)
    assert len(provider.requests) == 1


def test_the_wait_that_stripe_asks_for(provider: Provider) -> None:
    provider.script = [json_answer("{}", 429, Retry_After="7")]
    with pytest.raises(ToolNotRun) as caught:
        _refund(provider, "ch_1")
    assert caught.value.retry_after_seconds == 7


def test_nobody_there_means_that_nothing_was_sent() -> None:
    with running_provider() as gone:
        url = gone.url
    with pytest.raises(ToolNotRun, match="no connection to"):
        call(_environment(url), "stripe.createRefund", {"payment": "ch_1"})


def test_a_permission_that_was_lost_says_nothing_of_an_earlier_attempt(provider: Provider) -> None:
    provider.script = [json_answer("{}", 403)]
    with pytest.raises(ToolNotRun):
        _refund(provider, "ch_1", attempt=2)


def test_a_refund_that_waits_is_pending(provider: Provider) -> None:
    provider.script = [json_answer('{"object": "refund", "id": "re_1", "status": "pending"}')]
    assert _refund(provider, "ch_1")["branch"] == "pending"


def test_the_key_that_stripe_sends_back_is_taken_out(provider: Provider) -> None:
    provider.script = [json_answer(f'{{"error": {{"message": "Invalid key {KEY}"}}}}', 400)]
    with pytest.raises(ToolFailed) as caught:
        _refund(provider, "ch_1")
    assert KEY not in str(caught.value)


def test_an_unknown_refund_is_found_by_its_call_id(stripe: StripeMock, provider: Provider) -> None:
    charge = stripe.charge(2000)
    _refund(provider, charge, amount=300, call_id="call_other")
    environment = _environment(provider.url)
    arguments: dict[str, JsonValue] = {"payment": charge, "amount": 500}
    found = reconcile(environment, "stripe.createRefund", arguments, call_id=provider.call_id)
    assert found.happened is None
    assert "no refund of this call" in found.note
    _refund(provider, charge, amount=500)
    found = reconcile(environment, "stripe.createRefund", arguments, call_id=provider.call_id)
    assert found.happened is True
    assert isinstance(found.result, dict)
    assert found.result["branch"] == "found"


def test_a_look_up_that_breaks_is_made_again(provider: Provider) -> None:
    provider.script = [json_answer("{}", 500)]
    with pytest.raises(ToolNotRun):
        reconcile(_environment(provider.url), "stripe.createRefund", {"payment": "ch_1"})


def test_reading(stripe: StripeMock, provider: Provider) -> None:
    charge = stripe.charge(2000)
    refund = cast("dict[str, str]", _refund(provider, charge, amount=500)["refund"])
    environment = _environment(provider.url)
    got = call(environment, "stripe.getRefund", {"refund": refund["id"]})
    assert got == {"branch": "found", "refund": refund}
    listed = call(environment, "stripe.listRefunds", {"payment": charge})
    assert listed == {"branch": "listed", "refunds": [refund], "more": False}
    found = cast(
        "dict[str, dict[str, JsonValue]]", call(environment, "stripe.getCharge", {"charge": charge})
    )
    assert found["charge"]["amount_refunded"] == 500
    charges = cast(
        "dict[str, list[JsonValue]]", call(environment, "stripe.listCharges", {"limit": 1})
    )
    assert len(charges["charges"]) == 1


def test_what_there_is_not(provider: Provider) -> None:
    with pytest.raises(ToolFailed, match="notFound: No such charge"):
        call(_environment(provider.url), "stripe.getCharge", {"charge": "ch_gone"})


def test_a_read_may_be_repeated(provider: Provider) -> None:
    for behaviour in (json_answer("{}", 500), json_answer("{}", 429)):
        provider.script = [behaviour]
        with pytest.raises(ToolNotRun):
            call(_environment(provider.url), "stripe.getCharge", {"charge": "ch_1"})
    assert len(provider.requests) == 2


def test_cancelling(provider: Provider) -> None:
    done = '{"object": "refund", "id": "re_1", "status": "canceled"}'
    provider.script = [json_answer(done), json_answer('{"error": {"message": "no"}}', 400)]
    environment = _environment(provider.url)
    result = call(environment, "stripe.cancelRefund", {"refund": "re_1"})
    assert result == {"branch": "cancelled", "refund": {"id": "re_1", "status": "canceled"}}
    with pytest.raises(ToolFailed, match="rejected: no"):
        call(environment, "stripe.cancelRefund", {"refund": "re_2"})
    provider.script = [json_answer(done)]
    found = reconcile(environment, "stripe.cancelRefund", {"refund": "re_1"})
    assert found.happened is True
    provider.script = [json_answer('{"object": "refund", "id": "re_1", "status": "pending"}')]
    found = reconcile(environment, "stripe.cancelRefund", {"refund": "re_1"})
    assert found.happened is None


def test_other_hosts_are_refused(provider: Provider) -> None:
    """The configuration's URL is allowed, and no other: not even one that an answer names."""
    provider.script = [lambda _request: Answer(307, b"", {"Location": "http://127.0.0.1:1/v1"})]
    with pytest.raises(ToolOutcomeUnknown):
        _refund(provider, "ch_1")
    assert [request.path for request in provider.requests] == ["/v1/refunds"]
