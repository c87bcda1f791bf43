"""kombu's Redis transport, with less to do for each message.

- A channel keeps its client. kombu makes a new `redis.Redis` three times for each message (about 100 µs each,
  measured with kombu 5.7 and redis-py 8.1); the client only wraps the channel's connection pool.
- A message is read without what only compatibility asks for: pure Python hooks in its JSON, and the state that
  kombu keeps of it twice.
- Any thread may acknowledge a message, and wakes the consumer only when that waits for it.
- After each message the next one is asked for at once, and sockets that are polled already are not registered
  again before each poll.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from functools import partial
from queue import Empty
from time import monotonic
from typing import cast

from kombu.asynchronous import Hub, get_event_loop
from kombu.transport import TRANSPORT_ALIASES, redis as kombu_redis, virtual
from kombu.utils.scheduling import round_robin_cycle
from redis.connection import AbstractConnection

__all__ = ["Channel", "Transport", "install"]


class QoS(virtual.QoS):
    """Counts messages that are not acknowledged yet; the transport's default without its bookkeeping in Redis."""

    _waits = False

    def can_consume(self) -> bool:
        """Say whether the consumer may take one more; it asks before each wait for messages."""
        if not super().can_consume():
            # Said before the second look: whoever acknowledges after that look wakes the consumer.
            self._waits = True
            if not super().can_consume():
                return False
        self._waits = False
        return True

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message; any thread may."""
        super().ack(delivery_tag)
        hub = get_event_loop()
        if self._waits and hub is not None:
            hub.call_soon(_nothing)


def _nothing() -> None:
    pass


class Message(virtual.Message):
    """A message of the usual form; any other is left to kombu."""

    def __init__(
        self, payload: Mapping[str, object], channel: Channel | None = None, **options: object
    ) -> None:
        properties = cast("Mapping[str, object]", payload["properties"])
        headers = cast("Mapping[str, object]", payload.get("headers") or {})
        if properties.get("body_encoding") != "base64" or "compression" in headers or options:
            super().__init__(dict(payload), channel=channel, **options)
            return
        # kombu's own passes all this through two more functions.
        self._raw = payload
        self.errors = []
        self.channel = channel
        self.delivery_tag = cast("str", properties["delivery_tag"])
        self.content_type = cast("str", payload.get("content-type"))
        self.content_encoding = cast("str", payload.get("content-encoding"))
        self.delivery_info = cast("dict[str, object]", properties.get("delivery_info") or {})
        self.headers = cast("dict[str, str]", headers)
        self.properties = cast("dict[str, str]", properties)
        self._decoded_cache = None
        self._state = "RECEIVED"
        self.accept = None
        self.body: bytes = b64decode(cast("str", payload["body"]))  # type: ignore[assignment]


_MOST_PACKED = 100
"""Requests that a channel keeps: one for each order of its queues, and many queues have very many orders."""


class Channel(kombu_redis.Channel):
    """A channel that keeps its synchronous client, and reads its messages quickly."""

    Message = Message

    # What kombu's own class has besides, and its stubs do not tell.
    connection_errors: tuple[type[Exception], ...]
    _closing: bool
    _in_listen: object
    _in_poll: AbstractConnection | None
    _queue_cycle: round_robin_cycle[str]
    _q_for_pri: Callable[[str, int], str]
    _flush_brpop_reauth: Callable[[], None]
    _kept: tuple[object, object] | None = None

    def __init__(self, *args: object, **options: object) -> None:
        self._packed: dict[tuple[str, ...], list[bytes]] = {}
        super().__init__(*args, **options)
        if not self.ack_emulation:
            self.QoS = QoS  # type: ignore[assignment]  # as kombu does here

    def _create_client(self, asynchronous: bool = False) -> object:  # noqa: FBT001, FBT002 - kombu's signature
        if asynchronous:
            return super()._create_client(asynchronous=True)  # type: ignore[misc]  # not in the stubs
        pool = self.pool
        if self._kept is None or self._kept[0] is not pool:
            self._kept = (pool, super()._create_client())  # type: ignore[misc]
        return self._kept[1]

    def is_settled(self) -> bool:
        """Say whether what this channel waits for is on its way, or needs no wait."""
        if self.active_fanout_queues and not self._in_listen:
            return False
        listening_only = len(self._active_queues) == len(self.active_fanout_queues)
        return listening_only or bool(self._in_poll and self.qos.can_consume())

    def _brpop_start(self, timeout: float | None = None) -> None:
        """Ask for the next message."""
        if timeout is not None or self.global_keyprefix or len(self.priority_steps) != 1:
            super()._brpop_start(timeout)  # type: ignore[misc]
            return
        queues = tuple(self._queue_cycle.consume(len(self._active_queues)))
        if not queues:
            return
        packed = self._packed.get(queues)
        connection = self.client.connection
        if packed is None:
            if len(self._packed) >= _MOST_PACKED:
                self._packed.clear()
            keys = [self._q_for_pri(queue, self.priority_steps[0]) for queue in queues]
            packed = connection.pack_command("BRPOP", *keys, self.brpop_timeout or 0)
            self._packed[queues] = packed
        self._in_poll = connection
        self._brpop_sent_at = monotonic()
        connection.send_packed_command(packed)

    def _brpop_read(self, **options: object) -> bool:
        """Take the message that has come, and ask for the next one; see kombu's own method."""
        if self.global_keyprefix:
            return bool(super()._brpop_read(**options))  # type: ignore[misc]
        # Without a request on its way, the server has closed the connection: reading finds that out.
        connection = self._in_poll or cast("AbstractConnection", self.client.connection)
        try:
            try:
                popped = cast("list[bytes] | None", connection.read_response())
            except self.connection_errors:
                connection.disconnect()  # type: ignore[no-untyped-call]
                raise
            if not popped:
                raise Empty
            queue = popped[0].decode().rsplit(self.sep, 1)[0]
            self._queue_cycle.rotate(queue)
            self.connection._deliver(json.loads(popped[1].decode()), queue)  # noqa: SLF001
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()
        if self._active_queues and not self._closing and self.qos.can_consume():
            self._brpop_start()
        return True


class _Poller(kombu_redis.MultiChannelPoller):
    """A poller that has nothing to do before most polls."""

    _channels: set[Channel]
    _paused_brpop: dict[int, object]

    def on_poll_start(self) -> None:
        """Ask for what every channel waits for, where that is not done."""
        if self._paused_brpop or not all(channel.is_settled() for channel in self._channels):
            super().on_poll_start()


class Transport(kombu_redis.Transport):
    """The Redis transport with such channels."""

    Channel = Channel
    cycle: _Poller

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)
        self.cycle = _Poller()

    def register_with_event_loop(self, connection: object, loop: Hub) -> None:
        """Let an event loop read the channels' sockets."""
        ticks = cast("set[Callable[[], None]]", loop.on_tick)
        known = set(ticks)
        super().register_with_event_loop(connection, loop)
        # kombu's own registers all sockets before each poll, a system call for each.
        ticks &= known
        ticks.add(partial(self._before_poll, loop))

    def _before_poll(self, loop: Hub) -> None:
        self.cycle.on_poll_start()
        for fd in self.cycle.fds:
            if fd not in loop.readers:
                loop.add_reader(fd, self.on_readable, fd)


def install() -> None:
    """Let ``redis://`` broker URLs of this process use this transport."""
    for alias in ("redis", "rediss"):
        TRANSPORT_ALIASES[alias] = "celeriac.tasks.transport:Transport"
