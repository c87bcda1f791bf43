"""The Stripe connector: charges and refunds. Its README tells what each operation does and how it may end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from pydantic import JsonValue

from celeriac.connectors.sdk import Call, Connector, Manifest, Outcome, ProviderAnswer
from celeriac.sessions.errors import ToolFailed, ToolNotRun, ToolOutcomeUnknown

__all__ = ["StripeConnector"]

_SHOWN = {
    "charge": (
        "id", "amount", "amount_refunded", "currency", "status", "paid", "refunded", "customer",
        "payment_intent", "description", "created",
    ),
    "refund": (
        "id", "amount", "currency", "status", "charge", "payment_intent", "reason", "failure_reason", "created",
    ),
}  # fmt: skip
"""What the model reads of an object; the rest is of no use to it, and some of it personal."""

_OPEN = frozenset({"pending", "requires_action"})


class StripeConnector(Connector):
    """Requests to the API v1 of one Stripe account."""

    manifest = Manifest.of_package(__name__)
    sends_only_by_http = True

    async def create_refund(self, call: Call) -> Outcome:
        """Make a refund; sent again with the same key, Stripe makes none twice."""
        fields = {
            **_payment(call),
            "amount": call.arguments.get("amount"),
            "reason": call.arguments.get("reason"),
            # By this the refund is found again when its key has run out.
            "metadata[celeriac_call_id]": call.id,
        }
        answer = await self._write(call, "/v1/refunds", fields)
        return self._refund_outcome(answer, call)

    async def cancel_refund(self, call: Call) -> Outcome:
        """Cancel a refund that waits for the customer."""
        refund = quote(str(call.arguments["refund"]), safe="")
        answer = await self._write(call, f"/v1/refunds/{refund}/cancel", {})
        outcome = self._refund_outcome(answer, call)
        return Outcome("cancelled", outcome.value) if answer.ok and outcome.value else outcome

    async def get_refund(self, call: Call) -> Outcome:
        """Get a refund."""
        return await self._get(call, "refund")

    async def get_charge(self, call: Call) -> Outcome:
        """Get a charge."""
        return await self._get(call, "charge")

    async def list_refunds(self, call: Call) -> Outcome:
        """List refunds."""
        return await self._list(call, "refund")

    async def list_charges(self, call: Call) -> Outcome:
        """List charges."""
        return await self._list(call, "charge")

    async def find_refund_of_call(self, call: Call) -> Outcome:
        """Find the refund with the Call ID of a write among those of its charge."""
        answer = await self._read(call, "/v1/refunds", {**_payment(call), "limit": 100})
        listed = _listed(answer)
        if listed is None:
            return _no_list(answer)
        items, more = listed
        for item in items:
            metadata = item.get("metadata")
            if isinstance(metadata, dict) and metadata.get("celeriac_call_id") == call.id:
                return Outcome(
                    "found", {"refund": _shown("refund", item)}, "Stripe has the refund."
                )
        rest = " among the newest 100" if more else ""
        return Outcome("notFound", message=f"Stripe has no refund of this call{rest}.")

    async def find_cancelled_refund(self, call: Call) -> Outcome:
        """Look whether the refund of a call of cancelRefund is cancelled."""
        outcome = await self._get(call, "refund")
        value = outcome.value if isinstance(outcome.value, dict) else {}
        refund = value.get("refund")
        status = refund.get("status") if isinstance(refund, dict) else None
        if outcome.branch == "found" and status != "canceled":
            return Outcome("notFound", message=f"The refund has the status {status}.")
        return outcome

    async def check(self, call: Call) -> str:
        """List one charge."""
        answer = await self._read(call, "/v1/charges", {"limit": 1})
        if not answer.ok:
            raise ToolFailed(f"Stripe answered {answer.status}: {_error(answer)[1]}")
        return "Stripe accepts the key"

    async def _get(self, call: Call, kind: str) -> Outcome:
        thing = quote(str(call.arguments[kind]), safe="")
        answer = await self._read(call, f"/v1/{kind}s/{thing}", {})
        found = _object(answer)
        if answer.ok and found is not None:
            return Outcome("found", {kind: _shown(kind, found)})
        return _no_object(answer)

    async def _list(self, call: Call, kind: str) -> Outcome:
        query = {
            **_payment(call),
            "customer": call.arguments.get("customer"),
            "limit": call.arguments.get("limit", 10),
            "starting_after": call.arguments.get("startingAfter"),
        }
        answer = await self._read(call, f"/v1/{kind}s", query)
        listed = _listed(answer)
        if listed is None:
            return _no_list(answer)
        items, more = listed
        return Outcome("listed", {f"{kind}s": [_shown(kind, item) for item in items], "more": more})

    async def _write(
        self, call: Call, path: str, fields: Mapping[str, JsonValue]
    ) -> ProviderAnswer:
        headers = {
            **self._headers(call),
            "Idempotency-Key": call.idempotency_key,
            "Content-Type": "application/x-www-form-urlencoded",
        }
        # In one order, so that a repetition is equal byte by byte.
        body = urlencode(
            {name: value for name, value in sorted(fields.items()) if value is not None}
        )
        answer = await call.http.request(
            "POST", f"{self._base}{path}", headers=headers, body=body.encode()
        )
        _require_executed(answer, call)
        return answer

    async def _read(self, call: Call, path: str, query: Mapping[str, JsonValue]) -> ProviderAnswer:
        params = {name: str(value) for name, value in query.items() if value is not None}
        answer = await call.http.request(
            "GET", f"{self._base}{path}", headers=self._headers(call), params=params
        )
        if answer.status >= 500 or answer.status in {408, 409, 429}:
            raise ToolNotRun(
                f"Stripe answered {answer.status}", retry_after_seconds=answer.retry_after_seconds
            )
        return answer

    @property
    def _base(self) -> str:
        return self.text("baseUrl").rstrip("/")

    def _headers(self, call: Call) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {call.credentials['secretKey'].reveal()}"}
        if "apiVersion" in self.configuration:
            headers["Stripe-Version"] = self.text("apiVersion")
        if "account" in self.configuration:
            headers["Stripe-Account"] = self.text("account")
        return headers

    def _refund_outcome(self, answer: ProviderAnswer, call: Call) -> Outcome:
        """Sort the answer to a write.

        Raises:
            ToolOutcomeUnknown: It does not tell whether the refund was made; the same key may be sent again.
        """
        if answer.ok:
            refund = _object(answer)
            if refund is None or refund.get("object") != "refund":
                raise ToolOutcomeUnknown("Stripe's answer cannot be read")
            branch = "pending" if refund.get("status") in _OPEN else "created"
            return Outcome(branch, {"refund": _shown("refund", refund)})
        kind, message = _error(answer)
        if kind == "idempotency_error":
            return _parameters_differ(call)
        if answer.status in {409, 408} or answer.status >= 500 or answer.status < 400:
            # 409: the request with this key is still under way. 5xx: Stripe repeats it for the same key, and it
            # may have come after the effect.
            raise ToolOutcomeUnknown(
                f"Stripe answered {answer.status}", retry_after_seconds=answer.retry_after_seconds
            )
        return Outcome("rejected", message=message)


def _payment(call: Call) -> dict[str, JsonValue]:
    payment = call.arguments.get("payment")
    kind = "payment_intent" if str(payment).startswith("pi_") else "charge"
    return {} if payment is None else {kind: payment}


def _parameters_differ(call: Call) -> Outcome:
    """Stripe knows the key with other parameters: a deploy changed the request, and the first one may be done."""
    message = "Stripe knows this call with other parameters; no other key is tried"
    return Outcome("defect" if call.attempt == 1 else "uncertain", message=message)


def _require_executed(answer: ProviderAnswer, call: Call) -> None:
    """Raise where Stripe turned the request away before it did anything.

    A limit is in front of everything else. A key that is not accepted may be one that is being rotated; one that
    lost its permission after an attempt says nothing of that attempt.
    """
    if answer.status in {401, 429} or (answer.status == 403 and call.attempt > 1):
        raise ToolNotRun(
            f"Stripe answered {answer.status}: {_error(answer)[1]}",
            retry_after_seconds=answer.retry_after_seconds,
        )


def _error(answer: ProviderAnswer) -> tuple[str, str]:
    """Return Stripe's type of error, and what it says; only its code and the parameter's name, if it has those."""
    body = _object(answer) or {}
    error = body.get("error")
    if not isinstance(error, dict):
        return "", f"status {answer.status}"
    words = [str(error[name]) for name in ("code", "decline_code", "param") if error.get(name)]
    message = re.sub(r"\s+", " ", str(error.get("message", "")))[:300]
    return str(error.get("type", "")), f"{message} ({', '.join(words)})" if words else message


def _object(answer: ProviderAnswer) -> dict[str, JsonValue] | None:
    try:
        value = answer.json()
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _listed(answer: ProviderAnswer) -> tuple[list[dict[str, JsonValue]], bool] | None:
    body = _object(answer) if answer.ok else None
    data = body.get("data") if body else None
    if body is None or not isinstance(data, list):
        return None
    return [item for item in data if isinstance(item, dict)], bool(body.get("has_more"))


def _no_list(answer: ProviderAnswer) -> Outcome:
    if answer.ok:
        return Outcome("invalidResponse", message="Stripe's answer is no list")
    return Outcome("rejected", message=_error(answer)[1])


def _no_object(answer: ProviderAnswer) -> Outcome:
    if answer.status == 404:
        return Outcome("notFound", message=_error(answer)[1])
    if answer.ok:
        return Outcome("invalidResponse", message="Stripe's answer cannot be read")
    return Outcome("rejected", message=_error(answer)[1])


def _shown(kind: str, item: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return {name: item[name] for name in _SHOWN[kind] if item.get(name) is not None}
