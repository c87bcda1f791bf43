"""Trusted proxies: which address a request comes from, and who a proxy says is logged in.

A header counts only when the connection itself comes from a configured address; from any other it is not read.
Off unless CELERIAC_TRUSTED_PROXIES is set.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flask import Request

from celeriac.sessions.errors import ConfigurationError
from celeriac.sessions.settings import Settings
from celeriac.web.operators import Operator, Role

__all__ = ["Proxies", "load_proxies"]

_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_NAME = re.compile(r"[^\s:,]{1,64}")
_OTHERS = "*"
_OWN_HEADERS = frozenset(
    {
        "authorization",
        "cookie",
        "host",
        "origin",
        "x-agent-session-token",
        "x-csrf-token",
        "x-enhanced",
        "x-forwarded-for",
        "x-request-id",
    }
)

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Proxies:
    """What is configured about proxies."""

    networks: Sequence[_Network] = ()
    user_header: str | None = None
    """The header in which a proxy names who is logged in."""
    roles: Mapping[str, Role] = field(default_factory=dict)
    """Roles by name; ``*`` is everybody else's."""

    def trusts(self, address: str | None) -> bool:
        """Say whether an address is one of the proxies'."""
        found = _address(address or "")
        return found is not None and any(found in network for network in self.networks)

    def address_of(self, caller: Request) -> str:
        """Return the address that a request comes from, as far as it can be trusted.

        A proxy's address is replaced by the one that it forwards: the last one that is no proxy of ours.
        """
        address = caller.remote_addr or ""
        hops = caller.headers.get("X-Forwarded-For", "").split(",") if self.trusts(address) else []
        for hop in reversed(hops):
            found = _address(hop.strip())
            if found is None:
                break  # whatever is before it, nobody we trust has written
            address = str(found)
            if not self.trusts(address):
                break
        return address

    def operator_of(self, caller: Request) -> Operator | None:
        """Return whom the proxy says is logged in; None without a trusted proxy, a name or a role."""
        if self.user_header is None or not self.trusts(caller.remote_addr):
            return None
        # Two headers come as one with a comma, and no name has one: the other may be the caller's own.
        name = caller.headers.get(self.user_header, "")
        if _NAME.fullmatch(name) is None or not name.isprintable() or name == _OTHERS:
            return None
        role = self.roles.get(name) or self.roles.get(_OTHERS)
        return Operator(name, role, "") if role else None


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def load_proxies(settings: Settings) -> Proxies:
    """Read the settings about proxies.

    Raises:
        ConfigurationError: One is malformed, or the header is named without the proxies or roles it needs.
    """
    networks = tuple(_networks(settings.trusted_proxies or ""))
    header = settings.proxy_user_header
    roles = dict(_roles(settings.proxy_roles or ""))
    if header is None:
        return Proxies(networks)
    if _HEADER.fullmatch(header) is None or header.lower() in _OWN_HEADERS:
        raise ConfigurationError(
            f"CELERIAC_PROXY_USER_HEADER: {header!r} cannot be that header; use one of letters, digits and '-' "
            "that only the proxy sets, such as X-Remote-User."
        )
    if not networks or not roles:
        missing = "CELERIAC_PROXY_ROLES" if networks else "CELERIAC_TRUSTED_PROXIES"
        raise ConfigurationError(f"CELERIAC_PROXY_USER_HEADER needs {missing}, which is not set.")
    return Proxies(networks, header, roles)


def _networks(text: str) -> list[_Network]:
    found = []
    for entry in filter(None, map(str.strip, text.split(","))):
        try:
            network = ipaddress.ip_network(entry)
        except ValueError as error:
            raise ConfigurationError(f"CELERIAC_TRUSTED_PROXIES: {error}.") from None
        if network.prefixlen == 0:
            raise ConfigurationError(
                f"CELERIAC_TRUSTED_PROXIES: {entry} is everybody; name the addresses of your proxies."
            )
        found.append(network)
    return found


def _roles(text: str) -> list[tuple[str, Role]]:
    found: list[tuple[str, Role]] = []
    for entry in filter(None, map(str.strip, text.split(","))):
        name, _, role = entry.rpartition(":")
        known = {one.name.lower(): one for one in Role if one is not Role.NOBODY}
        if (name != _OTHERS and _NAME.fullmatch(name) is None) or role not in known:
            raise ConfigurationError(
                f"CELERIAC_PROXY_ROLES: {entry!r} must be name:role, with one of the roles "
                f"{', '.join(known)}; the name * is everybody else."
            )
        found.append((name, known[role]))
    return found
