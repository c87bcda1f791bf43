"""Where an HTTP server may be: anywhere that the operator names, except the addresses that give a host's secrets away.

Clouds answer requests for credentials on link-local addresses. They are refused when a connection is made, so a
name that resolves to one of them, at the first look or at a later one, does not help, nor does a redirect.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable

import httpcore2
import httpx2

__all__ = ["guarded_transport", "is_refused"]

_METADATA = frozenset(
    map(ipaddress.ip_address, ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16"))
)
"""Addresses of metadata services that are not link-local."""


def is_refused(address: str) -> bool:
    """Whether no server may be reached at this IP address."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return found.is_link_local or found in _METADATA


def guarded_transport() -> httpx2.AsyncHTTPTransport:
    """Return a transport that connects to no such address."""
    transport = httpx2.AsyncHTTPTransport()
    # The one place where the address that is connected to can be seen; there is no public way to it.
    pool = transport._pool  # noqa: SLF001
    pool._network_backend = _Guarded(pool._network_backend)  # noqa: SLF001
    return transport


class _Guarded(httpcore2.AsyncNetworkBackend):
    def __init__(self, inner: httpcore2.AsyncNetworkBackend) -> None:
        self._inner = inner

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                found = await asyncio.get_running_loop().getaddrinfo(
                    host, port, type=socket.SOCK_STREAM
                )
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"{host} was not found in time") from None
        except OSError as error:
            raise httpcore2.ConnectError(f"{host} cannot be found: {error.strerror}") from error
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        refused = next(filter(is_refused, addresses), None)
        if refused is not None:
            raise httpcore2.ConnectError(f"{host} is at {refused}, which is never connected to")
        failed: httpcore2.ConnectError | None = None
        for address in addresses:
            try:
                return await self._inner.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except httpcore2.ConnectError as error:
                failed = error
        raise failed or httpcore2.ConnectError(f"{host} has no address")

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        return await self._inner.connect_unix_socket(path, timeout, socket_options)

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)
