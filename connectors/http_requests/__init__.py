"""The HTTP connector: configured requests to allowed hosts, and signed webhooks."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Mapping

from pydantic import JsonValue

from celeriac.connectors.http_requests.requests import (
    ConfiguredRequest,
    FilledRequest,
    configured_requests,
)
from celeriac.connectors.sdk import (
    Call,
    Connector,
    Described,
    Manifest,
    Operation,
    Outcome,
    ProviderAnswer,
)
from celeriac.sessions.errors import ConfigurationError, ToolNotRun, ToolOutcomeUnknown
from celeriac.sessions.jsonsafe import truncate_text

__all__ = ["HttpConnector"]

_MESSAGE_BYTES = 500


class HttpConnector(Connector):
    """Requests to the hosts of one connection."""

    manifest = Manifest.of_package(__name__)
    sends_only_by_http = True

    def __init__(self, configuration: Mapping[str, JsonValue]) -> None:
        super().__init__(configuration)
        self._requests = configured_requests(configuration)

    def describe(self, operation: Operation, fixed: Mapping[str, JsonValue]) -> Described | None:
        """Say what a request does, and which parameters it has."""
        name = str(fixed.get("request"))
        request = self._requests.get(name)
        if request is None:
            known = ", ".join(self._requests) or "none"
            raise ConfigurationError(
                f"configuration.requests has no {name!r}, which an agent uses; it has: {known}"
            )
        _require_fit(operation.id, request)
        parameters: JsonValue = request.schema
        schema: dict[str, JsonValue] = {
            "type": "object",
            "additionalProperties": False,
            "required": ["parameters"],
            "properties": {"parameters": parameters},
        }
        relied_on = {"request": f"{request.method} {request.url}"}
        return Described(request.description, schema, relied_on)

    async def get(self, call: Call) -> Outcome:
        """Make a request that reads; one that broke is made again."""
        answer = await self._sent(call, self._filled(call))
        if answer.status >= 500 or answer.status == 408:
            raise ToolNotRun(
                f"the server answered {answer.status}",
                retry_after_seconds=answer.retry_after_seconds,
            )
        if answer.ok:
            return Outcome("found", self._shown(answer))
        branch = "notFound" if answer.status in {404, 410} else "rejected"
        return Outcome(branch, message=_refusal(answer))

    async def send(self, call: Call) -> Outcome:
        """Make a request that changes something, once."""
        return self._written(await self._sent(call, self._filled(call)))

    async def send_with_key(self, call: Call) -> Outcome:
        """Make a request with a key, by which the server knows a repetition."""
        request = self._request(call)
        key = call.idempotency_key
        value = f'"{key}"' if request.key_format == "sfString" else key
        header = {str(request.idempotency_header): value}
        answer = await self._sent(call, self._filled(call), header)
        if answer.status == 409:
            raise ToolOutcomeUnknown(
                "the server still works on a request with this key (409)",
                retry_after_seconds=answer.retry_after_seconds,
            )
        if answer.status == 422 and call.attempt > 1:
            # It may say that the key came with other content, and then the first request may be done.
            return Outcome("uncertain", message=_refusal(answer))
        return self._written(answer)

    async def send_event(self, call: Call) -> Outcome:
        """Send a signed webhook (https://www.standardwebhooks.com), once."""
        request, parameters = self._request(call), call.arguments["parameters"]
        content = {"type": request.name, "data": parameters}
        body = json.dumps(content, sort_keys=True, ensure_ascii=False).encode()
        filled = FilledRequest(request.method, request.url, body)
        return self._written(await self._sent(call, filled, _signature(call, body)))

    def _request(self, call: Call) -> ConfiguredRequest:
        name = str(call.arguments["request"])
        request = self._requests.get(name)
        if request is None:
            raise ToolNotRun(f"the connection has no request {name!r} any more")
        return request

    def _filled(self, call: Call) -> FilledRequest:
        parameters = call.arguments["parameters"]
        return self._request(call).filled(parameters if isinstance(parameters, dict) else {})

    async def _sent(
        self, call: Call, filled: FilledRequest, headers: Mapping[str, str] | None = None
    ) -> ProviderAnswer:
        """Send it.

        Raises:
            ToolNotRun: The server turned it away before it did anything.
        """
        sent = {**self._request(call).headers, **self._token(call), **(headers or {})}
        if filled.body is not None:
            sent["Content-Type"] = "application/json"
        answer = await call.http.request(
            filled.method,
            filled.url,
            headers=sent,
            body=filled.body,
            max_bytes=int(str(self.configuration["resultMaxBytes"])),
        )
        if answer.status in {401, 429}:
            raise ToolNotRun(
                f"the server answered {answer.status}",
                retry_after_seconds=answer.retry_after_seconds,
            )
        return answer

    def _token(self, call: Call) -> dict[str, str]:
        token = call.credentials.get("token")
        if token is None:
            return {}
        if "tokenHeader" in self.configuration:
            return {self.text("tokenHeader"): token.reveal()}
        return {"Authorization": f"Bearer {token.reveal()}"}

    def _written(self, answer: ProviderAnswer) -> Outcome:
        if answer.ok:
            return Outcome("succeeded", self._shown(answer))
        if answer.status < 400 or answer.status >= 500 or answer.status == 408:
            raise ToolOutcomeUnknown(
                f"the server answered {answer.status}",
                retry_after_seconds=answer.retry_after_seconds,
            )
        return Outcome("rejected", message=_refusal(answer))

    def _shown(self, answer: ProviderAnswer) -> dict[str, JsonValue]:
        value: dict[str, JsonValue] = {"status": answer.status}
        if answer.truncated:
            size = int(str(self.configuration["resultMaxBytes"]))
            value["note"] = f"only the first {size:,} bytes"
        try:
            value["body"] = answer.json()
        except ValueError:
            value["body"] = answer.body.decode(errors="replace")
        return value


def _require_fit(operation: str, request: ConfiguredRequest) -> None:
    where = f"configuration.requests.{request.name}"
    if (operation == "get") is not request.reads:
        other = "send, sendWithKey or sendEvent" if operation == "get" else "get"
        raise ConfigurationError(
            f"{where}: {request.method} is for {other}, and an agent uses {operation}"
        )
    if operation == "sendWithKey" and request.idempotency_header is None:
        raise ConfigurationError(
            f"{where}.idempotencyHeader is missing, and an agent uses sendWithKey; name it if the server knows "
            "repetitions by it, else use send"
        )
    if operation == "sendEvent" and (request.method != "POST" or "{" in request.url):
        raise ConfigurationError(f"{where}: a webhook is a POST to a URL without parameters")


def _signature(call: Call, body: bytes) -> dict[str, str]:
    """Sign an event.

    Raises:
        ToolNotRun: The secret is missing or malformed.
    """
    secret = call.credentials.get("webhookSecret")
    if secret is None:
        raise ToolNotRun("credentials.webhookSecret is missing, so nothing can be signed")
    try:
        key = base64.b64decode(secret.reveal().removeprefix("whsec_"), validate=True)
    except binascii.Error:
        raise ToolNotRun("credentials.webhookSecret is no base64") from None
    timestamp = str(int(time.time()))
    signed = f"{call.id}.{timestamp}.".encode() + body
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": call.id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{digest}",
    }


def _refusal(answer: ProviderAnswer) -> str:
    said = truncate_text(answer.body.decode(errors="replace").strip(), _MESSAGE_BYTES)
    return (
        f"the server answered {answer.status}: {said}"
        if said
        else f"the server answered {answer.status}"
    )
