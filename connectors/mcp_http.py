"""The Streamable HTTP transport: the SDK's, with a client that says what became of each request.

In the SDK a refused connection ends the whole session with all its calls, and most answers other than 200 become
the same error. Here each of them is answered, in the server's place, with a JSON-RPC error of one request that
says whether the call may have run (`fault_of`).
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.shared.exceptions import MCPError

from celeriac.connectors.mcp_addresses import guarded_transport
from celeriac.connectors.mcp_config import HttpServer
from celeriac.connectors.mcp_stdio import MAX_MESSAGE_BYTES
from celeriac.connectors.redactor import Redactor
from celeriac.connectors.retry_after import retry_after_seconds

__all__ = ["Fault", "FaultKind", "HttpTransport", "NotAuthorised", "fault_of", "read_body"]

# Servers cannot make it up, so an error that bears it is ours.
_MARK = secrets.token_hex(8)
_CODE = -32099


class FaultKind(StrEnum):
    """What became of a request that the server did not answer."""

    NOT_SENT = "not_sent"
    """It never left."""
    REFUSED = "refused"
    """The server turned it away before running anything."""
    UNAUTHORISED = "unauthorised"
    """There are no credentials that the server takes; it ran nothing."""
    EXPIRED = "expired"
    """The server does not know the session any more; it ran nothing."""
    LOST = "lost"
    """It was sent; whether it ran is not known."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a request has no answer.

    Args:
        kind: What became of it.
        message: What is known of it.
        retry_after_seconds: How long the server asks to wait, if it does.
    """

    kind: FaultKind
    message: str
    retry_after_seconds: float | None = None


class NotAuthorised(Exception):
    """The `auth` of a transport cannot sign a request so that the server takes it; nothing ran.

    Args:
        message: Why, and what to do.
        kind: ``REFUSED`` if that is so for this request alone.
    """

    def __init__(self, message: str, kind: FaultKind = FaultKind.UNAUTHORISED) -> None:
        super().__init__(message)
        self.kind = kind


def fault_of(error: MCPError) -> Fault | None:
    """Return what became of the request, if the error stands in for an answer that never came."""
    data = error.data
    if not isinstance(data, dict) or data.get("mark") != _MARK:
        return None
    return Fault(FaultKind(data["kind"]), error.message, data["retry_after_seconds"])


class HttpTransport:
    """One session with a server over Streamable HTTP.

    Args:
        server: The server.
        headers: Its headers with their values.
        redact: Takes secrets out of what is shown.
        auth: Signs each request, and may send others first; None adds nothing.
    """

    def __init__(
        self,
        server: HttpServer,
        headers: Mapping[str, str],
        redact: Redactor,
        auth: httpx2.Auth | None = None,
    ) -> None:
        self._server = server
        self._headers = dict(headers)
        self._redact = redact
        self._auth = auth

    def tail(self) -> str:
        """Return nothing: it has no stderr that we see."""
        return ""

    @asynccontextmanager
    async def run(self) -> AsyncIterator[TransportStreams]:
        """Talk to the server; leaving ends the session there.

        Yields:
            The messages from it, and where to put those for it.
        """
        # No limit of reading: a call has its own, which ends it with a notice to the server.
        timeout = httpx2.Timeout(self._server.connect_seconds, read=None)
        client = _Client(
            headers=self._headers, timeout=timeout, auth=self._auth, redact=self._redact
        )
        async with (
            client,
            streamable_http_client(
                self._server.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
            ) as streams,
        ):
            yield streams


class _Client(httpx2.AsyncClient):
    def __init__(
        self,
        *,
        headers: Mapping[str, str],
        timeout: httpx2.Timeout,
        auth: httpx2.Auth | None,
        redact: Redactor,
    ) -> None:
        super().__init__(headers=headers, timeout=timeout, auth=auth, transport=guarded_transport())
        self._redact = redact

    async def send(self, request: httpx2.Request, **options: object) -> httpx2.Response:
        """Send a request; a POST always has an answer."""
        if request.method != "POST":
            return await super().send(request, **options)  # type: ignore[arg-type]
        try:
            response = await super().send(request, **options)  # type: ignore[arg-type]
            return await _judged(request, response)
        except NotAuthorised as error:
            return self._answer(request, error.kind, str(error))
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return self._answer(request, FaultKind.NOT_SENT, f"it cannot be reached: {error}")
        except httpx2.TransportError as error:
            what = str(error) or type(error).__name__
            return self._answer(request, FaultKind.LOST, f"the connection was lost: {what}")

    def _answer(self, request: httpx2.Request, kind: FaultKind, message: str) -> httpx2.Response:
        return _answer(request, Fault(kind, self._redact(message)))


async def _judged(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """Return the answer, read where it is one JSON text; or ours in its place."""
    is_json = response.headers.get("content-type", "").lower().startswith("application/json")
    if response.status_code < 400 and (response.is_redirect or not is_json):
        return response
    body = await read_body(response, MAX_MESSAGE_BYTES)
    whole = httpx2.Response(
        response.status_code,
        headers={"content-type": response.headers.get("content-type", "")},
        content=body,
        request=request,
    )
    if MCP_SESSION_ID in response.headers:
        whole.headers[MCP_SESSION_ID] = response.headers[MCP_SESSION_ID]
    if response.status_code < 400:
        return whole
    fault = _fault(request, response, body)
    return whole if fault is None else _answer(request, fault)


async def read_body(response: httpx2.Response, most: int) -> bytes:
    """Read the whole of a response that was asked for as a stream, and close it.

    Args:
        response: The response.
        most: Longest body that is taken, in bytes.

    Raises:
        httpx2.ReadError: It is longer.
    """
    parts: list[bytes] = []
    size = 0
    try:
        async for part in response.aiter_bytes():
            parts.append(part)
            size += len(part)
            if size > most:
                raise httpx2.ReadError(f"an answer is longer than {most:,} bytes")
    finally:
        await response.aclose()
    return b"".join(parts)


def _fault(request: httpx2.Request, response: httpx2.Response, body: bytes) -> Fault | None:
    status = response.status_code
    said = _error_in(body)
    if MCP_SESSION_ID in request.headers and (
        status == 404 or (status == 400 and said is not None and "session" in said.lower())
    ):
        return Fault(FaultKind.EXPIRED, f"it does not know the session any more (HTTP {status})")
    if status == 429:
        wait = retry_after_seconds(dict(response.headers), time.time())
        return Fault(FaultKind.REFUSED, "it has too many requests (HTTP 429)", wait)
    if status in (401, 403):
        kind = FaultKind.UNAUTHORISED if status == 401 else FaultKind.REFUSED
        return Fault(kind, f"it refuses this worker's credentials (HTTP {status})")
    if said is not None or status in (404, 405):
        # Its own words; and the SDK asks for what an older server does not have.
        return None
    kind = FaultKind.LOST if status >= 500 or status == 408 else FaultKind.REFUSED
    return Fault(kind, f"it answered HTTP {status}")


def _error_in(body: bytes) -> str | None:
    """Return the message of a JSON-RPC error, if that is what the body is."""
    try:
        error = json.loads(body)["error"]
        return str(error["message"]) if isinstance(error["code"], int) else None
    except (ValueError, TypeError, KeyError):
        return None


def _answer(request: httpx2.Request, fault: Fault) -> httpx2.Response:
    sent = json.loads(request.content)
    if "id" not in sent or "method" not in sent:
        # Nobody waits for the answer to a notice.
        return httpx2.Response(202, request=request)
    error = {
        "code": _CODE,
        "message": fault.message,
        "data": {
            "mark": _MARK,
            "kind": fault.kind,
            "retry_after_seconds": fault.retry_after_seconds,
        },
    }
    answer = {"jsonrpc": "2.0", "id": sent["id"], "error": error}
    return httpx2.Response(200, json=answer, request=request)
