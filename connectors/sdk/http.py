"""The only way of a connector to a provider over HTTP: one request per attempt, to allowed hosts, bounded.

It does not retry, does not follow redirects and does not decode what it cannot bound. It says for certain what was
not sent (`ToolNotRun`); everything that breaks once a request may have left is an exception like any other, which
for a write means that nobody knows.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from pydantic import JsonValue

from celeriac.sessions.errors import ConfigurationError, ToolFailed, ToolNotRun

if TYPE_CHECKING:
    import httpx

__all__ = ["Dispatch", "HttpPool", "ProviderAnswer", "ProviderHttp", "require_allowed_url"]

_ANSWER_MAX_BYTES = 4 * 1024 * 1024
_CONNECT_SECONDS = 10.0
_SHORTEST_SECONDS = 0.05
_KEEPALIVE_SECONDS = 5.0
"""Short: a connection that the provider closes meanwhile would cost a write its certainty."""
_RETRY_AFTER_MAX_SECONDS = 24 * 3600.0


@dataclass(slots=True)
class Dispatch:
    """Whether an attempt's request may have left."""

    begun: bool = False


@dataclass(frozen=True, slots=True)
class ProviderAnswer:
    """What a provider answered."""

    status: int
    headers: Mapping[str, str]
    """Names in small letters."""
    body: bytes
    truncated: bool = False
    """Whether the body was longer than allowed; `body` is its beginning."""

    @property
    def ok(self) -> bool:
        """Whether the status is one of success."""
        return 200 <= self.status < 300

    def json(self) -> JsonValue:
        """Return the body as JSON.

        Raises:
            ValueError: It is none, or was cut.
        """
        if self.truncated:
            raise ValueError("the answer is longer than allowed")
        try:
            return cast("JsonValue", json.loads(self.body))
        except RecursionError:
            raise ValueError("the answer is nested too deeply") from None

    @property
    def retry_after_seconds(self) -> float | None:
        """How long the provider asks to wait, if it says so in seconds."""
        try:
            seconds = float(self.headers.get("retry-after", ""))
        except ValueError:
            return None
        return seconds if 0 <= seconds <= _RETRY_AFTER_MAX_SECONDS else None


def require_allowed_url(url: str, hosts: frozenset[str]) -> None:
    """Refuse a URL that a connector may not connect to.

    Args:
        url: The URL.
        hosts: Allowed hosts, each with its port where that is not the scheme's own.

    Raises:
        ValueError: It is none, its host is not allowed, it carries a password, or it is not encrypted on its way
            out of this machine.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    if parts.scheme not in {"http", "https"} or not host:
        raise ValueError("it is no http or https URL")
    if parts.username is not None or parts.password is not None:
        raise ValueError("it holds a name or password; give those as credentials")
    shown = f"[{host}]" if ":" in host else host
    standard = {"http": 80, "https": 443}[parts.scheme]
    port = parts.port or standard
    named = {f"{shown}:{port}"} | ({shown} if port == standard else set())
    if not named & hosts:
        raise ValueError(f"the host {shown}{'' if port == standard else f':{port}'} is not allowed")
    if parts.scheme == "http" and not _is_loopback(host):
        raise ValueError("it is not encrypted; use https (http only for this machine)")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class HttpPool:
    """The open connections of one connection's connector, on one event loop.

    Args:
        hosts: Hosts it may connect to.
    """

    def __init__(self, hosts: frozenset[str]) -> None:
        self.hosts = hosts
        self._client: httpx.AsyncClient | None = None

    @property
    def client(self) -> httpx.AsyncClient:
        """The client; opened at first use."""
        if self._client is None:
            library = httpx_module()
            self._client = library.AsyncClient(
                follow_redirects=False,
                # A .netrc or a variable of the worker must not add credentials or another way.
                trust_env=False,
                transport=library.AsyncHTTPTransport(
                    retries=0,
                    trust_env=False,
                    limits=library.Limits(keepalive_expiry=_KEEPALIVE_SECONDS),
                ),
            )
        return self._client

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def httpx_module() -> ModuleType:
    """Load the HTTP library.

    Raises:
        ConfigurationError: It is not installed.
    """
    try:
        library = import_module("httpx")
    except ImportError as error:
        raise ConfigurationError(
            f"Connectors need an extra, e.g. pip install 'celeriac[stripe]' ({error})"
        ) from error
    # It logs the URL of every request, and what is asked for may be personal.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return library


class ProviderHttp:
    """The one request that an attempt may make.

    Args:
        pool: The connections.
        deadline: When the attempt times out, in Unix seconds; None means never.
        dispatch: Is told when the request may have left.
    """

    def __init__(self, pool: HttpPool, deadline: float | None, dispatch: Dispatch) -> None:
        self._pool = pool
        self._deadline = deadline
        self._dispatch = dispatch

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        max_bytes: int = _ANSWER_MAX_BYTES,
    ) -> ProviderAnswer:
        """Make the attempt's request.

        Args:
            method: E.g. ``POST``.
            url: Where to; its host must be one of the manifest's.
            headers: Headers, credentials included.
            params: The query.
            body: The body, exactly as it is sent.
            max_bytes: How much of the answer is read.

        Returns:
            The answer, whatever its status; redirects are not followed.

        Raises:
            ToolNotRun: It certainly was not sent.
            ToolFailed: The URL is not allowed.
            RuntimeError: The attempt made its one request already.
            Exception: It may have been sent, and no complete answer came.
        """
        if self._dispatch.begun:
            raise RuntimeError("an attempt makes one request; look up in another operation")
        try:
            require_allowed_url(url, self._pool.hosts)
        except ValueError as error:
            raise ToolFailed(f"nothing was sent: {error}") from None
        library = httpx_module()
        request = self._pool.client.build_request(
            method,
            url,
            headers=dict(headers or {}),
            params=dict(params) if params else None,
            content=body,
            timeout=self._timeout(library),
        )
        self._dispatch.begun = True
        try:
            answer = await self._pool.client.send(request, stream=True)
        except (library.ConnectError, library.ConnectTimeout, library.PoolTimeout) as error:
            self._dispatch.begun = False
            raise ToolNotRun(f"no connection to {request.url.host}: {_kind(error)}") from error
        except library.HTTPError as error:
            raise ConnectionError(
                f"no answer from {request.url.host}: {_kind(error)} after the request was sent"
            ) from error
        try:
            return await _read(answer, max_bytes)
        except library.HTTPError as error:
            raise ConnectionError(
                f"the answer of {request.url.host} broke off: {_kind(error)}"
            ) from error
        finally:
            await answer.aclose()

    def _timeout(self, library: ModuleType) -> httpx.Timeout:
        left = (
            None if self._deadline is None else max(self._deadline - time.time(), _SHORTEST_SECONDS)
        )
        connect = _CONNECT_SECONDS if left is None else min(_CONNECT_SECONDS, left)
        timeout: httpx.Timeout = library.Timeout(left, connect=connect, pool=connect)
        return timeout


def _kind(error: Exception) -> str:
    """Name an error; its text may hold the URL with its query."""
    return type(error).__name__


async def _read(answer: httpx.Response, max_bytes: int) -> ProviderAnswer:
    parts: list[bytes] = []
    size = 0
    async for part in answer.aiter_bytes():
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            break
    body = b"".join(parts)
    return ProviderAnswer(
        status=answer.status_code,
        headers={name.lower(): value for name, value in answer.headers.items()},
        body=body[:max_bytes],
        truncated=size > max_bytes,
    )
