"""The inventory of keys, as a check: which names there may be, of which type, with which lifetime.

Written from the table in ``celeriac.sessions.store.keys``, not with its code.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import redis


class Rule(NamedTuple):
    pattern: str
    type: str
    expires: bool = False


_SESSION = r"celeriac:\{\d{1,2}\}:s:ses_[0-9a-hjkmnp-tv-z]{24}"
_PARTITION = r"celeriac:\{\d{1,2}\}:"

RULES = (
    Rule(_SESSION, "hash"),
    Rule(_SESSION + ":log", "list"),
    Rule(_SESSION + ":calls", "hash"),
    Rule(_SESSION + ":steps", "list"),
    Rule(_SESSION + ":chunks", "hash"),
    Rule(_SESSION + ":queue", "hash"),
    Rule(_SESSION + ":images", "hash"),
    Rule(_SESSION + ":harness", "string"),
    Rule(_SESSION + ":ids", "set"),
    Rule(_SESSION + ":events", "stream", expires=True),
    Rule(_PARTITION + "wake", "zset"),
    Rule(_PARTITION + "pack", "zset"),
    Rule(_PARTITION + "index:(idle|running|waiting)", "zset"),
    Rule(_PARTITION + "approvals", "zset"),
    Rule(_PARTITION + "unknown", "zset"),
    Rule(_PARTITION + r"rates:\d+", "hash", expires=True),
    Rule(_PARTITION + "audit", "stream"),
    Rule("celeriac:audit:(access|refused)", "stream"),
    Rule("celeriac:limit:[a-z]+:[0-9a-f]{24}", "string", expires=True),
    Rule("celeriac:workers", "hash"),
    Rule("celeriac:agents", "hash"),
    Rule("celeriac:lives", "hash"),
    # The broker's own, where it is the same server.
    Rule(r"celeriac\.[a-z.-]+", "list"),
    Rule(r"_kombu\.binding(_permanent)?\..+", "set"),
    Rule(r"_kombu\.binding_deadlines", "zset"),
)


def wrong_keys(client: redis.Redis) -> list[str]:
    """Name every key that breaks the inventory, and how."""
    names = sorted(client.scan_iter(count=1000))
    pipe = client.pipeline(transaction=False)
    for name in names:
        pipe.type(name)
        pipe.ttl(name)
    facts: list[Any] = pipe.execute()
    found = zip(names, facts[::2], facts[1::2], strict=True)
    complaints = (_complaint(name.decode(), kind.decode(), ttl) for name, kind, ttl in found)
    return [complaint for complaint in complaints if complaint is not None]


def _complaint(name: str, kind: str, ttl: int) -> str | None:
    rule = next((rule for rule in RULES if re.fullmatch(rule.pattern, name)), None)
    if kind == "none":
        return None  # it expired while we looked
    if rule is None:
        return f"{name} ({kind}) is not in the inventory"
    if kind != rule.type:
        return f"{name} is a {kind}; the inventory says {rule.type}"
    if rule.expires and ttl < 0:
        return f"{name} has no TTL; the inventory says it expires"
    if not rule.expires and ttl >= 0:
        return f"{name} expires in {ttl} s; the inventory says it is permanent"
    return None
