"""Every Redis key: its name, type, lifetime and owner. No other module spells a key.

Sessions are spread over a fixed number of partitions. All keys of a session, and the indexes of its
partition, carry the partition's hash tag, so that each commit touches one slot of a cluster.

===================== ======= ============== ==========================================================
key                   type    lifetime       holds
===================== ======= ============== ==========================================================
s:<id>                hash    permanent      `state` (JSON), `version`, `commits` (names of the last
                                             few), `fence`, `context_from`, `bytes` (stored, about), one
                                             `c:<step>` per open step (its timing), and once they are
                                             not 0 `log_from` (seq of the log's first entry) and `oldest`
                                             (seq of the oldest message kept)
s:<id>:log            list    permanent      messages, one entry each; older ones are in chunks
s:<id>:calls          hash    permanent      `<call>` request, `<call>:o` outcome, `<call>:l` late
                                             result, until packed
s:<id>:steps          list    permanent      step history, capped, until packed
s:<id>:chunks         hash    permanent      what was packed, compressed: see `chunks`
s:<id>:queue          hash    permanent      texts of queued messages, `<message>:i` their images (JSON);
                                             absent when the queue is empty
s:<id>:images         hash    permanent      bytes of images by id, while a message shows them
s:<id>:harness        string  permanent      snapshot of the framework that runs the session (JSON): see
                                             `harness`; absent for Celeriac's own loop
s:<id>:ids            set     permanent      client message ids already taken; many are packed
s:<id>:events         stream  events TTL     live events, capped
wake                  zset    permanent      session id, unless idle without a look-up -> when somebody must next look at it
pack                  zset    permanent      id of an idle session, until packed -> when that is due
index:<status>        zset    permanent      session id -> last activity
approvals             zset    permanent      <session>:<call> -> since when it waits for a decision
unknown               zset    permanent      <session>:<call> -> since when its outcome is unknown
rates:<hour>          hash    some hours     `<minute>:<work>:<outcome>` -> attempts that ended in that minute
                                             of that hour (since 1970): see `rates`
audit                 stream  permanent      decisions and operators' acts (JSON), capped: see `audit`
===================== ======= ============== ==========================================================

Outside the partitions (prefix ``celeriac:``): `workers` and `agents`, hashes that workers refresh and prune, and
`lives`, a hash of the processes that run steps. Each of those holds a subscription to a channel of its own,
``life:<owner>``, for as long as it lives. `audit:access` and `audit:refused` are capped streams of logins, and of
refused logins and tokens. ``limit:<what>:<digest of who>``, a string with a TTL, counts what a client does in a minute.
The broker's own keys belong to Celery and kombu.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass
from functools import lru_cache

from celeriac.sessions.errors import NotFound
from celeriac.sessions.ids import is_session_id
from celeriac.sessions.state import SessionStatus

__all__ = [
    "AGENTS",
    "AUDIT_ACCESS",
    "AUDIT_REFUSED",
    "LIFE_CHANNEL",
    "LIVES",
    "PARTITIONS",
    "PREFIX",
    "WORKERS",
    "PartitionKeys",
    "SessionKeys",
    "call_fields",
    "limit_key",
    "partition_of",
    "queue_fields",
    "rate_place",
    "read_rate_place",
    "step_field",
]

PREFIX = "celeriac:"
PARTITIONS = 64
"""Fixed for the life of a store: the partition is part of every key."""

WORKERS = PREFIX + "workers"
AGENTS = PREFIX + "agents"
LIVES = PREFIX + "lives"
AUDIT_ACCESS = PREFIX + "audit:access"
AUDIT_REFUSED = PREFIX + "audit:refused"
LIFE_CHANNEL = PREFIX + "life:"
"""What the channel of a process begins with; its owner id follows."""


def partition_of(session_id: str) -> int:
    """Return the partition of a session: CRC-16/XMODEM (the one Redis Cluster uses) modulo 64."""
    return binascii.crc_hqx(session_id.encode(), 0) % PARTITIONS


def step_field(step_id: str) -> str:
    """Return the field of the session hash that holds a step's timing."""
    return "c:" + step_id


def call_fields(call_id: str) -> tuple[str, str, str]:
    """Return the fields of the calls hash that hold a call's request, outcome and late result."""
    return call_id, call_id + ":o", call_id + ":l"


def limit_key(what: str, who: str) -> str:
    """Return the key that counts what somebody does; it expires within a minute.

    Args:
        what: What is counted.
        who: A digest of the client's name or address.
    """
    return f"{PREFIX}limit:{what}:{who}"


def queue_fields(message_id: str) -> tuple[str, str]:
    """Return the fields of the queue hash that hold a message's text and its images."""
    return message_id, message_id + ":i"


def rate_place(minute: int, work: str, outcome: str) -> tuple[int, str]:
    """Return where attempts are counted that end in a minute: the hour, and the field of its hash.

    Args:
        minute: Minutes since 1970.
        work: What was done.
        outcome: How it ended.
    """
    hour, rest = divmod(minute, 60)
    return hour, f"{rest}:{work}:{outcome}"


def read_rate_place(hour: int, field: str) -> tuple[int, str, str]:
    """Return minute, work and outcome that a field of an hour's hash counts."""
    rest, work, outcome = field.split(":")
    return hour * 60 + int(rest), work, outcome


@dataclass(frozen=True, slots=True)
class PartitionKeys:
    """Names of a partition's indexes."""

    number: int

    @property
    def _base(self) -> str:
        return f"{PREFIX}{{{self.number}}}:"

    @property
    def wake(self) -> str:
        """The wake index."""
        return self._base + "wake"

    @property
    def pack(self) -> str:
        """Idle sessions that are to be packed."""
        return self._base + "pack"

    @property
    def approvals(self) -> str:
        """Calls that wait for a decision."""
        return self._base + "approvals"

    @property
    def unknown(self) -> str:
        """Calls whose outcome is unknown."""
        return self._base + "unknown"

    @property
    def audit(self) -> str:
        """Decisions and operators' acts."""
        return self._base + "audit"

    def rates(self, hour: int) -> str:
        """How many attempts ended in an hour, counted since 1970."""
        return f"{self._base}rates:{hour}"

    def status(self, status: SessionStatus) -> str:
        """Sessions of one status."""
        return f"{self._base}index:{status.value}"


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """Names of a session's keys, and its partition's."""

    session: str
    log: str
    calls: str
    steps: str
    queue: str
    images: str
    harness: str
    ids: str
    chunks: str
    events: str
    partition: PartitionKeys

    @property
    def lasting(self) -> tuple[str, ...]:
        """All keys of the session that do not expire."""
        return (
            self.session,
            self.log,
            self.calls,
            self.steps,
            self.queue,
            self.images,
            self.harness,
            self.ids,
            self.chunks,
        )

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(session_id: str) -> SessionKeys:
        """Return the keys of a session.

        Raises:
            NotFound: That can be no session's id; it might name another key, or another partition's.
        """
        if not is_session_id(session_id):
            raise NotFound(f"There is no session {session_id[:64]!r}.", code="unknown_session")
        partition = PartitionKeys(partition_of(session_id))
        session = f"{PREFIX}{{{partition.number}}}:s:{session_id}"
        return SessionKeys(
            session=session,
            log=session + ":log",
            calls=session + ":calls",
            steps=session + ":steps",
            queue=session + ":queue",
            images=session + ":images",
            harness=session + ":harness",
            ids=session + ":ids",
            chunks=session + ":chunks",
            events=session + ":events",
            partition=partition,
        )
